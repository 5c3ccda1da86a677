"""Producers of a crowd: each an idempotent one with a connection of its own and one record in flight, or a rogue.

One record in flight is what makes the check cheap: of a producer with n acknowledged records the log must hold 0 to
n - 1, each once and in order, and perhaps n.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from pidgate.gateway.clock import wall_ms
from pidgate.load.cluster import Cluster
from pidgate.load.connection import Connection, connect
from pidgate.load.context import FAILURES, Producer, take_id
from pidgate.load.exchanges import hello, init_producer_id, produce
from pidgate.load.journal import record_value
from pidgate.load.plan import Login
from pidgate.load.tally import Latency, Tally
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.producer_requests import ProduceAnswer
from pidgate.protocol.record_batch import record_batch

HOSTS: Final = tuple(f"127.0.5.{number}" for number in range(1, 17))
"""Addresses of clients: one has ephemeral ports for 28,000 connections at most."""
AT_ONCE: Final = 100
"""Logins in progress of a process."""
TAKEN: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_SEQUENCE_LOST: Final = frozenset({45, 47, 59, 90})
"""OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID, PRODUCER_FENCED: for no client here."""
_REQUEST_S: Final = 30.0
_NUMBERS: Final = re.compile(r"[\d.,-]+")


def password_of(user: str) -> str:
    return f"{user}-secret"


@dataclass
class Shared:
    """What all producers of a crowd have in common: where they send, and what they are told."""

    cluster: Cluster
    topic: str
    partitions: int
    dice: random.Random
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    hosts: Iterator[str] = field(default_factory=lambda: cycle(HOSTS))
    latency: Latency = field(default_factory=Latency)
    """Of the present phase: from a record's due time to its acknowledgement, over all tries."""
    acknowledged: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """Refusals of users within their quota, by their text without its numbers."""
    tally: Tally = field(default_factory=Tally)
    disconnects: int = 0
    faults: list[str] = field(default_factory=list)
    """What must not happen, by producer."""

    async def connect(self, name: str, user: str, partition: int) -> Connection:
        # As many as this process serves in time: clients of a real fleet do not share a core.
        async with self.room:
            connection = await connect(
                self.cluster.leader(partition), _REQUEST_S, client_id=name, from_host=next(self.hosts)
            )
            try:
                await connection.run(hello(Login(user, password_of(user))))
            except BaseException:
                connection.close()
                raise
            return connection

    async def produce(
        self, connection: Connection, partition: int, value: bytes, producer: Producer, sequence: int
    ) -> ProduceAnswer:
        batch = record_batch([value], *producer, sequence, wall_ms())
        return await connection.run(produce(self.topic, [(partition, batch)]))


class Steady:
    """Sends a record in `every_s`; takes a new id at its deployment; connects again at once when it was cut off."""

    def __init__(self, shared: Shared, user: str, number: int, *, every_s: float) -> None:
        self.name = f"{user}-{number}"
        self.acknowledged = 0
        self.deploy_s = float("inf")
        self.is_sending = False
        self._shared = shared
        self._user = user
        self._partition = shared.dice.randrange(shared.partitions)
        self.every_s = every_s
        self._connection: Connection | None = None
        self._producer: Producer | None = None
        self._sequence = 0
        self._wake = asyncio.Event()
        self._is_paced_anew = False
        self._loop = asyncio.get_running_loop()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    def wake_if_cut_off(self) -> None:
        if self._connection is not None and not self._connection.is_open and not self.is_sending:
            self._wake.set()

    def pace(self, every_s: float) -> None:
        """Send that often from now on."""
        self.every_s = every_s
        self._is_paced_anew = True
        self._wake.set()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def live(self, begin_s: float) -> None:
        """Send from `begin_s` on, by the event loop's clock, until it is cancelled."""
        due_s = begin_s
        while True:
            while (left_s := due_s - self._loop.time()) > 0:
                try:
                    async with asyncio.timeout(left_s):
                        await self._wake.wait()
                except TimeoutError:
                    break
                self._wake.clear()
                if self._is_paced_anew:
                    due_s = self._loop.time() + self.every_s * self._shared.dice.random()
                elif self._connection is not None:
                    await self._connect_again()
                self._is_paced_anew = False
            self.is_sending = True
            await self._send(due_s)
            self.is_sending = False
            due_s += self.every_s * self._shared.dice.uniform(0.5, 1.5)

    async def _connect_again(self) -> None:
        while not self.is_connected:
            # As clients do: reconnect.backoff.ms, with chance so that they do not come all together.
            await asyncio.sleep(self._shared.dice.uniform(0.05, 1.0))
            try:
                self._connection = await self._shared.connect(self.name, self._user, self._partition)
            except FAILURES:
                self._shared.disconnects += 1

    async def _send(self, due_s: float) -> None:
        shared = self._shared
        if self._loop.time() > self.deploy_s:
            self.deploy_s = float("inf")
            self.close()
            self._producer = None
        value = record_value(self.name, self._partition, self.acknowledged)
        while True:
            try:
                if self._connection is None or not self._connection.is_open:
                    self._connection = await shared.connect(self.name, self._user, self._partition)
                if self._producer is None:
                    self._producer, self._sequence = await take_id(self._connection, shared.tally), 0
                answer = await shared.produce(
                    self._connection, self._partition, value, self._producer, self._sequence
                )
            except FAILURES:
                shared.disconnects += 1
                self.close()
                await asyncio.sleep(shared.dice.uniform(0.05, 1.0))
                continue
            if answer.error_code in TAKEN:
                break
            text = f"{answer.error_code} {_NUMBERS.sub('N', answer.error_message or '')}"
            if answer.error_code in _SEQUENCE_LOST:
                shared.faults.append(f"{self.name} #{self.acknowledged}: {text}")
                await asyncio.sleep(3600)
            if answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS:
                shared.refusals[text.replace(self._user, "USER")] += 1
            await asyncio.sleep(max(0.1, answer.throttle_time_ms / 1_000))
        self._sequence += 1
        self.acknowledged += 1
        shared.acknowledged += 1
        shared.latency.record(self._loop.time() - due_s)


class Rogue:
    """A lane of a rogue: for each record a new id. It keeps its connection, or opens one for each."""

    def __init__(self, shared: Shared, user: str, number: int, *, every_s: float, keeps: bool) -> None:
        self.user = user
        self.name = f"{user}-{number}"
        self.tries = 0
        self.admitted_at_s: list[float] = []
        self._shared = shared
        self._partition = number % shared.partitions
        self._every_s = every_s
        self._keeps = keeps
        self._connection: Connection | None = None
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def live(self, begin_s: float) -> None:
        await asyncio.sleep(begin_s - self._loop.time())
        while True:
            again_s = self._loop.time() + self._every_s
            try:
                await self._try_once()
            except FAILURES:
                self.close()
            if not self._keeps:
                self.close()
            await asyncio.sleep(max(0.05, again_s - self._loop.time()))

    async def _try_once(self) -> None:
        shared = self._shared
        self.tries += 1
        if self._connection is None or not self._connection.is_open:
            self._connection = await shared.connect(self.name, self.user, self._partition)
        given = await self._connection.run(init_producer_id())
        if given.error_code:
            return
        value = record_value(self.name, self._partition, self.tries)
        producer = Producer(given.producer_id, given.producer_epoch)
        answer = await shared.produce(self._connection, self._partition, value, producer, 0)
        if answer.error_code == ErrorCode.NONE:
            self.admitted_at_s.append(self._loop.time())
