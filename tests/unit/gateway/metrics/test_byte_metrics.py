"""Byte rates on /metrics, and the sums of what workers report."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pidgate.gateway.metrics.byte_rates import ByteCollector
from pidgate.gateway.metrics.reports import (
    REPORT_LATE_MS,
    ByteReports,
    ByteState,
    byte_changes_of,
    byte_state_of,
)
from pidgate.gateway.process.wire import Decoder, encoded
from pidgate.gateway.process.wire import Kind as MessageKind
from pidgate.quota.byte_quota import IDLE_MS, OTHER_CLIENTS, ByteQuota, ByteSnapshot
from pidgate.quota.byte_rates import Kind
from pidgate.quota.settings import ByteQuotas, ByteRates, Mode, Quotas

BYTES = ByteQuotas(rates={("alice", None): ByteRates(500), ("", ""): ByteRates(None, 700)})
QUOTAS = Quotas(mode=Mode.ENFORCE, bytes=BYTES)
WINDOW_MS = 11_000

ROW = ByteSnapshot("alice", None, Kind.PRODUCE, 500, 620.5, 4, 1, 2_100.0, 6_300)


def carried(state: ByteState) -> ByteState:
    """As it comes out of the socket."""
    (message,) = Decoder().feed(encoded(MessageKind.REPORT, state))
    assert isinstance(message.body, ByteState)
    return message.body


def report(*rows: ByteSnapshot, no_room: int = 0, not_shared: int = 0) -> ByteState:
    return carried(ByteState(list(rows), no_room, not_shared))


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
    return ByteCollector(lambda: ByteState(list(rows), 3, 2), room)


def test_a_row_has_kafkas_numbers_under_kafkas_tags() -> None:
    client = ByteSnapshot(None, "app", Kind.FETCH, 700, 0.0, 0, 9, 0.0, 8_000)

    shown = scraped(collector_of(ROW, client))

    assert shown["pidgate_byte_rate|produce|alice|"] == 620.5
    assert shown["pidgate_byte_quota|produce|alice|"] == 500
    assert shown["pidgate_byte_throttle_time_ms|produce|alice|"] == 2_100
    assert shown["pidgate_byte_throttled_total|produce|alice|"] == 4
    assert shown["pidgate_byte_would_throttle_total|produce|alice|"] == 1
    assert shown["pidgate_byte_counted_total|produce|alice|"] == 6_300
    assert shown["pidgate_byte_would_throttle_total|fetch||app"] == 9
    assert shown["pidgate_byte_no_room_total|||"] == 3
    assert shown["pidgate_byte_not_shared_total|||"] == 2


def test_rows_beyond_the_bound_are_summed_and_those_shown_stay() -> None:
    rows = [replace(ROW, user=f"user-{number}", throttle_time_ms=float(number)) for number in range(5)]
    collector = ByteCollector(lambda: ByteState(rows, 0, 0), 2)
    scraped(collector)
    rows.reverse()

    shown = scraped(collector)

    assert [name for name in shown if name.startswith("pidgate_byte_counted_total")] == [
        "pidgate_byte_counted_total|produce|user-1|",
        "pidgate_byte_counted_total|produce|user-0|",
        "pidgate_byte_counted_total|produce|(other)|(other)",
    ]
    assert shown["pidgate_byte_counted_total|produce|(other)|(other)"] == 3 * 6_300
    assert shown["pidgate_byte_rate|produce|(other)|(other)"] == 3 * 620.5
    assert shown["pidgate_byte_throttle_time_ms|produce|(other)|(other)"] == 4
    assert "pidgate_byte_quota|produce|(other)|(other)" not in shown


def test_a_single_process_shows_its_own() -> None:
    quota = ByteQuota(QUOTAS, 0)
    sensors = quota.sensors(Kind.PRODUCE, "alice", "app", 0)
    assert sensors is not None
    sensors.record(5_500, 0)

    shown = scraped(ByteCollector(lambda: byte_state_of(quota, 0)))

    assert shown["pidgate_byte_rate|produce|alice|"] == 550
    assert shown["pidgate_byte_throttle_time_ms|produce|alice|"] == 1_000


def test_what_goes_over_the_wire_comes_back_the_same() -> None:
    for row in (ROW, ByteSnapshot(None, "", Kind.FETCH, 700, 1 / 3, 0, 2**40, 0.5, 2**60)):
        assert report(row).rows == [row]


def test_workers_totals_add_up_and_their_rate_is_already_that_of_all() -> None:
    reports = ByteReports()
    reports.take(11, report(ROW, no_room=1), 0)
    reports.take(12, report(replace(ROW, bytes_per_s=619.0, throttle_time_ms=0.0), not_shared=2), 0)

    state = reports.state(BYTES, 1_000)

    assert list(state.rows) == [replace(ROW, throttled=8, would_throttle=2, total_bytes=12_600)]
    assert (state.no_room, state.not_shared) == (1, 2)


def test_totals_never_fall_when_a_worker_dies_or_begins_anew() -> None:
    reports = ByteReports()
    reports.take(11, report(ROW, no_room=1), 0)
    reports.take(12, report(ROW), 0)
    reports.retire(11)
    assert next(iter(reports.state(BYTES, 0).rows)).total_bytes == 12_600
    assert reports.state(BYTES, 0).no_room == 1

    # The bucket was idle for an hour in worker 12, and is new there.
    reports.take(12, report(replace(ROW, total_bytes=100, throttled=0)), 1)
    (row,) = reports.state(BYTES, 1).rows
    assert (row.total_bytes, row.throttled) == (12_700, 8)

    reports.take(11, report(replace(ROW, total_bytes=7)), 2)  # another process with the old one's id
    assert next(iter(reports.state(BYTES, 2).rows)).total_bytes == 12_707


def test_a_rate_that_is_not_told_again_is_over() -> None:
    reports = ByteReports()
    reports.take(11, report(ROW), 0)

    assert next(iter(reports.state(BYTES, WINDOW_MS + REPORT_LATE_MS).rows)).bytes_per_s == 620.5
    (row,) = reports.state(BYTES, WINDOW_MS + REPORT_LATE_MS + 1).rows
    assert (row.bytes_per_s, row.throttle_time_ms, row.total_bytes) == (0.0, 0.0, 6_300)


def test_what_is_idle_for_an_hour_is_forgotten() -> None:
    reports = ByteReports()
    reports.take(11, report(ROW), 0)

    assert len(list(reports.state(BYTES, IDLE_MS - 1).rows)) == 1
    assert list(reports.state(BYTES, IDLE_MS).rows) == []


def test_bounds_are_those_in_force_and_without_one_there_is_no_row() -> None:
    reports = ByteReports()
    reports.take(11, report(ROW, replace(ROW, client_id=OTHER_CLIENTS, rate_bytes_per_s=90)), 0)

    changed = ByteQuotas(rates={("", None): ByteRates(800)})
    assert [row.rate_bytes_per_s for row in reports.state(changed, 0).rows] == [800, 90]
    assert [row.client_id for row in reports.state(ByteQuotas(), 0).rows] == [OTHER_CLIENTS]


def test_a_report_holds_what_changed_since_the_last() -> None:
    quota, reports = ByteQuota(QUOTAS, 0), ByteReports()
    for kind, user in ((Kind.PRODUCE, "alice"), (Kind.FETCH, "bob")):
        sensors = quota.sensors(kind, user, "app", 0)
        assert sensors is not None
        sensors.record(5_600, 1)

    first = byte_changes_of(quota, 2)
    assert [(row.user, row.client_id, row.kind) for row in first.rows] == [
        ("bob", "app", "fetch"),
        ("alice", None, "produce"),
    ]
    reports.take(1, carried(first), 2)
    assert byte_changes_of(quota, 3).rows == []
    assert list(reports.state(BYTES, 3).rows) == [
        replace(row, bytes_per_s=row.total_bytes * 1_000 / 10_001) for row in quota.snapshots(2)
    ]
