"""One blocking client of a simulated gateway before the model cluster, as RawClient is one of a real gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pidgate.load.connection import ConnectionLost
from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.server import Brokers
from tests.simulator.gateway import PORT, SimulatedGateway, configured
from tests.simulator.machine import Machine
from tests.support import raw


class SimulatedGatewayClient:
    """Asks node 1 through a gateway with these quotas. Virtual time passes while it waits for an answer only.

    The same methods as tests.support.raw.RawClient has. To be made inside `with Machine(...)`.
    """

    def __init__(self, machine: Machine, cluster: ModelCluster, quotas: Mapping[str, Any]) -> None:
        self._machine = machine
        self._cluster = cluster
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        machine.loop.run_until_complete(self._start(quotas))

    async def _start(self, quotas: Mapping[str, Any]) -> None:
        loop, (host, port) = self._machine.loop, self._cluster.address(1)
        await loop.process(host).spawn(Brokers(self._cluster).listen(1))
        self._gateway = SimulatedGateway(
            self._machine, configured("gateway", f"{host}:{port}", quotas=dict(quotas))
        )
        await self._gateway.start()
        # Until it has found its brokers, their ports are not there.
        await asyncio.sleep(1)
        self._process = loop.process("client")

    def call(self, api_key: int, version: int, body: raw.Body | None = None) -> dict[str, Any]:
        """Return the decoded answer. Raises ConnectionLost."""
        return raw.decoded(api_key, version, self.ask(raw.request(api_key, version, body)))

    def ask(self, framed: bytes) -> bytes:
        """Send a framed request; return the answer's frame, without its size prefix. Raises ConnectionLost.

        The next request after that goes over a new connection.
        """
        try:
            return self._machine.loop.run_until_complete(self._process.spawn(self._ask(framed)))
        except (OSError, EOFError) as error:
            self._streams = None
            raise ConnectionLost(str(error)) from error

    async def _ask(self, framed: bytes) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_connection("gateway", PORT + 2)
        reader, writer = self._streams
        writer.write(framed)
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)

    def end(self) -> None:
        """Close and drain the gateway. Raises SimulationFailed where something went wrong in it that nobody saw."""
        if self._streams is not None:
            self._process.call(self._streams[1].close)
        self._machine.loop.run(self._gateway.drain())
