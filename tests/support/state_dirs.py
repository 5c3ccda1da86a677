"""Users as a snapshot holds them, and a state directory with two generations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pidgate.gateway.state.state_dir import About, Loaded, StateDir
from pidgate.quota.entities import unidentified
from pidgate.quota.layered_filter import LayerState
from pidgate.quota.restoring import BucketState, TransactionalIdsState, UserState


def layer(fill: int, bits: int = 203, *, transactional: bool = False) -> LayerState:
    """A layer whose bits are all `fill`; `bits` is no multiple of 8 unless asked for."""
    return LayerState(
        design_count=100,
        bits=bits,
        hashes=14,
        count=90 + fill,
        newest_of=80,
        slice_age_ms=-3_600_000,
        used_age_ms=fill,
        data=bytes([fill]) * ((bits + 7) // 8),
        transactional=transactional,
    )


def users(number: int) -> list[UserState]:
    """Different for each number; one unidentified, one with an odd name, one without layers."""
    names = TransactionalIdsState(2**128 - number, (layer(4, 80),), BucketState(number, 1_000, 5), 3)
    layers = (layer(1), layer(2, transactional=True))
    return [
        UserState(
            "alice", (number, 2**128 - 1), layers, BucketState(-5, 3_600_000, 100_000, number), 7, names
        ),
        UserState(unidentified("GSSAPI"), (2**32 - 1, 0), (layer(3),)),
        UserState('Zoë "\n\ud800 x', (5, 6), (), BucketState(10**18, 1, 1)),
    ]


async def opened(path: Path) -> tuple[StateDir, Loaded]:
    state_dir = StateDir(path)
    return state_dir, await asyncio.to_thread(state_dir.load)


async def save(
    state_dir: StateDir, all_users: Iterable[UserState], about: About, changed: Sequence[UserState] = ()
) -> bool:
    """Save all users, or, into a file that has them, the changed ones."""
    return await state_dir.save(lambda changed_only: iter(changed if changed_only else all_users), about)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a start makes of a directory: its users, each with the time at which it was written."""

    about: About | None
    users: Sequence[tuple[UserState, int]]


NOTHING = Meaning(None, [])


def meaning(path: Path) -> Meaning:
    """Load the directory and let go of it again. Nothing may be raised."""

    async def load() -> Meaning:
        state_dir, loaded = await opened(path)
        await state_dir.close()
        return Meaning(loaded.about, loaded.users)

    return asyncio.run(load())


ABOUTS = [
    About(1, {}),
    About(2, {0: 7, 11: 9}, 99),
    About(3, {0: 8}, None, BucketState(1, 2, 3)),
    About(4, {0: 9}),
]


def written(number: int) -> Meaning:
    """Return what the first `number` saves of `two_generations` mean."""
    about = ABOUTS[number - 1]
    if number % 2:
        return Meaning(about, [(user, about.written_wall_ms) for user in users(number)])
    _, *others = users(number - 1)
    return Meaning(about, [(users(number)[0], number), *((user, number - 1) for user in others)])


def two_generations(path: Path) -> None:
    """Leave snapshot-1 and snapshot-2. Each has a save of all users, and one of alice alone."""

    async def run(first: int) -> None:
        state_dir, _ = await opened(path)
        assert await save(state_dir, users(first), ABOUTS[first - 1])
        assert await save(state_dir, [], ABOUTS[first], users(first + 1)[:1])
        await state_dir.close()

    asyncio.run(run(1))
    asyncio.run(run(3))
