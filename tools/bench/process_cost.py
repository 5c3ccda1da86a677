"""Cost of a process and its children so far, read from /proc (Linux).

CPU time comes from schedstat in nanoseconds: the ticks of /proc/PID/stat are 10 ms and too coarse for a run
of a few seconds.
"""

import os
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ENDED: Final = (FileNotFoundError, ProcessLookupError)
"""Raised of what ends between being listed and being looked at: threads of a JVM do so all the time."""


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """Sums over a process, its threads and its children since they started."""

    cpu_ns: int
    """Time on a processor, user and system."""
    wakeups: int
    """Voluntary context switches: how often it went to sleep and was woken."""
    rss_bytes: int
    """Resident memory now."""

    def __sub__(self, earlier: "ProcessCost") -> "ProcessCost":
        return ProcessCost(
            self.cpu_ns - earlier.cpu_ns, self.wakeups - earlier.wakeups, self.rss_bytes - earlier.rss_bytes
        )


def cost_of(pid: int) -> ProcessCost:
    """The cost of `pid` with all its descendants that are alive; FileNotFoundError when it is gone."""
    cpu_ns = wakeups = rss_bytes = 0
    for member in family(pid):
        process = Path(f"/proc/{member}")
        # Whom it has started may end while it is looked at; it itself has to be there.
        with nullcontext() if member == pid else suppress(*ENDED):
            rss_bytes += _status(process, "VmRSS") * 1024
            for task in (process / "task").iterdir():
                with suppress(*ENDED):
                    cpu_ns += int((task / "schedstat").read_text().split()[0])
                    wakeups += _status(task, "voluntary_ctxt_switches")
    return ProcessCost(cpu_ns, wakeups, rss_bytes)


def cost_of_watched(pid: int | None) -> ProcessCost:
    """Return the cost of a process; nothing without one."""
    return cost_of(pid) if pid else ProcessCost(0, 0, 0)


def waited_for_core_ns(pid: int) -> int:
    """Return how long the threads of `pid` and its descendants were ready to run and did not get a processor."""
    waited_ns = 0
    for task in threads(pid):
        with suppress(*ENDED):
            waited_ns += int((task / "schedstat").read_text().split()[1])
    return waited_ns


def threads(pid: int) -> list[Path]:
    """Return the threads of `pid` and its descendants, as folders below /proc; each may end while it is looked at.

    FileNotFoundError when `pid` is gone.
    """
    found: list[Path] = []
    for member in family(pid):
        with nullcontext() if member == pid else suppress(*ENDED):
            found += Path(f"/proc/{member}/task").iterdir()
    return found


def family(pid: int) -> list[int]:
    """`pid` and its descendants, by who is whose parent: threads come and go too fast to be asked."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(*ENDED):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    members = [pid]
    for member in members:
        members += children.get(member, [])
    return members


def _status(process: Path, key: str) -> int:
    """A number of /proc/PID/status; 0 where it is missing: what has ended and was not waited for has no memory."""
    for line in (process / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    return 0


def machine_busy_s() -> float:
    """Seconds that all processors of the machine have been busy (or stolen) since boot."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
