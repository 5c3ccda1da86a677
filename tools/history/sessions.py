"""A gateway's view of a life: connection times, gateway process, and time of first use.

A life that spans a restart of the gateway has one session before and one after.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools.history.lives import activity
from tools.history.shard import Day
from tools.history.world import HOUR_MS, World

_LAST_MOMENTS_MS = 200
_SETTLED_MS = 10_000
NEVER = np.iinfo(np.int64).max
MS = NDArray[np.int64]


@dataclass
class Sessions:
    """`life`: index of the day's lives.

    `per_ms`: request rate; `exactly`: total requests reported at the end, or -1.

    `first_use_ms`: NEVER if nothing is sent. `is_first`, `is_last`: of its life.
    """

    life: NDArray[np.int64]
    gateway: NDArray[np.int64]
    incarnation: NDArray[np.int64]
    begin_ms: MS
    end_ms: MS
    is_first: NDArray[np.bool_]
    is_last: NDArray[np.bool_]
    first_use_ms: MS
    per_ms: NDArray[np.float64]
    exactly: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.life)


@dataclass(frozen=True)
class Incarnation:
    """One process of a gateway."""

    gateway: int
    name: str
    begin_ms: int
    end_ms: int


def incarnations(world: World, shard: int, day: int) -> list[Incarnation]:
    """Return the incarnations of one day and shard, by gateway and time."""
    found = []
    for gateway in range(world.gateways):
        for number, (begin_ms, end_ms) in enumerate(world.segments(gateway, day)):
            word = np.random.SeedSequence([world.seed, gateway, day, number, 77]).generate_state(2)
            run = "".join(f"{one:08x}" for one in word)[:12]
            name = run if world.shards == 1 else f"{run}-{shard + 1}"
            found.append(Incarnation(gateway, name, begin_ms, end_ms))
    return found


def sessions(day: Day, processes: list[Incarnation], roll: np.random.Generator) -> Sessions:
    """Return the sessions of a day, in the order of lives within each process."""
    gateway_of = _gateways(day)
    served = [_served(day, gateway_of, process) for process in processes]
    life = np.concatenate(served)
    incarnation = np.repeat(np.arange(len(processes)), [len(one) for one in served])
    gateway, from_ms, until_ms = (
        np.array([getattr(process, name) for process in processes])[incarnation]
        for name in ("gateway", "begin_ms", "end_ms")
    )
    lives = day.lives
    start_ms, stop_ms = lives.start_ms[life], lives.end_ms[life]
    is_first, is_last = start_ms >= from_ms - _LAST_MOMENTS_MS, stop_ms < until_ms
    # Clients reconnect within seconds of the restart.
    back_ms = from_ms + 300 + (day.pod_key[life] % np.uint64(1_500)).astype(np.int64)
    begin_ms = np.where(is_first, np.maximum(start_ms, from_ms + 100), back_ms)
    end_ms = np.maximum(np.where(is_last, stop_ms, until_ms - 5), begin_ms + 2)
    pace = day.of_deployment("requests_per_hour")[life]
    busy_hour, evenness = day.of_deployment("busy_hour")[life], day.of_deployment("evenness")[life]
    busy = activity(day.world, busy_hour, evenness, (begin_ms + end_ms) // 2)
    length = np.maximum(1, end_ms - begin_ms)
    in_all = lives.requests[life]
    per_ms = np.where(in_all < 0, pace * np.maximum(busy, 0.02) / HOUR_MS, in_all / length)
    # Clients create a producer on first use; a reconnected one may be idle first.
    wait_ms = roll.exponential(1, len(life)) / np.maximum(per_ms, 1e-12)
    wait_ms = np.where(is_first, 20 + roll.exponential(30, len(life)), wait_ms)
    # Every earlier id was used at least once on the first day.
    wait_ms = np.where(
        is_installed(day, life, begin_ms),
        np.minimum(wait_ms, length * roll.uniform(0, 0.9, len(life))),
        wait_ms,
    )
    first_use_ms = np.where(
        (wait_ms < length - 1) | is_first, begin_ms + np.minimum(wait_ms, length - 1).astype(np.int64), NEVER
    )
    first_use_ms = np.where(in_all == 0, NEVER, first_use_ms)
    return Sessions(
        life=life,
        gateway=gateway,
        incarnation=incarnation,
        begin_ms=begin_ms,
        end_ms=end_ms,
        is_first=is_first,
        is_last=is_last,
        first_use_ms=first_use_ms,
        per_ms=per_ms,
        exactly=in_all,
    )


def is_installed(day: Day, life: NDArray[np.int64], begin_ms: MS) -> NDArray[np.bool_]:
    """Return whether the producer is older than the gateways, which then first see it in mid-life."""
    came_before = day.lives.opens[life] & (day.lives.start_ms[life] < day.world.begin_ms)
    return np.asarray(came_before & (begin_ms < day.world.begin_ms + _SETTLED_MS))


def _gateways(day: Day) -> NDArray[np.int64]:
    """Return each life's gateway, by pod; enforced users stay on one, whose state sees all their ids."""
    keeps = np.array([user.rate_per_hour is not None for user in day.users])[day.user_place]
    by_pod = (day.pod_key % np.uint64(day.world.gateways)).astype(np.int64)
    return np.where(keeps, day.lives.user % day.world.gateways, by_pod)


def _served(day: Day, gateway_of: NDArray[np.int64], process: Incarnation) -> NDArray[np.int64]:
    """Return the lives that a process serves. Arrivals in its last moments go to the next one."""
    lives, from_ms = day.lives, process.begin_ms
    overlaps = (lives.start_ms < process.end_ms - _LAST_MOMENTS_MS) & (lives.end_ms > from_ms + 2_000)
    begins = overlaps & (lives.start_ms >= from_ms - _LAST_MOMENTS_MS)
    return np.flatnonzero((gateway_of == process.gateway) & np.where(lives.is_lasting, overlaps, begins))
