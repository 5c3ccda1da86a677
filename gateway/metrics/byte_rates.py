"""Byte quotas as metrics, in Kafka's words (byte-rate, throttle-time by user and client-id).

User names and client ids come from clients, so the number of rows is bounded: the first LABELLED_ROWS seen keep labels
of their own for the life of the process (a series that comes and goes would look like a counter reset), the rest are
summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pidgate.gateway.metrics.families import PREFIX, counter
from pidgate.gateway.metrics.reports import ByteState
from pidgate.quota.byte_quota import ByteSnapshot

LABELLED_ROWS: Final = 1_000
OTHER: Final = "(other)"

_Labels = tuple[str, str, str]
"""kind, user, client id; "" stands for all of them, as in Kafka's tags."""


class ByteCollector(Collector):
    """`state` is called at each scrape."""

    def __init__(self, state: Callable[[], ByteState], labelled_rows: int = LABELLED_ROWS) -> None:
        self._state = state
        self._room = labelled_rows
        self._labelled: set[_Labels] = set()

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        own, others = self._divided(state.rows)
        for family, value_of, adds_up in _families():
            for labels, row in own.items():
                family.add_metric(labels, value_of(row))
            for kind, rows in others.items():
                # Bounds of many have no sum that says anything.
                if adds_up is not None:
                    family.add_metric((kind, OTHER, OTHER), adds_up(value_of(row) for row in rows))
            yield family
        no_room = "Times a client's bytes were counted with its user's other clients, for want of room."
        yield counter("byte_no_room", no_room, state.no_room)
        not_shared = "Buckets that a worker counts for itself: there is no room in what workers share."
        yield counter("byte_not_shared", not_shared, state.not_shared)

    def _divided(
        self, rows: Iterable[ByteSnapshot]
    ) -> tuple[dict[_Labels, ByteSnapshot], dict[str, list[ByteSnapshot]]]:
        own: dict[_Labels, ByteSnapshot] = {}
        others: dict[str, list[ByteSnapshot]] = {}
        for row in rows:
            labels = (str(row.kind), row.user or "", row.client_id or "")
            if labels in self._labelled or len(self._labelled) < self._room:
                self._labelled.add(labels)
                own[labels] = row
            else:
                others.setdefault(labels[0], []).append(row)
        return own, others


_Family = GaugeMetricFamily | CounterMetricFamily
_Value = Callable[[ByteSnapshot], float]
_AddsUp = Callable[[Iterable[float]], float] | None

_FAMILIES: Final[tuple[tuple[type[_Family], str, str, _Value, _AddsUp], ...]] = (
    (
        GaugeMetricFamily,
        "rate",
        "Bytes per second over the quota's window.",
        lambda row: row.bytes_per_s,
        sum,
    ),
    (GaugeMetricFamily, "quota", "Bytes per second allowed.", lambda row: row.rate_bytes_per_s, None),
    (
        GaugeMetricFamily,
        "throttle_time_ms",
        "Average of the throttles above 0, in ms.",
        lambda row: row.throttle_time_ms,
        max,
    ),
    (CounterMetricFamily, "counted", "Bytes counted.", lambda row: row.total_bytes, sum),
    (
        CounterMetricFamily,
        "throttled",
        "Requests after which a client waited.",
        lambda row: row.throttled,
        sum,
    ),
    (
        CounterMetricFamily,
        "would_throttle",
        "Requests after which enforce would have made a client wait.",
        lambda row: row.would_throttle,
        sum,
    ),
)


def _families() -> Iterator[tuple[_Family, _Value, _AddsUp]]:
    for kind, name, text, value_of, adds_up in _FAMILIES:
        yield kind(f"{PREFIX}byte_{name}", text, labels=["kind", "user", "client_id"]), value_of, adds_up
