"""The second fleet: users modelled on public reports of clients that burn producer ids, or seem to.

The numbers come from the reports and their software, not from the rules of pipeline/offenders/, which are to
be judged on users not designed for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pidgate.findings.patterns import Pattern
from tools.history.cast import Deployment, User
from tools.history.lives import Lives, lasting, together
from tools.history.reported_clients import REPORTS
from tools.history.world import World, dice

_NAMES = tuple(REPORTS)
_WITH_ANOTHER = 0.3
"""Share of users with a second deployment: one principal for a whole team."""
_TEAMS = (
    "billing",
    "cart",
    "claims",
    "fleet",
    "loans",
    "maps",
    "news",
    "parcel",
    "stream",
    "tickets",
    "video",
)


def user(world: World, number: int) -> User:
    """Return one user of the world. The first ones have one report each, so that all occur."""
    roll = dice(world.seed, "reported user", number)
    drawn = [_NAMES[number]] if number < len(_NAMES) else [_NAMES[roll.integers(len(_NAMES))]]
    if number >= len(_NAMES) and roll.random() < _WITH_ANOTHER:
        drawn.append(_NAMES[roll.integers(len(_NAMES))])
    team = _TEAMS[roll.integers(len(_TEAMS))]
    deployments = tuple(
        _deployment(world, roll, number, place, name, f"{team}-{name.replace('_', '-')}")
        for place, name in enumerate(drawn)
    )
    topics = tuple(f"{team}.{one.replace('_', '-')}" for one in drawn)
    return User(number, f"{team}-{number:04d}", deployments, None, tuple(dict.fromkeys(topics)))


def _deployment(
    world: World, roll: np.random.Generator, user: int, number: int, name: str, stem: str
) -> Deployment:
    report = REPORTS[name]
    low, high = report.processes
    processes = int(roll.integers(low, high + 1) * (world.scale if report.grows else 1) + roll.random())
    return Deployment(
        user=user,
        number=number,
        pattern=report.pattern,
        client_id=report.client_id.replace("{stem}", stem),
        software=report.software,
        processes=max(low, processes),
        addresses=report.addresses,
        is_transactional=report.is_transactional,
        begin_day=0.0,
        requests_per_hour=float(np.exp(roll.uniform(np.log(30), np.log(20_000)))),
        records_per_request=float(np.exp(roll.uniform(0, np.log(200)))),
        partitions=int(roll.integers(1, 25)),
        busy_hour=float(roll.uniform(9, 20)),
        evenness=float(roll.uniform(0.1, 0.9)),
        report=name,
    )


def planned(world: World, user: User) -> Lives:
    """Return all lives of the user, unsorted."""
    made = [
        REPORTS[one.report].lives(world, one, dice(world.seed, "reported lives", user.number, one.number))
        for one in user.deployments
    ]
    return lasting(world, made)


def of_day(world: World, user: User, day: int) -> Lives:
    """Return no lives: the plan has all of them."""
    return together([])


def patterns(world: World, user: User) -> set[Pattern]:
    """Return the visible patterns of the user in these days."""
    lives = planned(world, user)
    begun: Sequence[int] = np.unique(lives.deployment[lives.start_ms >= world.begin_ms]).tolist()
    shown = {one.pattern for one in user.deployments if one.number in begun}
    there = {Pattern.STEADY for one in user.deployments if one.number not in begun and not one.is_harmful}
    return shown | there or {Pattern.UNKNOWN}
