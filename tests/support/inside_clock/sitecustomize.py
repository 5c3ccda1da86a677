"""A wall clock that a test moves, inside each process of a gateway (tests/support/moved_clock.py).

Python imports a module of this name at its start, from a folder that the test puts on the path; the gateway knows
nothing of it.
"""

import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

FILE = "PIDGATE_TESTS_CLOCK"
LAYOUT = struct.Struct("<q")
"""ns by which the clock is ahead."""


def _moved(real_ns: Callable[[], int], path: str) -> Callable[[], int]:
    with Path(path).open("rb") as file:
        ahead = mmap.mmap(file.fileno(), LAYOUT.size, access=mmap.ACCESS_READ)
    return lambda: real_ns() + int(LAYOUT.unpack_from(ahead)[0])


if FILE in os.environ:
    time.time_ns = _moved(time.time_ns, os.environ[FILE])
