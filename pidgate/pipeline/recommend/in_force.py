"""The quotas in force, from the newest config event: each user's rate and owner. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from pidgate.quota.settings import Mode, ProducerIdSettings

InForce = dict[str, Any]
"""A config event as plain values; `quotas` is a list of such."""


def settings(config: Mapping[str, Any] | None) -> ProducerIdSettings:
    """Return the quota settings shared by all users; the gateway's defaults without a config event."""
    if config is None:
        return ProducerIdSettings()
    return ProducerIdSettings(
        window_ms=config["window_ms"],
        # Through its decimal digits, as the gateway reads its file.
        burst=Fraction(str(config["burst"])),
        remember_ms=config["remember_ms"],
        layers=config["layers"],
        false_positive_rate=config["false_positive_rate"],
        transactional=Mode(config["transactional"]),
        max_throttle_ms=config["max_throttle_ms"],
        max_live_ids=config["max_live_ids"],
        queue=config["queue"],
        sticky_entries=config["sticky_entries"],
        refuse_init=config["refuse_init_producer_id"],
    )


def quotas_of(config: InForce | None) -> Callable[[str], InForce]:
    """Return the function from a user to its quota in force: current_rate (None: no limit), mode, exempt, owner, ..."""
    named = {} if config is None else {one["user"]: one for one in config["quotas"]}
    default_milli = None if config is None else config["default_rate_milli"]
    mode = "observe" if config is None else config["mode"]

    def quota(user: str) -> InForce:
        own = named.get(user, {})
        milli = default_milli if own.get("rate_milli") is None else own["rate_milli"]
        is_exempt = bool(own.get("exempt"))
        return {
            "current_rate": None if milli is None or is_exempt else milli / 1000,
            "exempt": is_exempt,
            "mode": own.get("mode") or mode,
            **{name: own.get(name) or "" for name in ("owner", "source", "set_by")},
        }

    return quota
