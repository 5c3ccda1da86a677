"""What an attack costs the processes of a gateway: read from the probes inside them, and from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.hostile.inside import sitecustomize
from tests.hostile.inside.sitecustomize import Cell
from tools.sandbox import guard

MiB: Final = 1 << 20
QUIET_WITHIN_S: Final = 60.0
"""A process that is busy for longer has been stopped by the attack."""


@dataclass
class Cost:
    """The largest of all processes; complete when the attack is over."""

    busy_ms: float = 0.0
    """Longest CPU time in which the event loop came to nobody else."""
    late_ms: float = 0.0
    """The same by the clock: shown, never judged."""
    grown_bytes: int = 0
    """Highest resident memory during the attack above that before it."""


class Inside:
    """Give `environment` to the process that is started, then measure."""

    def __init__(self) -> None:
        self._directory = guard.temporary_directory("pidgate-probe-")
        here = str(Path(sitecustomize.__file__).parent)
        path = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment: Mapping[str, str] = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            sitecustomize.DIRECTORY: str(self._directory),
        }

    def close(self) -> None:
        guard.remove_directory(self._directory)

    @property
    def processes(self) -> set[int]:
        """Ids of those that run."""
        return {int(cell.name) for cell in self._directory.iterdir() if is_running(int(cell.name))}

    @contextmanager
    def measuring(self) -> Iterator[Cost]:
        """Measure what is done in the block. Raises AssertionError when a process ends, or never comes to rest."""
        processes = self.processes
        assert processes, "no process with a probe runs"
        cells = {process: Cell(self._directory / str(process)) for process in processes}
        for cell in cells.values():
            cell.wanted += 1
        _until_ticked(cells)
        before = {process: memory_bytes(process, "VmRSS") for process in processes}
        for process in processes:
            Path(f"/proc/{process}/clear_refs").write_text("5")  # VmHWM begins anew
        cost = Cost()
        yield cost
        assert self.processes >= processes, f"processes of the gateway ended: {processes - self.processes}"
        _until_ticked(cells)
        for process, cell in cells.items():
            measured = cell.measured
            cost.busy_ms = max(cost.busy_ms, measured.longest_cpu_s * 1000)
            cost.late_ms = max(cost.late_ms, measured.longest_s * 1000)
            cost.grown_bytes = max(cost.grown_bytes, memory_bytes(process, "VmHWM") - before[process])


def _until_ticked(cells: Mapping[int, Cell]) -> None:
    """Wait until each loop has come round twice: what it had begun is over, and measured."""
    least = {process: _ticks(cell) + 2 for process, cell in cells.items()}
    give_up_s = time.monotonic() + QUIET_WITHIN_S
    for process, cell in cells.items():
        while _ticks(cell) < least[process]:
            assert is_running(process), f"process {process} of the gateway ended"
            assert time.monotonic() < give_up_s, (
                f"process {process} does nothing else for {QUIET_WITHIN_S:g} s"
            )
            time.sleep(sitecustomize.PERIOD_S)


def _ticks(cell: Cell) -> float:
    """Return how often the loop came round in the measuring that is wanted."""
    measured = cell.measured
    return measured.ticks if measured.number == cell.wanted else 0


def is_running(process: int) -> bool:
    """Return whether it runs; False for one that ended and was not waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def memory_bytes(process: int, name: str) -> int:
    """Return VmRSS or VmHWM of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {process} shows no {name}")
