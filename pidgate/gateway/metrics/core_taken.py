"""Time in which this thread wanted to run and had no core: another thread had it, or the hypervisor.

The first is the run-queue delay of /proc/thread-self/schedstat. The second is the core's steal of /proc/stat, during
which the kernel takes the thread for running. Where neither can be read (not Linux) nothing counts as taken.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

STEAL_FROM_S: Final = 0.005
"""Steal is counted in hundredths of a second, and shows from about here on."""
STEAL_EVERY: Final = 10
"""It is read once in so many calls besides: a page of every core and interrupt is not for ten times a second."""

_PROCESSOR: Final = 36
"""In /proc/PID/stat, behind the name in brackets: the core on which the thread ran last."""
_STEAL: Final = 8
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_LONGEST_BYTES: Final = 64 * 1024
"""Of /proc/stat the lines of all cores; what is behind them is not needed."""


class CoreTaken:
    """Readings since the one before, of the thread that calls first."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._schedstat = _Page(proc / "thread-self" / "schedstat")
        self._stat = _Page(proc / "stat")
        self._own_stat = _Page(proc / "thread-self" / "stat")
        self._waited_ns = self._read_waited_ns()
        self._stolen = self._read_stolen()
        self._calls = 0

    def since_last_s(self, late_s: float) -> float:
        """Return the seconds without a core since the last call, for who came `late_s` late."""
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
        """Ticks by the name of the core."""
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
    """File of /proc that stays open: ten times a second, to open it costs more than to read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def read(self) -> str:
        """Return what it shows now. Raises OSError."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptor)
        return os.pread(self._descriptor, _LONGEST_BYTES, 0).decode("ascii", "replace")
