"""The probe inside each process of an attacked gateway: how long its event loop was busy, at most.

Python imports a module of this name at its start, from a folder that `Inside` puts on the path; the gateway knows
nothing of it. A timer of a few milliseconds sees how late it is, and how much CPU time its thread had since the last
time: the smaller of the two is what work on the loop made everybody else wait. On a busy machine the first alone
would count the time in which the process had no core.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import mmap
import os
import struct
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple

DIRECTORY: Final = "PIDGATE_TESTS_PROBE"
"""Environment variable: the folder in which each process keeps what it measures, in a file named for its id."""
PERIOD_S: Final = 0.005


class Measured(NamedTuple):
    """The longest stay of the loop in its callbacks, in CPU time and by the clock; ticks; this measuring's number."""

    longest_cpu_s: float = 0.0
    longest_s: float = 0.0
    ticks: float = 0.0
    number: float = 0.0


_MEASURED: Final = struct.Struct("<4d")
_WANTED: Final = struct.Struct("<d")
_BYTES: Final = _MEASURED.size + _WANTED.size


class Cell:
    """What one process measures, in a file that both sides map; each part of it has one writer.

    Were there one that both write, a process between reading and writing it would undo what the test wrote meanwhile.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _BYTES)

    @staticmethod
    def create(path: Path) -> Cell:
        """Return the one of this process, at the given new file."""
        path.write_bytes(bytes(_BYTES))
        return Cell(path)

    @property
    def measured(self) -> Measured:
        """What the process writes."""
        return Measured(*_MEASURED.unpack_from(self._map))

    @measured.setter
    def measured(self, measured: Measured) -> None:
        _MEASURED.pack_into(self._map, 0, *measured)

    @property
    def wanted(self) -> float:
        """Number of the measuring that the test wants: what it writes."""
        (number,) = _WANTED.unpack_from(self._map, _MEASURED.size)
        return float(number)

    @wanted.setter
    def wanted(self, number: float) -> None:
        _WANTED.pack_into(self._map, _MEASURED.size, number)


class Probe:
    """Measures the loop that it is started in, for as long as that runs."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._loop = asyncio.get_running_loop()
        self._trim = ctypes.CDLL(None).malloc_trim

    def start(self) -> None:
        self._due_s = time.monotonic() + PERIOD_S
        self._cpu_s = time.thread_time()
        self._loop.call_later(PERIOD_S, self._tick)

    def _tick(self) -> None:
        late_s = max(0.0, time.monotonic() - self._due_s)
        busy_s = min(late_s, time.thread_time() - self._cpu_s)
        before = self._cell.measured
        wanted = self._cell.wanted
        if before.number != wanted:
            # What the last attack left free must not serve the next one unseen.
            gc.collect()
            self._trim(0)
            before, late_s, busy_s = Measured(number=wanted), 0.0, 0.0
        self._cell.measured = Measured(
            max(before.longest_cpu_s, busy_s), max(before.longest_s, late_s), before.ticks + 1, wanted
        )
        self.start()


def install(directory: Path) -> None:
    """Have every asyncio.Runner (uvloop.run uses one) start a probe beside what it runs."""
    run: Callable[..., Any] = asyncio.Runner.run

    def probed_run(runner: asyncio.Runner, main: Coroutine[Any, Any, Any], **options: Any) -> Any:
        async def probed() -> Any:
            Probe(Cell.create(directory / str(os.getpid()))).start()
            return await main

        return run(runner, probed(), **options)

    asyncio.Runner.run = probed_run  # type: ignore[method-assign,assignment]


if DIRECTORY in os.environ:
    install(Path(os.environ[DIRECTORY]))
