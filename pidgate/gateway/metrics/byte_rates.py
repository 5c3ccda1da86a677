"""Byte quotas as metrics, with Kafka's names (byte-rate, throttle-time by user and client-id).

Clients choose user names and client ids, so the number of rows is bounded. The first LABELLED_ROWS seen keep
their own labels for the life of the process (a series that comes and goes would look like a counter reset);
the rest are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

from prometheus_client.core import CounterMetricFamily as counter_family
from prometheus_client.core import GaugeMetricFamily as gauge_family
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pidgate.gateway.metrics.families import LABELLED_ROWS, PREFIX, counter
from pidgate.gateway.metrics.turns import SeesManyRows
from pidgate.names import escaped
from pidgate.quota.byte_quota import ByteQuota, ByteSnapshot
from pidgate.quota.entities import shown

OTHER: Final = "(other)"

_Labels = tuple[str, str, str]
"""kind, user, client id. "" means all of them, as in Kafka's tags."""


class _ByteRows:
    """Buckets with their own labels, and by kind the sum of the others."""

    def __init__(self, has_label: Callable[[_Labels], bool]) -> None:
        self.own: dict[_Labels, ByteSnapshot] = {}
        self.others: dict[str, list[ByteSnapshot]] = {}
        self._has_label = has_label

    def add(self, row: ByteSnapshot) -> None:
        labels = (str(row.kind), shown(row.user or ""), escaped(row.client_id or ""))
        if self._has_label(labels):
            self.own[labels] = row
        else:
            self.others.setdefault(labels[0], []).append(row)


class ByteCollector(Collector, SeesManyRows[_ByteRows]):
    """Collector of all buckets of `quota`."""

    def __init__(
        self, quota: ByteQuota, now_ms: Callable[[], int], labelled_rows: int = LABELLED_ROWS
    ) -> None:
        self._quota = quota
        self._now_ms = now_ms
        self._room = labelled_rows
        self._labelled: set[_Labels] = set()

    def _begin(self) -> tuple[_ByteRows, Iterator[None]]:
        rows = _ByteRows(self._has_label)
        return rows, map(rows.add, self._quota.snapshots(self._now_ms()))

    def collect(self) -> Iterator[Metric]:
        seen = self._rows()
        for kind, name, field, sum_of, text in _FAMILIES:
            family = kind(f"{PREFIX}byte_{name}", text, labels=["kind", "user", "client_id"])
            value_of = attrgetter(field)
            for labels, row in seen.own.items():
                family.add_metric(labels, value_of(row))
            if sum_of is not None:
                for bucket_kind, rows in seen.others.items():
                    family.add_metric((bucket_kind, OTHER, OTHER), sum_of(map(value_of, rows)))
            yield family
        no_room = "Times a client's bytes were counted with its user's other clients, for want of room."
        yield counter("byte_no_room", no_room, self._quota.no_room)

    def _has_label(self, labels: _Labels) -> bool:
        if labels in self._labelled or len(self._labelled) < self._room:
            self._labelled.add(labels)
            return True
        return False


_FAMILIES: Final = (
    (gauge_family, "rate", "bytes_per_s", sum, "Bytes per second over the quota's window."),
    (gauge_family, "quota", "rate_bytes_per_s", None, "Bytes per second allowed."),
    (gauge_family, "throttle_time_seconds", "throttle_time_s", max, "Average of the throttles above 0."),
    (counter_family, "counted", "total_bytes", sum, "Bytes counted."),
    (counter_family, "throttled", "throttled", sum, "Requests after which a client waited."),
    (
        counter_family,
        "would_throttle",
        "would_throttle",
        sum,
        "Requests after which enforce would have made a client wait.",
    ),
)
"""Kind, name, snapshot field, aggregation of several snapshots (None: bounds have no meaningful sum), text."""
