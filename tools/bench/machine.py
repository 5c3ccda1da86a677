"""Origin of a result: processor, cores, kernel, versions; and which process may run on which core."""

import os
import platform
import re
import resource
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from tools.bench.process_cost import ENDED, threads

OPEN_FILES_SLACK = 600
"""Files that a process has open beside its connections; a broker also its logs and their indexes."""


def allows(limit: int, wanted: int) -> bool:
    """Return whether a limit of open files allows `wanted` of them."""
    return limit == resource.RLIM_INFINITY or limit >= wanted


@dataclass(frozen=True, slots=True)
class Machine:
    """One line of every table."""

    cpu: str
    cores: int
    memory_gib: int
    kernel: str
    python: str
    uvloop: str
    kafka: str
    haproxy: str | None
    commit: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def describe(kafka: str) -> Machine:
    """Return this machine, with the Kafka version that is given."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return Machine(
        cpu=model[1].strip() if model else platform.machine(),
        cores=os.cpu_count() or 0,
        memory_gib=round(int(memory[1]) / 2**20) if memory else 0,
        kernel=platform.release(),
        python=platform.python_version(),
        uvloop=metadata.version("uvloop"),
        kafka=kafka,
        haproxy=_first_match(["haproxy", "-v"], r"version (\S+)"),
        commit=_first_match(["git", "rev-parse", "--short=12", "HEAD"], r"(\w+)") or "unknown",
    )


def _first_match(command: list[str], pattern: str) -> str | None:
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return None
    found = re.search(pattern, output)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Placement:
    """Processors for the process measured and for all else; None: wherever the kernel likes."""

    proxy: set[int] | None
    rest: set[int] | None


def placement(pinned: bool) -> Placement:
    """The proxy alone on the last core, broker and load on the others."""
    cores = sorted(os.sched_getaffinity(0))
    if not pinned or len(cores) < 2:
        return Placement(None, None)
    return Placement({cores[-1]}, set(cores[:-1]))


def pin(pid: int, cpus: set[int] | None) -> None:
    """Move all threads of a process and of its children that are alive."""
    for task in threads(pid) if cpus else ():
        with suppress(*ENDED):
            os.sched_setaffinity(int(task.name), cpus or set())


def come_first(pid: int, nice: int) -> None:
    """Give a process and its session this nice value (below 0: root only)."""
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    # With autogroups a nice value counts within a session only; between sessions the group's own counts.
    autogroup = Path(f"/proc/{pid}/autogroup")
    if autogroup.exists():
        autogroup.write_text(str(nice))
