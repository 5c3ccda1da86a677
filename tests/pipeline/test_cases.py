"""Histories whose right answer is known, through the kernels of both jobs; rates also against the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pidgate.findings.patterns import HARMFUL, Pattern
from pidgate.pipeline.passes import OFFENDERS
from tests.pipeline.made_events import DAY, HOUR, MINUTE, Row, results, rows_of_events
from tests.pipeline.test_rates import compare
from tests.support.offender_events import MIDNIGHT_MS, Scenes
from tests.support.who_events import START_MS, Client

Findings = Mapping[str, Row]
LONG = 9 * DAY
"""Longer than the history: the producer is there to its end."""


def found(made: Scenes) -> Findings:
    """By pattern; the history is of one user."""
    rows = rows_of_events(made.stream.events())
    compare(rows, expiry_ms=DAY)
    return {row["pattern"]: row for row in results(rows, OFFENDERS)["offenders"]}


def client(number: int = 0, name: str = "app") -> Client:
    return Client(user="u", client_id=f"{name}-{number}", address=f"10.0.1.{number % 250}")


def test_a_constant_beat_is_a_loop_without_growing_pauses() -> None:
    """A process started every 60 s, 40 s of life, for three days; two starts in a hundred are missed.

    A supervisor's pauses drift. What starts at the same second of each minute is a job by the clock.
    """
    made, at_ms = Scenes(), START_MS
    for _ in range(3 * 24 * 60):
        at_ms += MINUTE + made.chance.randrange(60)
        if made.chance.random() > 0.02:
            made.one(client(), at_ms, life_ms=40_000, requests=40)
    (finding,) = found(made).values()
    assert finding["pattern"] == Pattern.RESTART_LOOP
    assert "growing pauses" not in finding["sentence"]


def test_a_bridge_is_a_producer_per_batch_or_request() -> None:
    made = Scenes()
    for day in range(3):
        at_ms = MIDNIGHT_MS + (1 + day) * DAY + 9 * HOUR
        while at_ms < MIDNIGHT_MS + (1 + day) * DAY + 17 * HOUR:
            made.one(client(name="bridge"), at_ms)
            at_ms += int(made.chance.expovariate(0.15 / 1_000)) + 1
    assert set(found(made)) <= {Pattern.PRODUCER_PER_BATCH, Pattern.PRODUCER_PER_TASK}


def test_a_producer_per_batch_alone() -> None:
    made = Scenes()
    for day in range(2):
        for number in range(10 * 360):
            made.one(client(name="load"), MIDNIGHT_MS + (1 + day) * DAY + 8 * HOUR + number * 10_000)
    assert set(found(made)) == {Pattern.PRODUCER_PER_BATCH}


def test_random_transactional_ids_of_four_workers() -> None:
    made = Scenes()
    for worker in range(4):
        for number in range(7 * 24 * 6):
            at_ms = START_MS + worker * 3_000 + number * 10 * MINUTE
            made.one(
                client(worker, "tx"),
                at_ms,
                life_ms=590_000,
                requests=60,
                transactional_id_hash=f"{worker}-{number}",
            )
    assert set(found(made)) == {Pattern.RANDOM_TRANSACTIONAL_IDS}


def test_a_weekly_batch_day_is_neither_loop_nor_rogue() -> None:
    """Five long-lived ids, and 300 at once on days 1 and 8."""
    made = Scenes()
    for number in range(5):
        made.one(client(number), START_MS, life_ms=LONG, requests=9_000)
    for day in (1, 7):
        for number in range(300):
            at_ms = START_MS + day * DAY + number * 3
            made.one(client(number, "weekly"), at_ms, life_ms=40 * MINUTE, requests=400)
    assert not set(found(made)) & HARMFUL


@pytest.mark.parametrize("gateways", [1, 2])
def test_a_healthy_fleet_is_accused_of_nothing(gateways: int) -> None:
    """Twenty pods with a daily deployment, each id seen by every gateway, and counted once."""
    made = Scenes()
    for day in range(6):
        for pod in range(20):
            at_ms = START_MS + day * DAY + pod * 30_000
            life_ms = DAY + 20_000 if day < 5 else LONG
            made.one(client(100 * day + pod, "shop"), at_ms, life_ms=life_ms, requests=9_000)
    rows = rows_of_events(made.stream.events())
    other = [
        {**row, "gateway_id": "gw-b", "wall_time_ms": row["wall_time_ms"] + 5} for row in rows["decision"]
    ]
    rows["decision"] += other * (gateways - 1)
    reference = compare(rows, expiry_ms=DAY)
    (user,) = reference.rates_users
    assert (user[3], user[4]) == (120, 120)
    patterns: set[Any] = {row["pattern"] for row in results(rows, OFFENDERS)["offenders"]}
    assert patterns == {Pattern.ROLLING_DEPLOYMENT}
