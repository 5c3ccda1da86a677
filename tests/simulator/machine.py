"""The machine under simulated gateways: clocks, chance, a disk, and what they log.

    with Machine(seed) as machine:
        machine.loop.run(main())

Inside, the gateway's doors to the machine lead here: gateway/clock.py's clocks are the loop's, `outside` gives ports of
the simulated network and seeded chance, `directory` lies in memory. Log lines are kept; one that shows a mistake of
the gateway's fails the run.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Self

import pytest
import structlog

from pidgate.gateway import clock
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event
from pidgate.gateway.process.outside import Close, Outside
from pidgate.gateway.process.port_lock import PortLocks
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.version import is_compiled
from tests.simulator.lanes import ModelLanes
from tests.simulator.loop import SimulatedLoop
from tests.simulator.process import CURRENT, Process
from tests.support.native_core import built

_MEMORY: Final = Path("/dev/shm")
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""Hardly one in a run: they take a tenth of its time otherwise."""
MISTAKES: Final = frozenset({Event.UNEXPECTED_ERROR})
"""Lines that no schedule may bring about."""


class Line(NamedTuple):
    """A log line, of whose process it is."""

    at_s: float
    process: str
    event: str
    fields: dict[str, Any]


async def _close_nothing() -> None:
    """The admin site is left out: HTTP is no part of what is simulated."""


def _always_has_a_core(_late_s: float) -> float:
    return 0.0


def _not_counted() -> int:
    return 0


async def _no_site(*_: object) -> Close:
    return _close_nothing


class _NoLocks(PortLocks):
    def hold(self, ports: Sequence[int], fleet: object) -> None:
        """Lock nothing: all gateways of a simulation belong to one fleet."""


class Machine:
    """One run's; `lines` are what was logged. `at_exit`: what is called once nothing runs any more.

    `patches` are undone before that.
    """

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.loop = SimulatedLoop(seed)
        self.lines: list[Line] = []
        self.directory = Path()
        self.at_exit: list[Callable[[], object]] = []
        self.carried: Counter[str] = Counter()
        """What lanes have done, and what was done to them."""
        self._starts: dict[str, int] = {}
        self._processors: list[Any] = []
        self._before: list[Any] = []
        self._gc_before = gc.get_threshold()
        self.patches = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        self.directory = Path(
            tempfile.mkdtemp(prefix="pidgate-sim-", dir=_MEMORY if _MEMORY.is_dir() else None)
        )
        self._gc_before = gc.get_threshold()
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        loop = self.loop
        if is_compiled():
            # Compiled, it asks the module itself.
            self.patches.setattr(time, "monotonic", loop.time)
            self.patches.setattr(time, "time_ns", loop.wall_ns)
        else:
            self.patches.setattr(clock, "time", SimpleNamespace(monotonic=loop.time, time_ns=loop.wall_ns))
        # In place: loggers that were used before keep this very list.
        self._processors = structlog.get_config()["processors"]
        self._before = self._processors[:]
        self._processors[:] = [self._keep]
        return self

    def __exit__(self, *_: object) -> None:
        gc.set_threshold(*self._gc_before)
        self._processors[:] = self._before
        self.patches.undo()
        if not self.loop.is_closed():
            self.loop.close()
        for close in self.at_exit:
            close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def outside(self, process: Process, own_client: Callable[[Settings], OwnClient]) -> Outside:
        """Return the outside of a process that starts."""
        number = self._starts[process.name] = self._starts.get(process.name, 0) + 1
        return Outside(
            bind=self.loop.network.bind,
            port_locks=_NoLocks,
            random_bits=Random(f"{self.seed}/{process.name}/{number}").getrandbits,
            own_client=own_client,
            open_admin=_no_site,
            without_core_s=_always_has_a_core,
            tasks=_not_counted,  # asyncio looks through those of all loops there were
            look_up=self._look_up,
            lane_extension=lambda: self._lanes_of(process, number),
        )

    def _lanes_of(self, process: Process, number: int) -> ModelLanes | None:
        native = built()
        if native is None:
            return None
        random = Random(f"{self.seed}/{process.name}/{number}/lanes")
        lanes = ModelLanes(self.loop, process, native, random, self.carried)
        self.at_exit.append(lanes.free)
        return lanes

    async def _look_up(self, host: str) -> Sequence[str]:
        self.loop.network.resolve(host)
        return [host]

    def logged(self, event: Event) -> list[Line]:
        """Return the lines of an event."""
        return [line for line in self.lines if line.event == event]

    def _keep(self, _logger: object, _method: str, line: MutableMapping[str, Any]) -> Any:
        process = CURRENT.get()
        fields = dict(line)
        event = str(fields.pop("event"))
        name = "" if process is None else process.name
        self.lines.append(Line(self.loop.time(), name, event, fields))
        if event in MISTAKES:
            self.loop.failures.append(f"{name} logged {event}: {fields}")
        raise structlog.DropEvent
