"""Clocks of gateways: told apart from delays, and bounded in number."""

from __future__ import annotations

import random
import re
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.pipeline.ingest import clocks
from pidgate.pipeline.ingest.columns import ARRIVALS, CLOCKS

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
NONE = CLOCKS.empty_table()


def arrived(rows: list[tuple[str, int | None, int]]) -> pa.Table:
    """Incarnation, append time, wall time."""
    told: list[dict[str, Any]] = [
        {"gateway_id": "gw", "incarnation": of, "append_time_ms": append_ms, "wall_time_ms": wall_ms}
        for of, append_ms, wall_ms in rows
    ]
    return pa.Table.from_pylist(told, ARRIVALS)


def applied(table: pa.Table) -> dict[tuple[str, int], int]:
    return {
        (row["incarnation"], row["hour_ms"] // HOUR_MS): row["applied_ms"]
        for row in table.to_pylist()
        if row["applied_ms"]
    }


def test_the_offset_is_the_tenth_percentile_of_an_hour_above_one_minute() -> None:
    chance = random.Random(1)
    for offset_ms in (0, 59_000, 61_000, 40 * MINUTE_MS, -61_000, -59 * MINUTE_MS):
        delays = [chance.randrange(5_000) for _ in range(101)]
        events = arrived(
            [("a", 100 * HOUR_MS + n, 100 * HOUR_MS + n - late - offset_ms) for n, late in enumerate(delays)]
        )
        measured, shift_ms = clocks.measured(NONE, events)
        (row,) = measured.to_pylist()
        tenth_ms = offset_ms + sorted(delays)[10]
        assert (row["offset_ms"], row["events"]) == (tenth_ms, 101)
        told_ms = tenth_ms if abs(tenth_ms) > MINUTE_MS else 0
        assert row["applied_ms"] == told_ms
        assert set(shift_ms.tolist()) == {told_ms}


def test_a_backlog_after_an_outage_is_no_slow_clock() -> None:
    """Three hours without a broker; then first the oldest events come, in a batch of their own."""
    before, _ = clocks.measured(
        NONE, arrived([("a", 100 * HOUR_MS + n, 100 * HOUR_MS + n - 20) for n in range(50)])
    )
    backlog = arrived([("a", 103 * HOUR_MS + n, 101 * HOUR_MS + n) for n in range(50)])
    measured, shift_ms = clocks.measured(before, backlog)
    assert applied(measured) == {}
    assert not shift_ms.any()
    # Nothing is known of the clock of a process that is new.
    assert applied(clocks.measured(NONE, backlog)[0]) == {("a", 103): 2 * HOUR_MS}


def test_what_no_broker_dated_is_not_known() -> None:
    known = NONE
    for _ in range(2):
        events = arrived([("a", None, 5), ("a", None, 6), ("b", 100 * HOUR_MS, 100 * HOUR_MS)])
        known, shift_ms = clocks.measured(known, events)
    rows = [
        (row["incarnation"], row["hour_ms"], row["offset_ms"], row["events"]) for row in known.to_pylist()
    ]
    assert rows == [("b", 100 * HOUR_MS, 0, 2), ("a", None, None, 4)]
    assert shift_ms.tolist() == [0, 0, 0]
    assert clocks.doubts(known) == clocks.Doubts(unknown=("gw",))


rows_of_clocks = st.lists(
    st.builds(
        lambda gateway, hour, offset_ms: {
            "gateway_id": gateway,
            "hour_ms": None if offset_ms is None else hour * HOUR_MS,
            "offset_ms": offset_ms,
            "applied_ms": offset_ms if offset_ms is not None and abs(offset_ms) > MINUTE_MS else 0,
        },
        st.sampled_from("abc"),
        st.integers(-(2**41), 2**41) | st.integers(400_000, 400_009),
        st.none() | st.integers(-9, 9) | st.integers(-(2**62), 2**62),
    )
)


@settings(max_examples=50, deadline=None)
@given(rows_of_clocks)
def test_each_doubt_says_what_the_rows_say(rows: list[dict[str, Any]]) -> None:
    claims = dict(clocks.doubts(pa.Table.from_pylist(rows, CLOCKS)).sentences())
    wrong = {row["gateway_id"] for row in rows if row["applied_ms"]}
    unknown = {row["gateway_id"] for row in rows if row["offset_ms"] is None}
    assert len(claims) == bool(wrong) + bool(unknown)
    for claim, reason in claims.items():
        if told := re.fullmatch(r"(\d) gateways? had a wrong clock", claim):
            assert int(told[1]) == len(wrong)
            name, seconds, side, hours = re.findall(
                r"([abc]) up to ([\d,]+) s (\w+) in ([\d,]+) hour", reason
            )[0]
            alike = [
                row
                for row in rows
                if row["gateway_id"] == name and row["applied_ms"] * (1 if side == "behind" else -1) > 0
            ]
            largest_ms = max(abs(row["applied_ms"]) for row in rows)
            assert max(abs(row["applied_ms"]) for row in alike) == largest_ms
            assert seconds == f"{largest_ms / 1000:,.0f}"
            assert int(hours) == len({row["hour_ms"] for row in alike})
        else:
            (number,) = re.fullmatch(r"The clock of (\d) gateways? is not known", claim).groups()  # type: ignore[union-attr]
            assert int(number) == len(unknown)
            assert all(name in reason for name in sorted(unknown)[:2])


def test_rows_with_an_offset_stay_and_others_go_after_some_hours() -> None:
    known = NONE
    for hour in range(100, 110):
        late_ms = 2 * HOUR_MS if hour == 100 else 0
        known, _ = clocks.measured(known, arrived([("a", hour * HOUR_MS, hour * HOUR_MS - late_ms)]))
    assert [row["hour_ms"] // HOUR_MS for row in known.to_pylist()] == [100, *range(104, 110)]
