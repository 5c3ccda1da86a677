"""Histories whose right answer is known: through the kernels, held to the reference, and through the commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pidgate.events.definitions import Event
from pidgate.findings.patterns import HARMFUL, Pattern
from pidgate.pipeline.passes import OFFENDERS
from tests.pipeline.jobs import commanded
from tests.pipeline.made_events import DAY, HOUR, MINUTE, Row, land, results, rows_of_events
from tests.pipeline.test_rates import compare
from tests.support.offender_events import MIDNIGHT_MS, Scenes
from tests.support.who_events import START_MS, Client

if TYPE_CHECKING:
    from pidgate.pipeline.tables import Tables

LONG = 9 * DAY
"""Longer than the history: the producer is there to its end."""


def client(user: str, number: int = 0, name: str = "app") -> Client:
    return Client(user=user, client_id=f"{name}-{number}", address=f"10.0.1.{number % 250}")


def constant_beat(made: Scenes, user: str) -> None:
    """A process started every 60 s, 40 s of life, for three days; two starts in a hundred are missed.

    A supervisor's pauses drift. What starts at the same second of each minute is a job by the clock.
    """
    at_ms = START_MS
    for _ in range(3 * 24 * 60):
        at_ms += MINUTE + made.chance.randrange(60)
        if made.chance.random() > 0.02:
            made.one(client(user), at_ms, life_ms=40_000, requests=40)


def bridge(made: Scenes, user: str) -> None:
    """A producer per HTTP request by day."""
    for day in range(3):
        at_ms = MIDNIGHT_MS + (1 + day) * DAY + 9 * HOUR
        while at_ms < MIDNIGHT_MS + (1 + day) * DAY + 17 * HOUR:
            made.one(client(user, name="bridge"), at_ms)
            at_ms += int(made.chance.expovariate(0.15 / 1_000)) + 1


def per_batch(made: Scenes, user: str) -> None:
    for day in range(2):
        for number in range(10 * 360):
            at_ms = MIDNIGHT_MS + (1 + day) * DAY + 8 * HOUR + number * 10_000
            made.one(client(user, name="load"), at_ms)


def random_transactional_ids(made: Scenes, user: str) -> None:
    """Four workers with a new id every ten minutes."""
    for worker in range(4):
        for number in range(7 * 24 * 6):
            at_ms = START_MS + worker * 3_000 + number * 10 * MINUTE
            name = f"{worker}-{number}"
            made.one(
                client(user, worker, "tx"), at_ms, life_ms=590_000, requests=60, transactional_id_hash=name
            )


def weekly(made: Scenes, user: str) -> None:
    """Five long-lived ids, and 300 at once on days 1 and 7."""
    for number in range(5):
        made.one(client(user, number), START_MS, life_ms=LONG, requests=9_000)
    for day in (1, 7):
        for number in range(300):
            at_ms = START_MS + day * DAY + number * 3
            made.one(client(user, number, "weekly"), at_ms, life_ms=40 * MINUTE, requests=400)


def fleet(made: Scenes, user: str) -> None:
    """Twenty pods with a daily deployment."""
    for day in range(6):
        for pod in range(20):
            at_ms = START_MS + day * DAY + pod * 30_000
            life_ms = DAY + 20_000 if day < 5 else LONG
            made.one(client(user, 100 * day + pod, "shop"), at_ms, life_ms=life_ms, requests=9_000)


def several_crashing(made: Scenes, user: str) -> None:
    made.crashing_beside(client(user))


def pool(made: Scenes, user: str) -> None:
    made.pool(client(user))


def autoscaler(made: Scenes, user: str) -> None:
    made.autoscaling(user)


Story = Callable[[Scenes, str], None]
BATCH = Pattern.PRODUCER_PER_BATCH
STORIES: Mapping[Story, set[str]] = {
    constant_beat: {Pattern.RESTART_LOOP},
    bridge: {BATCH},
    per_batch: {BATCH},
    random_transactional_ids: {Pattern.RANDOM_TRANSACTIONAL_IDS},
    weekly: {Pattern.STEADY, Pattern.UNKNOWN},
    fleet: {Pattern.ROLLING_DEPLOYMENT},
    several_crashing: {Pattern.RESTART_LOOP},
    pool: {Pattern.UNKNOWN},
    autoscaler: {Pattern.AUTOSCALING},
}
"""What is found of each user."""


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_each_story_is_found_and_its_rates_are_those_of_the_reference(story: Story) -> None:
    made = Scenes()
    story(made, "u")
    rows = rows_of_events(made.stream.events())
    compare(rows, expiry_ms=DAY)
    found = {row["pattern"]: row for row in results(rows, OFFENDERS)["offenders"]}
    assert set(found) == STORIES[story]
    assert "growing pauses" not in found.get(Pattern.RESTART_LOOP, {"sentence": ""})["sentence"]


def test_an_id_that_two_gateways_saw_is_counted_once() -> None:
    made = Scenes()
    fleet(made, "u")
    rows = rows_of_events(made.stream.events())
    rows["decision"] += [
        {**row, "gateway_id": "gw-b", "wall_time_ms": row["wall_time_ms"] + 5} for row in rows["decision"]
    ]
    (user,) = compare(rows, expiry_ms=DAY).rates_users
    assert (user[3], user[4]) == (120, 120)
    assert {row["pattern"] for row in results(rows, OFFENDERS)["offenders"]} == STORIES[fleet]


def earlier(one: Event, by_ms: int) -> Event:
    times = [name for name in ("wall_time_ms", "first_ms", "last_ms") if hasattr(one, name)]
    return replace(one, **{name: getattr(one, name) - by_ms for name in times})


def test_all_stories_through_the_commands(tables: Tables, tmp_path: Path) -> None:
    """`ingest` from landed files, then `run`: the same as the kernels find in the events themselves."""
    made = Scenes()
    for story in STORIES:
        story(made, story.__name__)
    # Ingest takes nothing from the future, and these days may not be over.
    events = [earlier(one, 4 * 7 * DAY) for one in made.stream.events()]
    land(tmp_path / "landed", events)
    only = ("--only", "rates", "--only", "offenders")
    commanded("ingest", tables.root, "--landed", str(tmp_path / "landed"))
    commanded("run", tables.root, *only)
    found: dict[str, set[str]] = {story.__name__: set() for story in STORIES}
    rows = tables.query("offenders")
    for row in rows:
        found[row["user"]].add(row["pattern"])
    assert found == {story.__name__: patterns for story, patterns in STORIES.items()}
    accused = {row["user"] for row in rows if row["harmful"]}
    assert accused == {story.__name__ for story, patterns in STORIES.items() if patterns & HARMFUL}
    counts = {row["user"]: row["new_ids"] for row in tables.query("rates_users")}
    expected: dict[str, Row] = {
        row["user"]: row for row in results(rows_of_events(events), "rates")["rates_users"]
    }
    assert counts == {user: row["new_ids"] for user, row in expected.items()}
