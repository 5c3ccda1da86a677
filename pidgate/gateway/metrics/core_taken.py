"""Time in which this thread was runnable but had no core, because of another thread or the hypervisor.

The first part is the run-queue delay in /proc/thread-self/schedstat. The second is the core's steal time in
/proc/stat, during which the kernel counts the thread as running. Where these files cannot be read (not Linux)
the time is 0.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

STEAL_FROM_S: Final = 0.005
"""Steal is counted in hundredths of a second, so it shows from about this delay on."""
STEAL_EVERY: Final = 10
"""It is also read once in this many calls. The file covers every core and interrupt: too long for ten reads a
second."""

_PROCESSOR: Final = 36
"""Field of /proc/PID/stat, behind the name in brackets: the core on which the thread last ran."""
_STEAL: Final = 8
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_LONGEST_BYTES: Final = 64 * 1024
"""Covers the lines of all cores in /proc/stat; later lines are not needed."""


class CoreTaken:
    """Time without a core since the last reading, for the thread of the first call."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._schedstat = _Page(proc / "thread-self" / "schedstat")
        self._stat = _Page(proc / "stat")
        self._own_stat = _Page(proc / "thread-self" / "stat")
        self._waited_ns = self._read_waited_ns()
        self._stolen = self._read_stolen()
        self._calls = 0

    def since_last_s(self, late_s: float) -> float:
        """Return the seconds without a core since the last call, for a timer that fired `late_s` late."""
        before_ns, self._waited_ns = self._waited_ns, self._read_waited_ns()
        taken_s = (self._waited_ns - before_ns) / 1e9
        self._calls += 1
        if late_s >= STEAL_FROM_S or self._calls % STEAL_EVERY == 0:
            before, self._stolen = self._stolen, self._read_stolen()
            core = self._core()
            taken_s += (self._stolen.get(core, 0) - before.get(core, 0)) / _TICKS_PER_S
        return max(0.0, taken_s)

    def _read_waited_ns(self) -> int:
        with suppress(OSError, IndexError, ValueError):
            return int(self._schedstat.read().split()[1])
        return 0

    def _read_stolen(self) -> dict[str, int]:
        """Return steal ticks by core name."""
        with suppress(OSError, IndexError, ValueError):
            lines = [line.split() for line in self._stat.read().splitlines()]
            return {core: int(fields[_STEAL - 1]) for core, *fields in lines if core.startswith("cpu")}
        return {}

    def _core(self) -> str:
        with suppress(OSError, IndexError):
            stat = self._own_stat.read()
            return "cpu" + stat.rpartition(")")[2].split()[_PROCESSOR]
        return ""


class _Page:
    """A /proc file kept open: ten times a second, opening it would cost more than reading it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def read(self) -> str:
        """Return its current contents. Raises OSError."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptor)
        return os.pread(self._descriptor, _LONGEST_BYTES, 0).decode("ascii", "replace")
