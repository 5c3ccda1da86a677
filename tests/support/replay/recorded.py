"""What a replay may look at: events without anything that a gateway decided.

An event is a mapping of its fields, with `type` and where it lay in the topic (kafka_partition, kafka_offset,
append_time_ms; all null when it was never there).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pidgate.pipeline.recommend.in_force import settings as settings_of
from pidgate.quota.settings import Mode, Quotas, UserQuota

RecordedEvent = Mapping[str, Any]

DECISION_COLUMNS = (
    "decision",
    "reason",
    "would_refuse",
    "tokens_before",
    "tokens_after",
    "token_units",
    "throttle_time_ms",
    "queue_position",
    "waited_ms",
    "suppressed_count",
)
"""Of a decision event: what was decided, and from which state. The rest of it says what came."""

REPLAYED_TYPES = ("lifecycle", "config", "connection", "init_producer_id", "decision")
"""Types that a replay reads; outcomes, usage and errors follow from what was decided."""


def without_decision(event: RecordedEvent) -> dict[str, Any]:
    """The event without what was decided; other types as they are."""
    if event["type"] != "decision":
        return dict(event)
    return {name: value for name, value in event.items() if name not in DECISION_COLUMNS}


def pieces_of(arrival: RecordedEvent | None) -> Sequence[RecordedEvent]:
    """When others were heard, as an arrival tells; nothing where a gateway did not tell it yet."""
    return () if arrival is None else arrival.get("heard") or ()


def run_of(incarnation: str) -> str:
    """The gateway's run that a process belongs to."""
    return incarnation.split(".", 1)[0]


def quotas_of(config: RecordedEvent) -> Quotas:
    """The quotas in force as a config event tells them."""
    return Quotas(
        mode=Mode(config["mode"]),
        producer_ids=settings_of(config),
        default=UserQuota(config["default_rate_milli"]),
        users={one["user"]: _user_quota(one) for one in config["quotas"]},
        cluster_rate_milli=config["cluster_rate_milli"],
    )


def _user_quota(one: RecordedEvent) -> UserQuota:
    mode = one["mode"]
    return UserQuota(one["rate_milli"], None if mode is None else Mode(mode), one["exempt"])


def by_process(events: Iterable[RecordedEvent]) -> dict[tuple[str, str], list[RecordedEvent]]:
    """Events of each process in the order of their numbers, each once."""
    found: dict[tuple[str, str], dict[int, RecordedEvent]] = {}
    for event in events:
        if event["type"] in REPLAYED_TYPES:
            found.setdefault((event["gateway_id"], event["incarnation"]), {})[event["seq"]] = event
    return {process: [told[seq] for seq in sorted(told)] for process, told in found.items()}
