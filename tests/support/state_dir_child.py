"""A process that saves a state directory as fast as it can, until it is killed.

Its one user has a seed that grows all the time. Beside each save it writes the seed and the time into shared memory,
which outlives it: its killer knows which saves were complete.

    python -m tests.support.state_dir_child DIRECTORY SAVED_FILE SECONDS_BETWEEN_SAVES
"""

import asyncio
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from pidgate.gateway.state.state_dir import About, StateDir
from pidgate.quota.restoring import UserState
from tests.support.state_dirs import layer

SAVED: Final = Struct("<qq")
"""The seed of the last complete save, and that of the save that was begun last."""


def users(seed: int) -> Iterator[UserState]:
    """Of two megabytes, so that a kill hits the writing."""
    for number in range(8):
        yield UserState(f"user-{number}", (seed, 0), (layer(seed % 200, 2_000_000),))


async def keep(directory: Path, saved: mmap.mmap, pause_s: float) -> None:
    state_dir = StateDir(directory)
    loaded = await asyncio.to_thread(state_dir.load)
    seed = loaded.users[0].state.secrets[0] if loaded.users else 0
    print("ready", flush=True)
    while True:
        seed += 1
        before, _ = SAVED.unpack_from(saved)
        SAVED.pack_into(saved, 0, before, seed)
        if not await state_dir.save(lambda changed_only, seed=seed: users(seed), About(1, {})):  # type: ignore[misc]
            raise SystemExit("could not be saved")
        SAVED.pack_into(saved, 0, seed, seed)
        await asyncio.sleep(pause_s)


def main() -> None:
    with open(sys.argv[2], "r+b") as file:
        asyncio.run(keep(Path(sys.argv[1]), mmap.mmap(file.fileno(), SAVED.size), float(sys.argv[3])))


if __name__ == "__main__":
    main()
