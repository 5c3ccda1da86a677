"""Where a recording is made: gateways before a broker, their settings at run time, and the simplest of clients."""

from __future__ import annotations

import asyncio
import copy
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from confluent_kafka.admin import AdminClient

from pidgate.gateway.clock import wall_ms
from pidgate.load.connection import Connection, connect
from pidgate.load.context import take_id
from pidgate.load.exchanges import log_in, produce
from pidgate.load.plan import Login
from pidgate.load.tally import Tally
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.record_batch import record_batch
from tests.support.fleet import Fleet
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SUPER_USER

_T = TypeVar("_T")


def password_of(user: str) -> str:
    return f"{user}-secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One recording: its gateways, its play, and the truth about its users."""

    about: str
    quotas: Mapping[str, Any]
    play: Callable[[Stage], Awaitable[None]]
    labels: Mapping[str, frozenset[str]] = field(default_factory=dict)
    more_users: frozenset[str] = frozenset()
    rogue_clients: frozenset[str] = frozenset()
    gateways: int = 1
    within_s: float = 240.0

    @property
    def users(self) -> frozenset[str]:
        return frozenset(self.labels) | self.more_users


@dataclass
class Stage:
    """What a play acts on. `marks`: what was done to the gateways, and when by the wall clock."""

    cluster: Cluster
    fleet: Fleet
    topic: str
    folder: Path
    marks: list[tuple[int, str]] = field(default_factory=list)

    def mark(self, what: str) -> None:
        self.marks.append((time.time_ns() // 1_000_000, what))

    def gateway(self, number: int = 0) -> GatewayProcess:
        return self.fleet.gateways[number]

    def introduce(self, number: int) -> None:
        """Someone asks for metadata: a gateway opens a broker's port when it has heard of that broker."""
        AdminClient(
            {
                "bootstrap.servers": self.gateway(number).bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": SUPER_USER,
                "sasl.password": password_of(SUPER_USER),
            }
        ).list_topics(timeout=10)

    async def reload(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the quotas in the gateway's file and waits until they are in force."""
        # Of this gateway alone: a fleet's configurations may share their parts.
        gateway = self.gateway(number)
        gateway.config["quotas"] = copy.deepcopy(gateway.config["quotas"])
        change(gateway.config["quotas"])
        assert gateway.directory is not None
        before = self._reloads(gateway)
        path = gateway.directory / "pidgate.yaml"
        path.write_text(yaml.safe_dump(gateway.config, sort_keys=False))
        self.mark(f"gw-{number}: the file is changed")
        for _ in range(100):
            gateway.signal(signal.SIGHUP)
            await asyncio.sleep(0.2)
            if await asyncio.to_thread(self._reloads, gateway) > before:
                self.mark(f"gw-{number}: the new quotas are in force")
                return
        raise AssertionError(f"the file was not read again:\n{gateway.log_tail()}")

    @staticmethod
    def _reloads(gateway: GatewayProcess) -> float:
        return gateway.metrics().value("pidgate_config_reloads_total", result="applied")

    async def restart(self, number: int) -> None:
        """Stops the gateway in peace and starts it again on the same ports."""
        gateway = self.gateway(number)
        self.mark(f"gw-{number}: stops")
        assert await asyncio.to_thread(gateway.stop) == 0, gateway.log_tail()
        await asyncio.to_thread(gateway.start)
        await asyncio.to_thread(self.introduce, number)
        self.mark(f"gw-{number}: is ready again")


class LastingProducer:
    """One producer id, one batch at a time to any partition, over a new connection whenever the old one is lost.

    Refused, it waits as told and sends the same batch again, as Kafka's clients do. `give_up_s`: its patience for a
    batch.
    """

    def __init__(
        self, stage: Stage, user: str, client_id: str, *, gateway: int = 0, from_host: str | None = None
    ) -> None:
        self._stage = stage
        self._user = user
        self._client_id = client_id
        self.gateway = gateway
        self._from_host = from_host
        self._connection: Connection | None = None
        self.producer_id = -1
        self.refused = 0
        self._sequences: dict[int, int] = {}

    async def connect(self) -> Connection:
        if self._connection is None:
            port = self._stage.gateway(self.gateway).first_node_port + 1
            self._connection = await connect(
                ("127.0.0.1", port), client_id=self._client_id, from_host=self._from_host
            )
            await self._connection.run(log_in(Login(self._user, password_of(self._user))))
        return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    async def move_to(self, gateway: int) -> None:
        await self.close()
        self.gateway = gateway

    async def begin(self) -> int:
        self.producer_id = (await take_id(await self.connect(), Tally())).producer_id
        return self.producer_id

    async def send(self, partition: int = 0, *, give_up_s: float = 60.0) -> bool:
        """Whether the batch was taken in time."""
        if self.producer_id < 0:
            await self._unless_cut_off(self.begin)
        sequence = self._sequences.get(partition, 0)
        batch = record_batch([b"x" * random.randrange(100, 400)], self.producer_id, 0, sequence, wall_ms())
        until_s = time.monotonic() + give_up_s
        while True:

            async def once() -> tuple[int, int]:
                connection = await self.connect()
                answer = await connection.run(produce(self._stage.topic, [(partition, batch)]))
                return answer.error_code, answer.throttle_time_ms

            code, throttle_time_ms = await self._unless_cut_off(once)
            if code == ErrorCode.NONE:
                self._sequences[partition] = sequence + 1
                return True
            assert code == ErrorCode.NOT_ENOUGH_REPLICAS, code
            self.refused += 1
            wait_s = max(0.1, throttle_time_ms / 1_000)
            if time.monotonic() + wait_s > until_s:
                return False
            await asyncio.sleep(wait_s)

    async def _unless_cut_off(self, act: Callable[[], Awaitable[_T]]) -> _T:
        """Again over a new connection while the gateway is away."""
        give_up_s = time.monotonic() + 30.0
        while True:
            try:
                return await act()
            except OSError:
                await self.close()
                if time.monotonic() > give_up_s:
                    raise
                await asyncio.sleep(0.3)
