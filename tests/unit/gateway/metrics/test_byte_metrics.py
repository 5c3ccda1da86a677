"""Byte rates on /metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pidgate.gateway.metrics.byte_rates import ByteCollector
from pidgate.quota.byte_quota import ByteQuota, ByteSnapshot, Kind
from pidgate.quota.settings import ByteQuotas, ByteRates, Mode, Quotas, QuotasHolder

BYTES = ByteQuotas(rates={("alice", None): ByteRates(500), ("", ""): ByteRates(None, 700)})
QUOTAS = Quotas(mode=Mode.ENFORCE, bytes=BYTES)

ROW = ByteSnapshot("alice", None, Kind.PRODUCE, 500, 620.5, 4, 1, 2_100.0, 6_300)


class Buckets(ByteQuota):
    """Byte quotas whose buckets are given."""

    def __init__(self, *rows: ByteSnapshot) -> None:
        super().__init__(QuotasHolder(QUOTAS))
        self.rows, self.no_room = list(rows), 3

    def snapshots(self, now_ms: int) -> Iterator[ByteSnapshot]:
        return iter(self.rows)


def scraped(collector: ByteCollector) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(collector)
    return {
        "|".join([sample.name, *(sample.labels.get(name, "") for name in ("kind", "user", "client_id"))]): (
            sample.value
        )
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def collector_of(*rows: ByteSnapshot, room: int = 10) -> ByteCollector:
    return ByteCollector(Buckets(*rows), lambda: 0, room)


def test_a_row_has_kafkas_numbers_under_kafkas_tags() -> None:
    client = ByteSnapshot(None, "app", Kind.FETCH, 700, 0.0, 0, 9, 0.0, 8_000)

    shown = scraped(collector_of(ROW, client))

    assert shown["pidgate_byte_rate|produce|alice|"] == 620.5
    assert shown["pidgate_byte_quota|produce|alice|"] == 500
    assert shown["pidgate_byte_throttle_time_seconds|produce|alice|"] == 2.1
    assert shown["pidgate_byte_throttled_total|produce|alice|"] == 4
    assert shown["pidgate_byte_would_throttle_total|produce|alice|"] == 1
    assert shown["pidgate_byte_counted_total|produce|alice|"] == 6_300
    assert shown["pidgate_byte_would_throttle_total|fetch||app"] == 9
    assert shown["pidgate_byte_no_room_total|||"] == 3


def test_rows_beyond_the_bound_are_summed_and_those_shown_stay() -> None:
    rows = [replace(ROW, user=f"user-{number}", throttle_time_ms=float(number)) for number in range(5)]
    buckets = Buckets(*rows)
    collector = ByteCollector(buckets, lambda: 0, 2)
    scraped(collector)
    buckets.rows.reverse()

    shown = scraped(collector)

    assert [name for name in shown if name.startswith("pidgate_byte_counted_total")] == [
        "pidgate_byte_counted_total|produce|user-1|",
        "pidgate_byte_counted_total|produce|user-0|",
        "pidgate_byte_counted_total|produce|(other)|(other)",
    ]
    assert shown["pidgate_byte_counted_total|produce|(other)|(other)"] == 3 * 6_300
    assert shown["pidgate_byte_rate|produce|(other)|(other)"] == 3 * 620.5
    assert shown["pidgate_byte_throttle_time_seconds|produce|(other)|(other)"] == 0.004
    assert "pidgate_byte_quota|produce|(other)|(other)" not in shown


def test_a_gateway_shows_its_buckets() -> None:
    quota = ByteQuota(QuotasHolder(QUOTAS))
    sensors = quota.sensors(Kind.PRODUCE, "alice", "app", 0)
    assert sensors is not None
    sensors.record(5_500, 0)

    shown = scraped(ByteCollector(quota, lambda: 0))

    assert shown["pidgate_byte_rate|produce|alice|"] == 550
    assert shown["pidgate_byte_throttle_time_seconds|produce|alice|"] == 1
