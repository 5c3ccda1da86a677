"""The week after: rates chosen from some weeks, and what they refuse in the next one, of users that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from pidgate.pipeline.recommend import chosen
from pidgate.pipeline.recommend.measured import INPUT, Course, measured
from pidgate.pipeline.recommend.trial import Arrivals, cost_at
from pidgate.quota.settings import ProducerIdSettings

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
MONDAY = 1_790_553_600_000
WEEKS = 3
NEXT = MONDAY + WEEKS * 7 * DAY
END = NEXT + 7 * DAY
SETTINGS = ProducerIdSettings()

Life = tuple[int, int]
"""First and last use of an id."""


def growth(chance: Random) -> Iterator[Life]:
    """A fleet that grows by 5 to 30 % a week, deployed on most workdays."""
    pods, weekly = chance.randrange(4, 60), chance.uniform(1.05, 1.3)
    for day in range((WEEKS + 1) * 7):
        if day % 7 < 5 and chance.random() < 0.7:
            number = round(pods * weekly ** (day / 7))
            at = MONDAY + day * DAY + chance.randrange(9, 17) * HOUR
            for pod in range(number):
                start = at + pod * chance.randrange(5, 40) * SECOND
                yield start, start + 2 * DAY


def batch_days(chance: Random) -> Iterator[Life]:
    """A few services, and a batch on one weekday with as many tasks as the week's data need."""
    for _ in range(chance.randrange(2, 9)):
        yield MONDAY, END
    weekday, hour, tasks = chance.randrange(7), chance.randrange(24), chance.randrange(50, 600)
    for week in range(WEEKS + 1):
        at = MONDAY + (week * 7 + weekday) * DAY + hour * HOUR + chance.randrange(40) * MINUTE
        for _ in range(round(tasks * chance.uniform(0.8, 1.2))):
            start = at + chance.randrange(20 * MINUTE)
            yield start, start + 30 * MINUTE


def migration(chance: Random) -> Iterator[Life]:
    """A fleet that is deployed now and then, and moves to another cluster in the next week: both ends run at once."""
    pods = chance.randrange(5, 80)
    days = [day for day in range(WEEKS * 7) if day == 0 or chance.random() < 0.3]
    for day, until in zip(days, [*days[1:], WEEKS * 7 + 7], strict=True):
        for pod in range(pods):
            start = MONDAY + day * DAY + 10 * HOUR + pod * 20 * SECOND
            yield start, MONDAY + until * DAY + 10 * HOUR
    moved = NEXT + chance.randrange(5) * DAY + chance.randrange(8, 18) * HOUR
    for pod in range(pods):
        # Started there, and once more with the right settings.
        for again in (0, 12 * MINUTE):
            start = moved + again + pod * 3 * SECOND
            yield start, END


def scaling(chance: Random) -> Iterator[Life]:
    """Instances by the load of the hour."""
    base, most = chance.randrange(1, 10), chance.randrange(3, 40)
    for day in range((WEEKS + 1) * 7):
        busy = chance.uniform(0.6, 1.1) * (1.0 if day % 7 < 5 else 0.4)
        for _ in range(round(most * busy)):
            start = MONDAY + day * DAY + round(chance.gauss(10, 2) * HOUR)
            yield start, start + round(chance.uniform(2, 8) * HOUR)
    for _ in range(base):
        yield MONDAY, END


STORIES: tuple[Callable[[Random], Iterator[Life]], ...] = (growth, batch_days, migration, scaling)


def table_of(user: str, lives: list[Life]) -> pa.Table:
    count = len(lives)
    begun, ended = zip(*lives, strict=True)
    told = {
        "user": [user] * count,
        "at_ms": begun,
        "healthy": [True] * count,
        "transactional": [False] * count,
        "refusals": [0] * count,
        "address": [None] * count,
        "requests": [10] * count,
        "records": [100] * count,
        "partitions": [1] * count,
        "first_ms": begun,
        "last_ms": ended,
    }
    return pa.table(told, INPUT)


def refused_share(users: int, seed: int) -> float:
    """Return the share of the ids of the next week that the cap of the weeks before refuses."""
    chance = Random(seed)
    stories = {
        f"{number:04}": sorted(life for life in STORIES[number % len(STORIES)](chance) if life[0] < END)
        for number in range(users)
    }
    before = [
        table_of(user, [(begun, min(ended, NEXT)) for begun, ended in lives if begun < NEXT])
        for user, lives in stories.items()
    ]
    course = Course(SETTINGS, MONDAY, NEXT - 7 * DAY, NEXT)
    ids, refused = 0, 0
    for row in measured(pa.concat_tables(before), course, lambda _: None):
        came = np.array([begun for begun, _ in stories[row["user"]]])
        next_week = came[came >= NEXT]
        one = np.ones(len(next_week), np.int64)
        arrivals = Arrivals(next_week, one.astype(bool), one, one)
        ids += len(next_week)
        refused += cost_at(row["cap_rate"], SETTINGS, arrivals).refused_healthy_ids
    assert ids > 50 * users
    return refused / ids


def test_the_next_week_of_users_that_change_refuses_at_most_one_healthy_id_in_1000() -> None:
    assert refused_share(24, seed=1) <= 0.001


def test_it_holds_for_many_users() -> None:
    assert refused_share(1_200, seed=2) <= 0.001


def test_without_headroom_and_room_for_a_rollback_it_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen.Need, "rates", lambda need, _: (need.least_rate, need.least_healthy_rate))
    assert refused_share(24, seed=1) > 0.01
