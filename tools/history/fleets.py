"""Processes that live minutes to weeks, planned for the whole history: fleets, and producers per error.

Each plan uses the user's own random numbers, so a task for any single day can recompute it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pidgate.findings.patterns import Pattern
from tools.history.cast import Deployment, User
from tools.history.lives import CLIENT, RESET, Lives, activity, lasting, lives_of, together
from tools.history.world import DAY_MS, HOUR_MS, MINUTE_MS, Times, World, dice

_STEP_MS = 5 * MINUTE_MS
_PODS_OF_A_ROLLOUT = 10_000


def planned(world: World, user: User) -> Lives:
    """Return all lives of the user that are planned for the whole history, unsorted."""
    plans = [
        _PLANS[deployment.pattern](
            world, deployment, dice(world.seed, "plan", user.number, deployment.number)
        )
        for deployment in user.deployments
        if deployment.pattern in _PLANS
    ]
    return lasting(world, plans)


def rollouts(world: World, deployment: Deployment) -> Times:
    """Return roll-out times: mostly in working hours, sometimes at night."""
    roll = dice(world.seed, "rollouts", deployment.user, deployment.number)
    begin_ms, end_ms = deployment.begin_ms(world), world.end_ms
    number = roll.poisson(deployment.habit["per_day"] * (end_ms - begin_ms) / DAY_MS)
    times = np.sort(roll.integers(begin_ms, end_ms, number))
    busy = activity(world, deployment.busy_hour, 0.15, times)
    return times[roll.random(number) < np.clip(busy, 0.1, 1)]


def _began_ms(world: World, deployment: Deployment, roll: np.random.Generator) -> int:
    """Return the start: before the history, unless the deployment came later."""
    if deployment.begin_day > 0:
        return deployment.begin_ms(world)
    return world.begin_ms - int(roll.uniform(0.5, 12) * DAY_MS)


def _chain(
    world: World,
    deployment: Deployment,
    roll: np.random.Generator,
    per_day: float,
    *,
    moves: float,
    pause_s: float,
) -> Lives:
    """Return processes that end and restart after a pause; `moves`: share of restarts in a new pod."""
    began_ms, end_ms = _began_ms(world, deployment, roll), world.end_ms
    days = (end_ms - began_ms) / DAY_MS
    parts = []
    for process in range(deployment.processes):
        ends = np.sort(roll.integers(began_ms, end_ms, roll.poisson(per_day * days)))
        pauses = (1_000 * pause_s * np.exp(roll.normal(0, 0.8, len(ends)))).astype(np.int64)
        starts = np.concatenate([[began_ms + roll.integers(0, HOUR_MS)], ends + pauses])
        ends = np.concatenate([ends, [world.end_ms + DAY_MS]])
        pods = process + deployment.processes * np.cumsum(roll.random(len(starts)) < moves)
        kept = deployment.is_transactional and deployment.pattern is not Pattern.RANDOM_TRANSACTIONAL_IDS
        parts.append(
            lives_of(
                deployment,
                starts,
                ends,
                pods,
                1,
                close=roll.choice((CLIENT, RESET), len(starts), p=(0.7, 0.3)),
                identity=process if kept else -1,
                epoch=np.arange(len(starts)) if kept else 0,
            )
        )
    return together(parts)


def _steady(world: World, deployment: Deployment, roll: np.random.Generator) -> Lives:
    rate = 1 / deployment.habit["days_between_failures"]
    return _chain(world, deployment, roll, rate, moves=0.4, pause_s=15)


def _often_started(world: World, deployment: Deployment, roll: np.random.Generator) -> Lives:
    moves = 0.9 if deployment.pattern is Pattern.SHARED_CLIENT_ID else 0.05
    return _chain(world, deployment, roll, deployment.habit["starts_per_day"], moves=moves, pause_s=120)


def _rolling(world: World, deployment: Deployment, roll: np.random.Generator) -> Lives:
    """Replace pods one by one; with a surge the new one starts before the old one stops."""
    size, habit = deployment.processes, deployment.habit
    began = np.array([_began_ms(world, deployment, roll)])
    times = np.concatenate([began, rollouts(world, deployment)])
    apart = roll.exponential(1_000 * habit["seconds_apart"], (len(times), size)) + 500
    starts = (times[:, None] + np.cumsum(apart, axis=1)).astype(np.int64)
    # A roll-out that starts during another one waits for its turn.
    starts = np.maximum.accumulate(starts, axis=0)
    overlap = roll.integers(2_000, 40_000, starts.shape) * (1 if habit["surge"] else -1)
    last = np.full((1, size), world.end_ms + DAY_MS)
    ends = np.concatenate([starts[1:] + overlap[1:], last])
    pods = np.arange(len(times))[:, None] * _PODS_OF_A_ROLLOUT + np.arange(size)
    kept = deployment.is_transactional
    return lives_of(
        deployment,
        starts.ravel(),
        ends.ravel(),
        pods.ravel(),
        1,
        identity=np.broadcast_to(np.arange(size), starts.shape).ravel() if kept else -1,
        epoch=np.repeat(np.arange(len(times)), size) if kept else 0,
    )


def _scaling(world: World, deployment: Deployment, roll: np.random.Generator) -> Lives:
    """Simulate a Horizontal Pod Autoscaler: scale up immediately, down after five minutes of low load."""
    begin_ms = deployment.begin_ms(world)
    times = np.arange(begin_ms, world.end_ms, _STEP_MS)
    if not len(times):
        return together([])
    low, size = int(deployment.habit["low"]), deployment.processes
    load = activity(world, deployment.busy_hour, deployment.evenness, times) / 2
    drift = np.convolve(
        roll.normal(0, deployment.habit["nervousness"], len(times) + 5), np.ones(6) / 2.4, "valid"
    )
    need = np.clip(low + (size - low) * load * np.exp(drift), low, size)
    wanted = np.ceil(np.maximum(need, np.roll(need, 1))).astype(np.int64)
    running = wanted[None, :] > np.arange(size)[:, None]
    edges = np.diff(running.astype(np.int8), axis=1, prepend=0, append=0)
    slots, begins = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    starts = times[begins] + roll.integers(2_000, 90_000, len(begins))
    stops = np.append(times, times[-1] + _STEP_MS)[ends] + roll.integers(1_000, 45_000, len(ends))
    # Processes of the first step started before the history.
    starts = np.where((begins == 0) & (deployment.begin_day == 0), begin_ms - DAY_MS, starts)
    return lives_of(deployment, starts, stops, np.arange(len(slots)), 1)


def _by_hand(world: World, deployment: Deployment, roll: np.random.Generator) -> Lives:
    """Simulate a few manual starts within a day or two."""
    number = int(deployment.habit["lives"])
    starts = deployment.begin_ms(world) + np.sort(
        roll.integers(0, int(DAY_MS * roll.uniform(0.05, 1.5)), number)
    )
    lengths = deployment.habit["lasts_minutes"] * MINUTE_MS * np.exp(roll.normal(0, 0.7, number))
    return lives_of(deployment, starts, starts + lengths.astype(np.int64) + 1_000, 0, np.arange(number) + 1)


def _per_error(world: World, deployment: Deployment, roll: np.random.Generator) -> Lives:
    """Simulate a process with a new producer after each error: few normally, many in an incident."""
    habit = deployment.habit
    began_ms, end_ms = _began_ms(world, deployment, roll), world.end_ms
    parts = []
    for process in range(deployment.processes):
        times, codes = _errors(world, deployment, roll, max(began_ms, world.begin_ms), end_ms)
        starts = np.concatenate([[began_ms], times + roll.integers(5, 2_000, len(times))])
        lingers = roll.exponential(10 * MINUTE_MS, len(times)) * habit["leaks"]
        ends = np.concatenate(
            [times + roll.integers(0, 5, len(times)) + lingers.astype(np.int64), [world.end_ms + DAY_MS]]
        )
        parts.append(
            lives_of(
                deployment,
                starts,
                ends,
                process,
                np.arange(len(starts)) + 1,
                error=np.concatenate([codes, [0]]),
                healthy=np.arange(len(starts)) == 0,
            )
        )
    return together(parts)


def _errors(
    world: World, deployment: Deployment, roll: np.random.Generator, begin_ms: int, end_ms: int
) -> tuple[Times, NDArray[np.int64]]:
    """Return times and pods of errors: random, and dense during broker incidents."""
    habit = deployment.habit
    number = roll.poisson(habit["errors_per_hour"] * max(0, end_ms - begin_ms) / HOUR_MS)
    times = roll.integers(begin_ms, max(end_ms, begin_ms + 1), number)
    busy = activity(world, deployment.busy_hour, deployment.evenness, times)
    found = [times[roll.random(number) < np.clip(busy, 0, 1)]]
    codes = [roll.choice((7, 10, 19, 45, 47), len(found[0]))]
    for incident_begin_ms, incident_end_ms, code in world.incidents:
        length_ms = incident_end_ms - incident_begin_ms
        gaps = roll.exponential(
            1_000 * habit["in_incident_every_s"],
            int(length_ms / 1_000 / habit["in_incident_every_s"] * 1.5) + 1,
        )
        during = incident_begin_ms + np.cumsum(gaps + 300).astype(np.int64)
        during = during[(during < incident_end_ms) & (during >= begin_ms) & (during < end_ms)]
        found.append(during)
        codes.append(np.full(len(during), code))
    times, chosen_codes = np.concatenate(found), np.concatenate(codes)
    order = np.argsort(times, kind="stable")
    return times[order], chosen_codes[order]


_PLANS: dict[Pattern, Callable[[World, Deployment, np.random.Generator], Lives]] = {
    Pattern.STEADY: _steady,
    Pattern.ROLLING_DEPLOYMENT: _rolling,
    Pattern.AUTOSCALING: _scaling,
    Pattern.SHARED_ADDRESS: _often_started,
    Pattern.SHARED_CLIENT_ID: _often_started,
    Pattern.RANDOM_TRANSACTIONAL_IDS: _often_started,
    Pattern.UNKNOWN: _by_hand,
    Pattern.PRODUCER_PER_ERROR: _per_error,
}
