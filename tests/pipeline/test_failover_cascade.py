"""Who dies when: small clusters whose answer can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pidgate.pipeline.failover.cascade import (
    BASE_BYTES,
    BYTES_PER_STATE,
    BrokerHour,
    Heap,
    Load,
    Scenario,
    run,
    verdict,
    worst_loss,
)
from pidgate.pipeline.failover.study import HOUR_MS, greatest_rate

CALIBRATION = Path(__file__).with_name("calibration") / "failover.json"
HOURS = 6
ROOM_FOR_100 = Heap(heap_bytes=1_000 + 100 * 10, base_bytes=1_000, bytes_per_state=10, usable_share=1.0)
LOST = Scenario("broker 1 lost", lost_broker=1, lost_at_ms=2 * HOUR_MS, expiry_hours=2)
BROKERS = (1, 2, 3)


def load(states: Sequence[float], storm: float = 0.0, allowance: float = np.inf) -> Load:
    """Every hour alike."""
    whole = np.tile(np.asarray(states, dtype=float), (HOURS, 1))
    like = np.ones_like(whole)
    return Load(
        "q", range(0, HOURS * HOUR_MS, HOUR_MS), BROKERS, whole, whole, like * storm, like * allowance
    )


def of(rows: Sequence[BrokerHour], hour: int) -> dict[int, tuple[float, bool]]:
    return {row.broker: (row.states, row.dead) for row in rows if row.hour_ms == hour * HOUR_MS}


def test_a_leaders_move_adds_nothing() -> None:
    """99 of 100 on each: if the others took over anything of the lost one, they would die."""
    rows = run(load([99, 99, 99]), ROOM_FOR_100, LOST)
    assert {row.states for row in rows} == {99}
    assert [row for row in rows if row.dead] == [BrokerHour(1, 2 * HOUR_MS, 99, 99, True)]
    assert verdict(load([99, 99, 99]), ROOM_FOR_100, LOST, rows).holds


def test_clients_that_reopen_take_the_others_along_and_restarts_keep_them_down() -> None:
    rows = run(load([60, 70, 60], storm=20), ROOM_FOR_100, LOST)
    # 1 is lost: +20, 2 has 90. Nobody dies.
    assert of(rows, 2) == {1: (80, True), 2: (90, False), 3: (80, False)}
    # 1 is back, its clients' states are still there for two hours.
    assert of(rows, 3) == {1: (80, False), 2: (90, False), 3: (80, False)}
    assert of(rows, 5) == {1: (60, False), 2: (70, False), 3: (60, False)}

    rows = run(load([60, 85, 60], storm=20), ROOM_FOR_100, LOST)
    # +20 kills 2 (105), whose death brings 20 more (100 on 1 and 3: just fits).
    assert of(rows, 2) == {1: (100, True), 2: (125, True), 3: (100, False)}
    # 2 cannot load its 125: one more storm, and 3 is gone; 1, back for a moment, goes too.
    assert all(dead for _, dead in of(rows, 3).values())
    told = verdict(load([60, 85, 60], storm=20), ROOM_FOR_100, LOST, rows)
    assert [broker for _, broker in told.deaths] == [2, 1, 3]
    assert not told.holds


def test_buckets_bound_all_storms_together() -> None:
    free = run(load([60, 85, 60], storm=20), ROOM_FOR_100, LOST)
    held = run(load([60, 85, 60], storm=20, allowance=15), ROOM_FOR_100, LOST)
    assert max(row.states for row in free) > 125
    assert max(row.states for row in held) == 100
    assert sum(row.dead for row in held) == 1


def test_the_past_alone_kills_the_fullest_first() -> None:
    rows = run(load([101, 120, 90]), ROOM_FOR_100, Scenario())
    told = verdict(load([101, 120, 90]), ROOM_FOR_100, Scenario(), rows)
    assert told.deaths == ((0, 1), (0, 2))
    assert (told.peak_broker, told.peak_heap_bytes) == (2, 1_000 + 1_200)


def test_reassigned_partitions_are_read_anew_by_the_living() -> None:
    """The even rule of the KIP's example is what a reassignment does."""
    reassigning = replace(LOST, reassign=True)
    rows = run(load([60, 65, 60]), ROOM_FOR_100, reassigning)
    assert of(rows, 2) == {1: (0, True), 2: (95, False), 3: (90, False)}
    rows = run(load([60, 75, 60]), ROOM_FOR_100, reassigning)
    # 2 has 105 and dies; 3 gets it all: 60 + 30 + 105.
    assert of(rows, 2) == {1: (0, True), 2: (0, True), 3: (195, True)}
    assert not verdict(load([60, 75, 60]), ROOM_FOR_100, reassigning, rows).holds


def test_a_lost_broker_that_cannot_come_back_counts_as_dead_of_its_heap() -> None:
    """Its own storm makes it too full to load."""
    of_one = load([95, 10, 10], storm=10)
    told = verdict(of_one, ROOM_FOR_100, LOST, run(of_one, ROOM_FOR_100, LOST))
    assert told.deaths == ((3 * HOUR_MS, 1),)


def test_the_worst_loss_is_the_fullest_broker_in_its_fullest_hour() -> None:
    some = load([10, 30, 20])
    some.states[4, 2] = 31
    assert worst_loss(some, None, False, 24) == Scenario("broker 3 lost", 3, 4 * HOUR_MS, False, 24)
    assert worst_loss(some, 2, True, 24).lost_at_ms == 0


@given(st.integers(0, 3_000), st.integers(1, 2_000), st.integers(2, 12))
def test_the_search_finds_the_greatest_rate_to_a_hundredth(limit: int, most: int, candidates: int) -> None:
    passes: list[int] = []

    def holds(rates: Sequence[int]) -> Mapping[int, bool]:
        passes.append(len(rates))
        assert all(1 <= rate <= most for rate in rates)
        return {rate: rate <= limit for rate in rates}

    found, greatest = greatest_rate(holds, most, candidates) or 0, min(limit, most)
    assert found <= greatest <= found + found // 100
    assert max(passes) <= candidates + 1
    assert len(passes) <= 16


def test_the_defaults_are_what_was_measured() -> None:
    found = json.loads(CALIBRATION.read_text())["found"]
    measured = [value for name, value in found.items() if name.startswith("bytes_per_state")]
    one_batch = [found[f"bytes_per_state_{which}"] for which in ("leader", "follower", "single")]
    assert max(one_batch) <= BYTES_PER_STATE < 1.15 * max(one_batch)
    assert max(measured) < 2 * BYTES_PER_STATE
    assert found["states_added_by_leader_move"] == 0
    assert abs(found["bytes_added_by_leader_move"]) < 0.05 * 60_000 * BYTES_PER_STATE
    assert 1.5 * found["base_heap_bytes_small"] > BASE_BYTES
