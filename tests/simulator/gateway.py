"""A gateway on the simulated machine: the real Gateway in a simulated process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final

from pidgate.gateway.config.loading import parse
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.process.server import Gateway
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.quotas.administration import Kept
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


class SmallTables(Settings):
    """Settings with smaller tables of the producer id quota, which a reload keeps."""

    queue: int
    sticky_entries: int

    def to_quotas(self) -> Quotas:
        quotas = super().to_quotas()
        ids = replace(quotas.producer_ids, queue=self.queue, sticky_entries=self.sticky_entries)
        return replace(quotas, producer_ids=ids)


def configured(host: str, *brokers: str, tables: tuple[int, int] | None = None, **config: Any) -> Settings:
    """Return the settings of config_text, with `tables`: sizes of the queue and of the refusal entries."""
    state_dir = config.pop("state_dir", None)
    settings = _parsed(config_text(host, *brokers, **config))
    if tables is not None:
        queue, sticky_entries = tables
        settings = SmallTables.model_construct(**dict(settings), queue=queue, sticky_entries=sticky_entries)
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
        "lanes": 0,
        **config,
        "quotas": {**quotas, "producer_ids": {"grace": "0s", **quotas.get("producer_ids", {})}},
    }
    return json.dumps(whole)


class SimulatedGateway:
    """A gateway: `start`; then kill it and start it again as you like; `drain` ends it."""

    def __init__(
        self,
        machine: Machine,
        settings: Settings,
        own_client: Callable[[Settings], OwnClient] = OwnClient.from_settings,
        *,
        file: Path | None = None,
        listens_on: str = "",
    ) -> None:
        self.host = settings.gateway_id
        self.listens_on = listens_on or self.host
        self.settings = settings
        self.process: Process | None = None
        self.serving: Gateway | None = None
        self.is_listening = False
        self._has_ended = asyncio.Event()
        self._machine = machine
        self._own_client = own_client
        self._file = file
        self._random = Random(f"{machine.seed}/{self.host}/starts")
        self._runs = 0

    async def start(self) -> None:
        """Start, until everything listens. Raises what the gateway raises."""
        self._runs += 1
        process = self._machine.loop.process(self.host, host=self.listens_on)
        self.process, self.is_listening, self._has_ended = process, False, asyncio.Event()
        process.at_death.append(lambda: self._died(process))
        await asyncio.sleep(self._random.uniform(0.01, 0.1))
        await process.spawn(self._serve(process))
        self.is_listening = True

    async def _serve(self, process: Process) -> None:
        outside = self._machine.outside(process, self._own_client)
        run = f"{self.host}{self._runs}"
        self.serving = Gateway(self.settings, self._file, incarnation=run, outside=outside)
        self._machine.at_exit.append(partial(_close_files, self.serving))
        await self.serving.start()

    async def drain(self) -> None:
        """End it in good order, as SIGTERM does."""
        process, serving = self.process, self.serving
        if process is None or serving is None:
            return
        draining = process.spawn(serving.drain())
        ended = self._machine.loop.create_task(self._has_ended.wait())
        await asyncio.wait([draining, ended], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if draining.done():
            draining.result()
        self._machine.loop.kill(process)

    def kill(self) -> None:
        """Kill its process: kill -9."""
        if self.process is not None:
            self._machine.loop.kill(self.process)

    def _died(self, process: Process) -> None:
        serving = self.serving
        if serving is not None and serving._manager.events.state_dir is not None:
            serving._manager.events.state_dir._lock.release()
        if self.process is process:
            self.is_listening, self.serving, self.process = False, None, None
            self._has_ended.set()

    async def change(self, *changes: Change) -> Kept:
        """Change quotas at run time, as the admin site does. Raises NotAllowed, and RuntimeError when it is down."""
        if self.process is None or self.serving is None:
            raise RuntimeError(f"{self.host} does not run")
        return await self.process.spawn(self.serving._quotas.change(changes))

    @property
    def quotas(self) -> Quotas:
        """The quotas in force. Raises RuntimeError when it is down."""
        if self.serving is None:
            raise RuntimeError(f"{self.host} does not run")
        return self.serving._quotas.in_force.quotas

    @property
    def connections(self) -> list[ClientConnection]:
        """Its clients' connections. Empty while it is down."""
        if self.serving is None:
            return []
        return [one for one in self.serving.traffic.shared.connections if isinstance(one, ClientConnection)]

    def reload(self) -> None:
        """Have it read its file again, as SIGHUP does."""
        if self.is_listening and self.process is not None and self.serving is not None:
            self.process.call(self.serving.reload)


def _close_files(serving: Gateway) -> None:
    """Close what a process had open: of a real one the kernel does it."""
    if serving._manager.events.state_dir is not None:
        file = serving._manager.events.state_dir._file
        if file is not None:
            file.close()
