"""A gateway on the simulated machine: one process, or a state owner and workers, with what their supervisor does.

The parts are the real ones (Gateway, Worker); the supervisor's forks are played: it starts the state owner, then the
workers, and starts again whatever has died, after its own waits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final

from pidgate.gateway.config.loading import parse
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.errors import CannotStart
from pidgate.gateway.process import byte_cells, held_notes
from pidgate.gateway.process.server import Gateway
from pidgate.gateway.process.supervisor import FIRST_RESTART_S, HEALTHY_AFTER_S, LONGEST_RESTART_S
from pidgate.gateway.process.worker import Worker
from pidgate.gateway.process.workers import Workers
from pidgate.gateway.quotas.administration import Kept
from pidgate.gateway.quotas.reloading import kept_beside, kept_settings
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.quota.changes import Change
from pidgate.quota.settings import Quotas
from tests.simulator.machine import Machine
from tests.simulator.process import Process

PORT: Final = 9092
"""Bootstrap port of a gateway's one listener; node n has the n-th port after the next."""
_FIRST_NODE_PORT: Final = PORT + 1
FEWEST_CONNECTIONS: Final = 10_000


def node_at(port: int) -> int:
    """Return the broker behind a port of a gateway; no broker's number for the bootstrap port."""
    return port - _FIRST_NODE_PORT


@cache
def _parsed(config: str) -> Settings:
    return parse(config)


def configured(host: str, *brokers: str, **config: Any) -> Settings:
    """Return the settings of config_text."""
    state_dir = config.pop("state_dir", None)
    settings = _parsed(config_text(host, *brokers, **config))
    # Set apart: it is another one in each run, and reading a file takes longer than many a run.
    return settings if state_dir is None else settings.model_copy(update={"state_dir": state_dir})


def config_text(host: str, *brokers: str, **config: Any) -> str:
    """Return the file of a gateway on `host` before these brokers ("host:port"); `config`: top-level keys.

    Without a topic and a directory, unless they are given; enforcing from the first moment.
    """
    quotas: dict[str, Any] = config.pop("quotas", {})
    whole = {
        "cluster": {"bootstrap_servers": list(brokers)},
        "listeners": [
            {
                "bind": f"0.0.0.0:{PORT}",
                "advertise": host,
                "node_ports": {"first": _FIRST_NODE_PORT},
                "authentication": "none",
            }
        ],
        "admin": {"bind": "127.0.0.1:9090"},
        "gateway_id": host,
        "events": {"enabled": False},
        "limits": {"connections": FEWEST_CONNECTIONS},
        **config,
        "quotas": {**quotas, "producer_ids": {"cold_start": "enforce", **quotas.get("producer_ids", {})}},
    }
    return json.dumps(whole)


@dataclass(slots=True)
class Child:
    """One process of a gateway: the only one, its state owner (number 0), or a worker (from 1 on)."""

    name: str
    number: int
    starts: int = 0
    process: Process | None = None
    serving: Gateway | Worker | None = None
    is_listening: bool = False
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)


class SimulatedGateway:
    """`start`; then kill and restart what you like; `drain` ends it.

    In `gateway.children` the processes; those of a gateway with workers are restarted by themselves once they have
    died, that of a gateway without them by `start`.
    """

    def __init__(
        self,
        machine: Machine,
        settings: Settings,
        own_client: Callable[[Settings], OwnClient] = OwnClient.from_settings,
        *,
        file: Path | None = None,
    ) -> None:
        self.host = settings.gateway_id
        self.settings = settings
        self._machine = machine
        self._own_client = own_client
        self._file = file
        self._random = Random(f"{machine.seed}/{self.host}/starts")
        self._runs = 0
        self._socket_path = Path()
        workers = settings.workers if settings.workers > 1 else 0
        names = [f"{self.host}/owner", *(f"{self.host}/worker-{n}" for n in range(1, workers + 1))]
        self.children = [Child(name if workers else self.host, number) for number, name in enumerate(names)]
        self._keeping: list[asyncio.Task[None]] = []

    # ---- as an operator does ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Start, until everything listens. Raises what the gateway raises."""
        self._runs += 1
        if len(self.children) > 1:
            directory = self._machine.directory / f"{self.host}-{self._runs}"
            directory.mkdir()
            self._socket_path = directory / "state.sock"
            samples = self.settings.quotas.bytes.samples
            byte_cells.create(byte_cells.cells_path(self._socket_path), self.settings.workers, samples, 16)
            held_notes.create(held_notes.notes_path(self._socket_path))
        for child in self.children:
            child.starts = 0
            await self._begin(child)
        if len(self.children) > 1:
            loop = self._machine.loop
            self._keeping = [loop.create_task(self._keep(child)) for child in self.children]

    async def drain(self) -> None:
        """End it in good order, as SIGTERM does."""
        for task in self._keeping:
            task.cancel()
        for group in (self.children[1:], self.children[:1]):
            await asyncio.gather(*(self._end(child) for child in group))

    def kill(self, number: int = 0) -> None:
        """Kill the only process, or the state owner (0), or a worker (from 1 on): kill -9."""
        process = self.children[number].process
        if process is not None:
            self._machine.loop.kill(process)

    def kill_all(self) -> None:
        """Kill the whole gateway, supervisor and all."""
        for task in self._keeping:
            task.cancel()
        for child in self.children:
            self.kill(child.number)

    async def change(self, *changes: Change) -> Kept:
        """Change quotas at run time, as the admin site does. Raises NotAllowed, and RuntimeError when it is down."""
        first = self.children[0]
        if first.process is None or not isinstance(first.serving, Gateway):
            raise RuntimeError(f"{first.name} does not run")
        return await first.process.spawn(first.serving._quotas.change(changes))

    @property
    def quotas(self) -> Quotas:
        """Those in force. Raises RuntimeError when it is down."""
        serving = self.children[0].serving
        if not isinstance(serving, Gateway):
            raise RuntimeError(f"{self.host} does not run")
        return serving._quotas.in_force.quotas

    def reload(self) -> None:
        """Have it read its file again, as SIGHUP does."""
        first = self.children[0]
        if first.is_listening and first.process is not None and first.serving is not None:
            first.process.call(first.serving.reload)

    # ---- as the supervisor does ------------------------------------------------------------------------

    @property
    def _run(self) -> str:
        return f"{self.host}{self._runs}"

    def _incarnation(self, child: Child) -> str:
        if child.number:
            return f"{self._run}.w{child.number}-{child.starts}"
        return self._run if child.starts == 1 else f"{self._run}.h{child.starts}"

    async def _begin(self, child: Child) -> None:
        child.starts += 1
        process = self._machine.loop.process(child.name, host=self.host)
        child.process, child.is_listening, child.has_ended = process, False, asyncio.Event()
        process.at_death.append(lambda: self._died(child, process))
        await asyncio.sleep(self._random.uniform(0.01, 0.1))
        await process.spawn(self._serve(child, process))
        child.is_listening = True

    def _died(self, child: Child, process: Process) -> None:
        serving = child.serving
        if isinstance(serving, Gateway) and serving._manager.events.state_dir is not None:
            serving._manager.events.state_dir._lock.release()
        if child.process is process:
            child.is_listening, child.serving, child.process = False, None, None
            child.has_ended.set()

    async def _serve(self, child: Child, process: Process) -> None:
        outside = self._machine.outside(process, self._own_client)
        incarnation = self._incarnation(child)
        if len(self.children) == 1:
            child.serving = Gateway(self.settings, self._file, incarnation=incarnation, outside=outside)
        else:
            path = str(self._socket_path)
            settings = kept_settings(kept_beside(self._socket_path)) or self.settings
            if child.number:
                child.serving = Worker(settings, child.number, path, incarnation, outside)
            else:
                child.serving = Gateway(
                    settings, self._file, incarnation=incarnation, socket_path=path, outside=outside
                )
        self._machine.at_exit.append(partial(_close_files, child.serving))
        await child.serving.start()

    async def _keep(self, child: Child) -> None:
        """Restart it whenever it ends, as Supervisor._keep does."""
        loop = self._machine.loop
        wait_s = FIRST_RESTART_S
        while True:
            began_s = loop.time()
            try:
                if child.process is None:
                    await self._until_listening(child)
                await child.has_ended.wait()
            except CannotStart:
                self.kill(child.number)
            lived = loop.time() - began_s > HEALTHY_AFTER_S or child.starts == 1
            wait_s = FIRST_RESTART_S if lived else min(2 * wait_s, LONGEST_RESTART_S)
            await asyncio.sleep(wait_s)

    async def _until_listening(self, child: Child) -> None:
        """Begin; one that is killed meanwhile never listens."""
        beginning = self._machine.loop.create_task(self._begin(child))
        await asyncio.sleep(0)
        ended = self._machine.loop.create_task(child.has_ended.wait())
        await asyncio.wait([beginning, ended], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if beginning.done():
            beginning.result()
        else:
            beginning.cancel()

    async def _end(self, child: Child) -> None:
        process, serving = child.process, child.serving
        if process is None or serving is None:
            return
        draining = process.spawn(serving.drain())
        ended = self._machine.loop.create_task(child.has_ended.wait())
        await asyncio.wait([draining, ended], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if draining.done():
            draining.result()
        self._machine.loop.kill(process)


def _close_files(serving: Gateway | Worker) -> None:
    """Close and unmap what a process had open: of a real one the kernel does it."""
    if isinstance(serving, Worker):
        cells, held = serving._traffic.byte_quota._cells, serving._traffic._admission.held_beginnings
        if isinstance(cells, byte_cells.ByteCells):
            cells.close()
        if held is not None:
            held._words.release()
        if serving._link._progress._map is not None:
            serving._link._progress._map.close()
        return
    if isinstance(serving.traffic, Workers) and hasattr(serving.traffic, "_progress"):
        serving.traffic._progress._map.close()
    if serving._manager.events.state_dir is not None:
        file = serving._manager.events.state_dir._file
        if file is not None:
            file.close()
