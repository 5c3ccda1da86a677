"""The event of the quotas in force and their provenance. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pidgate.events.definitions import ConfigEvent, QuotaInForce
from pidgate.quota.settings import Quotas


@dataclass(frozen=True, slots=True)
class Provenance:
    """Source and owner of a user's quota; the latest of several changes. `set_wall_ms` is None for a file's.

    `until_wall_ms`: end of its temporary part.
    """

    source: str = "file"
    set_by: str = ""
    set_wall_ms: int | None = None
    owner: str = ""
    note: str = ""
    until_wall_ms: int | None = None


_FROM_FILE = Provenance()


def config_event(
    stamp: Mapping[str, Any], quotas: Quotas, quota_version: int, provenance: Mapping[str, Provenance]
) -> ConfigEvent:
    """Return the event. `provenance` is keyed by user; the default quota has the key ""."""
    ids = quotas.producer_ids
    return ConfigEvent(
        **stamp,
        quota_version=quota_version,
        mode=quotas.mode.value,
        transactional=ids.transactional.value,
        window_ms=ids.window_ms,
        burst=float(ids.burst),
        remember_ms=ids.remember_ms,
        layers=ids.layers,
        false_positive_rate=ids.false_positive_rate,
        max_throttle_ms=ids.max_throttle_ms,
        max_live_ids=ids.max_live_ids,
        queue=ids.queue,
        sticky_entries=ids.sticky_entries,
        refuse_init_producer_id=ids.refuse_init,
        default_rate_milli=quotas.default.producer_ids_rate_milli,
        default_transactional_ids_rate_milli=quotas.default.transactional_ids_rate_milli,
        default_producer_states_rate_milli=quotas.default.producer_states_rate_milli,
        default_source=provenance.get("", _FROM_FILE).source,
        cluster_rate_milli=quotas.cluster_rate_milli,
        quotas=[_in_force(quotas, user, provenance.get(user, _FROM_FILE)) for user in sorted(quotas.users)],
    )


def _in_force(quotas: Quotas, user: str, provenance: Provenance) -> QuotaInForce:
    quota = quotas.users[user]
    return QuotaInForce(
        user=user,
        rate_milli=quota.producer_ids_rate_milli,
        transactional_ids_rate_milli=quota.transactional_ids_rate_milli,
        producer_states_rate_milli=quota.producer_states_rate_milli,
        mode=None if quota.mode is None else quota.mode.value,
        exempt=quota.exempt,
        source=provenance.source,
        set_by=provenance.set_by,
        set_wall_ms=provenance.set_wall_ms,
        owner=provenance.owner,
        note=provenance.note,
    )
