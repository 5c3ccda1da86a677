"""Producer ids as brokers hand them out (KIP-730): in a row out of blocks of 1,000, which each broker gets in its turn.

Tasks that know nothing of each other must not give one id twice. So each shard of users has two brokers of its own for
processes that last and two for those that do not, and takes every so-many-th block of the day.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pidgate.pipeline.history.world import Times, World

BLOCK = 1_000
BLOCKS_A_DAY = 100_000
LASTING, SHORT = 0, 1


def brokers(world: World) -> range:
    return range(1, 4 * world.shards + 1)


def allocated(
    world: World, roll: np.random.Generator, day: int, shard: int, sort: int, at_ms: Times
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """An id and the broker that gave it for each arrival of one day; arrivals in order of time. Day -1: before."""
    broker_of = roll.integers(0, 2, len(at_ms))
    place = np.zeros(len(at_ms), dtype=np.int64)
    wanted: list[tuple[int, int, int]] = []
    for broker in (0, 1):
        mine = np.flatnonzero(broker_of == broker)
        place[mine] = np.arange(len(mine))
        wanted += [(int(at_ms[one]), broker, number) for number, one in enumerate(mine[::BLOCK])]
    turn = {(broker, number): turn for turn, (_, broker, number) in enumerate(sorted(wanted))}
    most = max((number for _, number in turn), default=0) + 1
    turns = np.zeros((2, most), dtype=np.int64)
    for (broker, number), one in turn.items():
        turns[broker, number] = one
    mine_of_all = 2 * shard + sort
    block = (day + 1) * BLOCKS_A_DAY + turns[broker_of, place // BLOCK] * 2 * world.shards + mine_of_all
    return block * BLOCK + place % BLOCK, 1 + 2 * mine_of_all + broker_of
