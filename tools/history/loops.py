"""Producers that live seconds or minutes, generated per day: CronJobs, crash loops, a producer per batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pidgate.findings.patterns import Pattern
from tools.history.cast import Deployment, User
from tools.history.lives import CLIENT, RESET, Lives, activity, chosen, lives_of, together
from tools.history.world import DAY_MS, HOUR_MS, MINUTE_MS, World, dice

_BACKOFF_MS, _LONGEST_BACKOFF_MS, _FORGIVEN_MS = 10_000, 300_000, 600_000
"""Kubernetes' CrashLoopBackOff: 10 s, doubled to 5 minutes, reset after 10 minutes of running."""
_CUT = 0.1
"""Share of dying processes whose connections are reset: the kernel closes them unless data was unread."""
_MANY = 1_000_000


def of_day(world: World, user: User, day: int) -> Lives:
    """Return all lives of the user that begin on the day and are generated per day, unsorted."""
    midnight_ms = world.midnight_ms(day)
    made = [
        _LOOPS[deployment.pattern](
            world, deployment, day, dice(world.seed, "day", day, user.number, deployment.number)
        )
        for deployment in user.deployments
        if deployment.pattern in _LOOPS and deployment.begin_day < day + 1
    ]
    lives = together(made)
    begins = np.array([max(midnight_ms, one.begin_ms(world)) for one in user.deployments])
    is_in = (lives.start_ms >= begins[lives.deployment]) & (lives.start_ms < midnight_ms + DAY_MS)
    return chosen(lives, is_in)


def is_crashing(world: World, deployment: Deployment, day: int) -> bool:
    """Return whether the day is in an episode of crashes, which last some days."""
    if deployment.begin_day >= day + 1:
        return False
    episode = (day + deployment.user) // 3
    drawn = dice(world.seed, "episode", deployment.user, deployment.number, episode).random()
    return bool(drawn < deployment.habit["share_of_days"])


def _cron(world: World, deployment: Deployment, day: int, roll: np.random.Generator) -> Lives:
    habit, size = deployment.habit, deployment.processes
    every_ms = int(habit["every_minutes"] * MINUTE_MS)
    # By the clock: the same minute every time.
    offset_ms = (
        int(dice(world.seed, "cron", deployment.user, deployment.number).integers(0, every_ms // MINUTE_MS))
        * MINUTE_MS
    )
    ticks = world.midnight_ms(day) + np.arange(offset_ms, DAY_MS, every_ms)
    starts = (
        np.repeat(ticks, size)
        + 1_500
        + (1_000 * roll.exponential(habit["jitter_s"], len(ticks) * size)).astype(np.int64)
    )
    lengths = (
        1_000
        * np.minimum(habit["lasts_s"], 0.8 * every_ms / 1_000)
        * np.exp(roll.normal(0, 0.5, len(starts)))
    )
    pods = day * _MANY + np.arange(len(starts))
    requests = 1 + roll.poisson(np.minimum(deployment.requests_per_hour * lengths / HOUR_MS, 500))
    return lives_of(deployment, starts, starts + lengths.astype(np.int64) + 200, pods, 1, requests=requests)


def _crashing(world: World, deployment: Deployment, day: int, roll: np.random.Generator) -> Lives:
    if not is_crashing(world, deployment, day):
        return together([])
    habit, parts = deployment.habit, []
    for process in range(deployment.processes):
        shortest_s = 10.0 if habit["kubernetes"] else habit["pause_s"]
        most = int(1.5 * DAY_MS / 1_000 / (habit["lives_s"] * 0.5 + shortest_s)) + 20
        lasted = (1_000 * habit["lives_s"] * np.exp(roll.normal(0, habit["spread"], most))).astype(
            np.int64
        ) + 150
        pauses = _backoff(lasted, roll) if habit["kubernetes"] else _fixed(habit["pause_s"], most, roll)
        begins = roll.integers(0, int(2_000 * habit["lives_s"]) + 10_000) + np.concatenate(
            [[0], np.cumsum(lasted + pauses)[:-1]]
        )
        starts = world.midnight_ms(day) + begins
        rate = deployment.requests_per_hour * lasted / HOUR_MS
        # Some crash before they have sent anything.
        requests = np.where(roll.random(most) < 0.08, 0, 1 + roll.poisson(np.minimum(rate, 5_000)))
        parts.append(
            lives_of(
                deployment,
                starts,
                starts + lasted,
                process,
                1,
                requests=requests,
                close=roll.choice((CLIENT, RESET), most, p=(1 - _CUT, _CUT)),
            )
        )
    return together(parts)


def _backoff(lasted_ms: np.ndarray, roll: np.random.Generator) -> np.ndarray:
    """Return kubelet's back-off before the next start of each life."""
    place = np.arange(len(lasted_ms))
    forgiven = np.maximum.accumulate(np.where(lasted_ms > _FORGIVEN_MS, place, -20))
    doubled = np.minimum(place - forgiven, 6)
    waits = np.minimum(_BACKOFF_MS * 2.0**doubled, _LONGEST_BACKOFF_MS)
    return (waits * roll.uniform(0.95, 1.1, len(waits)) + roll.exponential(1_500, len(waits))).astype(
        np.int64
    )


def _fixed(pause_s: float, number: int, roll: np.random.Generator) -> np.ndarray:
    """Return almost constant pauses, as of systemd or a shell loop."""
    return (1_000 * pause_s * roll.uniform(0.9, 1.3, number)).astype(np.int64)


def _per_batch(world: World, deployment: Deployment, day: int, roll: np.random.Generator) -> Lives:
    habit, parts = deployment.habit, []
    hours = world.midnight_ms(day) + np.arange(24) * HOUR_MS
    busy = activity(world, deployment.busy_hour, deployment.evenness, hours + HOUR_MS // 2)
    for process in range(deployment.processes):
        # Work is uneven even within the daily curve.
        counts = roll.poisson(habit["per_hour"] * busy * np.exp(roll.normal(-0.1, 0.45, 24)))
        starts = np.sort(np.repeat(hours, counts) + roll.integers(0, HOUR_MS, counts.sum()))
        lasted = (habit["lasts_ms"] * np.exp(roll.normal(0, 0.5, len(starts)))).astype(np.int64) + 15
        n = day * int(habit["per_hour"] * 24) + np.arange(len(starts)) + 1
        requests = np.maximum(1, roll.poisson(habit["requests"], len(starts)))
        parts.append(lives_of(deployment, starts, starts + lasted, process, n, requests=requests))
    return together(parts)


_LOOPS: dict[Pattern, Callable[[World, Deployment, int, np.random.Generator], Lives]] = {
    Pattern.CRON_JOB: _cron,
    Pattern.RESTART_LOOP: _crashing,
    Pattern.PRODUCER_PER_BATCH: _per_batch,
}
