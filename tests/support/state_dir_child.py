"""A process that keeps a state directory as fast as a gateway would, until it is killed.

It appends numbered lines, some in every turn of its loop, and takes snapshots at the given pace; a snapshot says
how many lines are in it (the seed of its one user). Beside that it writes into shared memory, which outlives it,
when each line was appended: so whoever killed it knows what it may have lost.

    python -m tests.support.state_dir_child DIRECTORY TIMES_FILE SECONDS_BETWEEN_SNAPSHOTS
"""

import asyncio
import json
import mmap
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from pidgate.gateway.state.state_dir import Loaded, StateDir
from pidgate.quota.user_state import UserState

STAMP: Final = Struct("<qq")
"""Number of a line, and when it was appended (monotonic ns)."""

MOST_LINES: Final = 400_000
TIMES_BYTES: Final = MOST_LINES * STAMP.size
LINES_PER_TURN: Final = 20
_FILLER: Final = "f" * 500


def lines_in(loaded: Loaded) -> tuple[int, list[int]]:
    """Up to which number the snapshot holds everything (0: no snapshot), and the numbers in the journals."""
    covered = loaded.users[0].seed if loaded.users else 0
    return covered, [int(json.loads(value)["n"]) for value in loaded.journal]


async def keep(directory: Path, times: mmap.mmap, pause_s: float) -> None:
    state_dir = StateDir(directory)
    covered, numbers = lines_in(await asyncio.to_thread(state_dir.load))
    first = max([covered, *numbers]) + 1
    appended = first - 1

    def everything() -> Iterator[UserState]:
        yield UserState("all lines up to the seed", appended)

    async def save_for_ever() -> None:
        while True:
            await asyncio.sleep(pause_s)
            await state_dir.save(everything(), written_wall_ms=1)

    saving = asyncio.get_running_loop().create_task(save_for_ever())
    print("ready", flush=True)
    while not saving.done() and appended - first < MOST_LINES - LINES_PER_TURN:
        for _ in range(LINES_PER_TURN):
            appended += 1
            state_dir.append(b'{"n":%d,"filler":"%s"}' % (appended, _FILLER.encode()))
            STAMP.pack_into(times, (appended - first) * STAMP.size, appended, time.monotonic_ns())
        await asyncio.sleep(0.0002)
    raise SystemExit("nobody killed it")


def main() -> None:
    with open(sys.argv[2], "r+b") as file:
        asyncio.run(keep(Path(sys.argv[1]), mmap.mmap(file.fileno(), TIMES_BYTES), float(sys.argv[3])))


if __name__ == "__main__":
    main()
