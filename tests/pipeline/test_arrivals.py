"""What counts as a new producer id, against the same rule written down as a loop."""

from __future__ import annotations

from typing import Any

from pidgate.pipeline.kernels import Kernel
from pidgate.pipeline.passes import RATES, Pass
from tests.pipeline.made_events import DAY, HOUR, MONDAY, MadeUp, Row, event, tables_of
from tests.pipeline.reference import arrivals as reference


def decided(producer_id: int, at: int, reason: str, decision: str = "admit", **more: Any) -> Row:
    told = {"user": "alice", "topic": "orders", "tokens_after": 3, **more}
    return event(
        "decision",
        producer_id=producer_id,
        wall_time_ms=MONDAY + at,
        reason=reason,
        decision=decision,
        **told,
    )


def arrivals(rows: list[Row]) -> list[Row]:
    reads = Pass((RATES,), DAY, DAY).by_id
    with Kernel(tables_of({"decision": rows}, reads), {"remember_ms": DAY}) as kernel:
        kernel.run("arrivals")
        found: list[Row] = kernel.table("arrivals").to_pylist()
    return found


def test_each_kind_of_arrival() -> None:
    rows = [
        decided(1, 0, "first_seen"),
        decided(1, 5, "first_seen", gateway_id="gw-2"),  # had not heard of it yet
        decided(1, 6 * HOUR, "refresh"),
        decided(1, 30 * HOUR, "grace"),  # exactly as long as it is remembered
        decided(1, 54 * HOUR + 1, "observe", tokens_after=None),
        decided(2, 0, "refresh"),  # older than the history
        decided(2, 9 * HOUR, "grace"),
        decided(3, 0, "established", "refuse"),
        decided(3, 100, "first_seen", "refuse"),
        decided(3, 10_000, "queue"),
        decided(4, 0, "blocked", "refuse"),
        decided(5, 0, "inherited"),
        decided(6, 0, "held", "hold"),  # judged when the mute is over
        decided(-1, 0, "first_seen"),
        decided(1, 7, "first_seen", user="bob"),
    ]
    arrived = sorted(arrivals(rows), key=lambda row: (row["producer_id"], row["user"], row["at_ms"]))
    told = [
        (
            row["user"],
            row["producer_id"],
            row["at_ms"] - MONDAY,
            row["first_admitted_ms"] and row["first_admitted_ms"] - MONDAY,
            row["refusals"],
            row["gateway_id"],
        )
        for row in arrived
    ]
    assert told == [
        ("alice", 1, 0, 0, 0, "gw-1"),
        ("alice", 1, 54 * HOUR + 1, 54 * HOUR + 1, 0, "gw-1"),
        ("bob", 1, 7, 7, 0, "gw-1"),
        ("alice", 3, 0, 10_000, 2, "gw-1"),
        ("alice", 4, 0, None, 1, "gw-1"),
    ]


def test_random_histories_give_what_a_loop_over_them_gives() -> None:
    rows = MadeUp(seed=7, ids=300).of["decision"]
    assert len({row["user"] for row in rows}) == 5
    told = arrivals(rows)
    expected = reference(rows, DAY)
    assert in_order(told) == in_order(expected)
    assert len(expected) > 250
    assert any(one["first_admitted_ms"] is None for one in expected)
    assert len({(one["user"], one["producer_id"]) for one in expected}) < len(expected), "some came back"
    assert in_order(told) != in_order(reference(rows[1:], DAY)), "one decision less must be noticed"


NAMES = (
    "user", "producer_id", "at_ms", "first_admitted_ms", "refusals", "client_id", "address", "topic", "transactional",
    "gateway_id", "incarnation", "connection_id",
)  # fmt: skip


def in_order(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in NAMES) for row in rows), key=lambda row: row[:3])


def test_the_order_of_files_does_not_matter() -> None:
    """Two gateways tell the same millisecond: the first by name describes the client, wherever it lies."""
    rows = [decided(1, 0, "first_seen", gateway_id=name, client_id=name) for name in ("b", "a", "c")]
    for shuffled in (rows, rows[::-1]):
        (row,) = arrivals(shuffled)
        assert (row["client_id"], row["gateway_id"]) == ("a", "a")
