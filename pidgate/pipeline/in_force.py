"""Quotas in force, expiry of producer ids, and brokers, from the newest config and topology events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any, Final

from pidgate.pipeline.tables import Tables
from pidgate.quota.settings import Mode, ProducerIdSettings

REMEMBER_MS: Final = 24 * 3_600_000
"""The gateway's default for `remember`, and the brokers' default for producer.id.expiration.ms."""
CHECK_INTERVAL_MS: Final = 600_000
"""Kafka's default of producer.id.expiration.check.interval.ms (KIP-854), a divisor of an hour.

A broker may drop a state this much later than due.
"""
UNKNOWN_TOPIC: Final = ""

InForce = dict[str, Any]
"""A config event as plain values; `quotas` is a list of such."""


def newest_event(tables: Tables, event_type: str, where: str = "true") -> InForce | None:
    """Return the newest event of all gateways as plain values; None if there is none."""
    newest = f"from found where {where} order by wall_time_ms desc, seq desc limit 1"
    return next(iter(tables.query_events(event_type, newest)), None)


def expiration_ms(tables: Tables) -> int:
    """Return the brokers' producer.id.expiration.ms; Kafka's default if no event has it."""
    told = newest_event(tables, "topology", "producer_id_expiration_ms > 0")
    return REMEMBER_MS if told is None else int(told["producer_id_expiration_ms"])


def settings(config: Mapping[str, Any] | None) -> ProducerIdSettings:
    """Return the quota settings shared by all users; the gateway's defaults without a config event."""
    if config is None:
        return ProducerIdSettings()
    same = (
        "window_ms", "remember_ms", "layers", "false_positive_rate", "max_throttle_ms", "max_live_ids", "queue",
        "sticky_entries",
    )  # fmt: skip
    return ProducerIdSettings(
        **{name: config[name] for name in same},
        # Through its decimal digits, as the gateway reads its file.
        burst=Fraction(str(config["burst"])),
        transactional=Mode(config["transactional"]),
        refuse_init=config["refuse_init_producer_id"],
    )


def windows(settings: ProducerIdSettings, during_ms: int) -> float:
    """Return the factor of a rate in the most ids that a bucket admits within this time: factor * rate + 1.

    The bucket may be full at first.
    """
    return float(settings.burst) + during_ms / settings.window_ms


def quotas_of(config: InForce | None) -> Callable[[str | None], InForce]:
    """Return the function from a user to its quota in force: current_rate (None: no limit), mode, exempt, owner, ...

    None stands for users that are not named.
    """
    named: dict[str | None, InForce] = (
        {} if config is None else {one["user"]: one for one in config["quotas"]}
    )
    default_milli = None if config is None else config["default_rate_milli"]
    mode = "observe" if config is None else config["mode"]

    def quota(user: str | None) -> InForce:
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


def enforced(config: InForce | None) -> tuple[float | None, Mapping[str, float | None]]:
    """Return the rates that are enforced: of users that are not named, and by name.

    None for users that are exempt, in observe mode or without a limit.
    """
    quota = quotas_of(config)

    def rate(user: str | None) -> float | None:
        found = quota(user)
        return found["current_rate"] if found["mode"] == Mode.ENFORCE else None

    return rate(None), {one["user"]: rate(one["user"]) for one in (config or {}).get("quotas", ())}


# Brokers

Shares = Mapping[str, Mapping[int, float]]
"""Topic -> broker -> share of the topic's partitions that have a replica there.

Brokers keep producer state on every replica of a partition, not only on the leader (KIP-847). Shares of a
topic sum up to its replication factor. The unknown topic ("") has the mean over all partitions.
"""


def shares(tables: Tables) -> Shares:
    """Return each topic's shares by its newest event, since later ones contain only changes; none without topology."""
    newest = """
        select place.topic as topic, arg_max(place.replicas, wall_time_ms) as replicas
        from (select wall_time_ms, unnest(topics) as place from found) group by all order by all
    """
    of_topics = {row["topic"]: row["replicas"] for row in tables.query_events("topology", newest)}
    everywhere = list(chain.from_iterable(of_topics.values()))
    found = {topic: _shares(replicas) for topic, replicas in of_topics.items()}
    return {**found, UNKNOWN_TOPIC: _shares(everywhere)} if everywhere else {}


def _shares(partitions: Sequence[Sequence[int]]) -> Mapping[int, float]:
    return {
        broker: count / len(partitions) for broker, count in Counter(chain.from_iterable(partitions)).items()
    }


def even_shares(brokers: int, replication_factor: int) -> Shares:
    """Return the shares in a cluster of known size only: everything evenly on brokers 1 to n."""
    return {UNKNOWN_TOPIC: dict.fromkeys(range(1, brokers + 1), min(replication_factor, brokers) / brokers)}
