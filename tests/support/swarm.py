"""Many cheap producers: each has one connection, one producer id and one batch in flight, and retries as Java does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final, Self

from pidgate.gateway.clock import wall_ms
from pidgate.load.connection import Connection, connect
from pidgate.load.context import take_id
from pidgate.load.exchanges import log_in, produce
from pidgate.load.plan import Login
from pidgate.load.tally import Tally
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.producer_requests import ProduceAnswer
from pidgate.protocol.record_batch import record_batch
from tests.support.raw import address_of

_ANSWER_S: Final = 600.0
"""Longer than any throttle of a test."""


@dataclass
class Sent:
    """The codes of a batch's answers; the last one counts."""

    codes: list[int] = field(default_factory=list)
    throttle_times_ms: list[int] = field(default_factory=list)
    first_answer_s: float = 0.0

    @property
    def is_acknowledged(self) -> bool:
        return bool(self.codes) and self.codes[-1] == 0


class SwarmProducer:
    """A producer to one partition of one topic, which remembers acknowledged values. Logs in as `user`, if given."""

    def __init__(
        self, address: str, topic: str, partition: int = 0, *, client_id: str = "swarm", user: str = ""
    ) -> None:
        self._address = address_of(address)
        self._topic = topic
        self._partition = partition
        self._client_id = user or client_id
        self._login = Login(user, f"{user}-secret") if user else None
        self._connection: Connection | None = None
        self.producer_id = -1
        self.sequence = 0
        self.acknowledged: list[bytes] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def move_to(self, address: str) -> None:
        """Send the next batch to another address."""
        self.close()
        self._address = address_of(address)

    async def connection(self) -> Connection:
        """Raises OSError."""
        if self._connection is None:
            self._connection = await connect(self._address, _ANSWER_S, client_id=self._client_id)
            if self._login is not None:
                await self._connection.run(log_in(self._login))
        return self._connection

    async def begin(self, producer_id: int | None = None) -> Self:
        """Get a producer id from the cluster, or use a given one."""
        if producer_id is not None:
            self.producer_id = producer_id
            return self
        self.producer_id = (await take_id(await self.connection(), Tally())).producer_id
        return self

    async def send_once(self, value: bytes) -> Sent:
        """Try the next batch once. Raises OSError."""
        sent = Sent()
        await self._try(value, sent)
        return sent

    async def send(self, value: bytes, *, within_s: float = 60.0) -> Sent:
        """Send the next batch until it is acknowledged, also after a refusal or a lost connection."""
        sent = Sent()
        give_up_s = time.monotonic() + within_s
        while not sent.is_acknowledged:
            assert time.monotonic() < give_up_s, f"{value!r} of {self.producer_id}: {sent}"
            try:
                await self._try(value, sent)
            except OSError:
                self.close()
                await asyncio.sleep(0.05)
                continue
            if sent.codes[-1] == ErrorCode.NOT_ENOUGH_REPLICAS:
                await asyncio.sleep(0.1)
            else:
                assert sent.codes[-1] in (0, 46), sent  # 46: the first try had arrived after all
                if sent.codes[-1]:
                    sent.codes.append(0)
                    self._acknowledge(value)
        return sent

    async def produce(self, value: bytes, sequence: int) -> ProduceAnswer:
        """Send one batch of any sequence. Raises OSError."""
        batch = record_batch([value], self.producer_id, 0, sequence, wall_ms())
        return await (await self.connection()).run(produce(self._topic, [(self._partition, batch)]))

    async def _try(self, value: bytes, sent: Sent) -> None:
        began_s = time.monotonic()
        answer = await self.produce(value, self.sequence)
        sent.first_answer_s = sent.first_answer_s or time.monotonic() - began_s
        sent.codes.append(answer.error_code)
        sent.throttle_times_ms.append(answer.throttle_time_ms)
        if answer.error_code == ErrorCode.NONE:
            self._acknowledge(value)

    def _acknowledge(self, value: bytes) -> None:
        self.acknowledged.append(value)
        self.sequence += 1


async def started(
    address: str, topic: str, number: int, *, at_once: int = 100, client_id: str = "swarm"
) -> list[SwarmProducer]:
    """Return that many producers with ids of the cluster."""
    room = asyncio.Semaphore(at_once)

    async def one() -> SwarmProducer:
        async with room:
            return await SwarmProducer(address, topic, client_id=client_id).begin()

    return list(await asyncio.gather(*(one() for _ in range(number))))
