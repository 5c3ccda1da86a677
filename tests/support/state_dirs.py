"""For the tests of state_dir: users as a snapshot holds them, and a directory with two generations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pidgate.gateway.state.state_dir import Loaded, StateDir
from pidgate.quota.entities import unidentified
from pidgate.quota.user_state import BucketState, LayerState, UserState


def layer(fill: int, bits: int = 203) -> LayerState:
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
    )


def users(generation: int) -> list[UserState]:
    """Different for each generation; one unidentified, one with an odd one, one without layers."""
    return [
        UserState("alice", generation, (layer(1), layer(2)), BucketState(-5, 3_600_000, 100_000), 7),
        UserState(unidentified("GSSAPI"), 2**32 - 1, (layer(3),)),
        UserState('Zoë "\n\ud800 x', 5, (), BucketState(10**18, 1, 1)),
    ]


def values(name: str, count: int = 5) -> list[bytes]:
    """Lines as a gateway would append them."""
    return [b'{"line":"%s-%d","filler":"abc"}' % (name.encode(), number) for number in range(count)]


async def opened(path: Path) -> tuple[StateDir, Loaded]:
    state_dir = StateDir(path)
    return state_dir, await asyncio.to_thread(state_dir.load)


async def append_all(state_dir: StateDir, lines: Iterable[bytes]) -> None:
    for line in lines:
        state_dir.append(line)
    await state_dir.flush()


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a start makes of a directory."""

    written_wall_ms: int | None
    users: Sequence[UserState]
    journal: Sequence[bytes]


def meaning(path: Path) -> Meaning:
    """Loads the directory and lets go of it again. Nothing may be raised."""

    async def look() -> Meaning:
        state_dir, loaded = await opened(path)
        found = Meaning(loaded.written_wall_ms, loaded.users, list(loaded.journal))
        await state_dir.close()
        return found

    return asyncio.run(look())


def two_generations(path: Path) -> None:
    """Leaves snapshot-2 (wall time 2) with journal-2 (b) and snapshot-3 (wall time 3) with journal-3 (c)."""

    async def run() -> None:
        state_dir, _ = await opened(path)
        await append_all(state_dir, values("a"))
        assert await state_dir.save(
            users(2), written_wall_ms=2, offsets={0: 7, 11: 9}, grace_until_wall_ms=99
        )
        await append_all(state_dir, values("b"))
        assert await state_dir.save(users(3), written_wall_ms=3, cluster_bucket=BucketState(1, 2, 3))
        await append_all(state_dir, values("c"))
        await state_dir.close()

    asyncio.run(run())
