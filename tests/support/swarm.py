"""Many producers at small cost: each one connection, one producer id, one batch in flight, as a Java client retries.

The frames are those of the model (tests/unit/gateway/model/wire.py), which a real broker takes.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from dataclasses import dataclass, field
from typing import Self

from tests.unit.gateway.model.wire import NAMED, NOT_ENOUGH_REPLICAS, produce_frame, read_answer

INIT_PRODUCER_ID = 22
_correlation_ids = itertools.count(1)


@dataclass
class Sent:
    """How one batch went: the codes of its answers, the last one is what counts."""

    codes: list[int] = field(default_factory=list)
    throttle_times_ms: list[int] = field(default_factory=list)
    first_answer_s: float = 0.0

    @property
    def is_acknowledged(self) -> bool:
        return bool(self.codes) and self.codes[-1] == 0


class SwarmProducer:
    """Sends to one partition of one topic. Everything it was told is acknowledged is in `acknowledged`."""

    def __init__(self, address: str, topic: str, partition: int = 0, *, client_id: str = "swarm") -> None:
        host, port = address.split(",")[0].rsplit(":", 1)
        self._address = (host, int(port))
        self._topic = topic.encode()
        self._partition = partition
        self._client_id = client_id
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.producer_id = -1
        self.sequence = 0
        self.acknowledged: list[bytes] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._reader = self._writer = None

    def move_to(self, address: str) -> None:
        """The next batch goes there: another gateway, or none."""
        self.close()
        host, port = address.split(",")[0].rsplit(":", 1)
        self._address = (host, int(port))

    async def ask(self, frame: bytes) -> bytes:
        """One request and its answer, with size prefix. Raises OSError or EOFError when the connection is lost."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._address)
        self._writer.write(frame)
        prefix = await self._reader.readexactly(4)
        return prefix + await self._reader.readexactly(struct.unpack(">i", prefix)[0])

    async def begin(self, producer_id: int | None = None) -> Self:
        """Get a producer id from the cluster, or use a given one."""
        if producer_id is not None:
            self.producer_id = producer_id
            return self
        name = self._client_id.encode()
        body = struct.pack(">hhih", INIT_PRODUCER_ID, 0, next(_correlation_ids), len(name)) + name
        body += struct.pack(">hi", -1, 60_000)
        for _ in range(100):
            answer = await self.ask(struct.pack(">i", len(body)) + body)
            error_code, given = struct.unpack_from(">hq", answer, 12)
            if error_code == 0:
                self.producer_id = int(given)
                return self
            await asyncio.sleep(0.1)
        raise AssertionError(f"no producer id: error {error_code}")

    async def send_once(self, value: bytes) -> Sent:
        """One try of the next batch."""
        sent = Sent()
        await self._try(value, sent)
        return sent

    async def send(self, value: bytes, *, within_s: float = 60.0) -> Sent:
        """Until it is acknowledged: again after each refusal, over a new connection when the old one is lost."""
        sent = Sent()
        give_up_s = time.monotonic() + within_s
        while not sent.is_acknowledged:
            assert time.monotonic() < give_up_s, f"{value!r} of {self.producer_id}: {sent}"
            try:
                await self._try(value, sent)
            except (OSError, EOFError):
                self.close()
                await asyncio.sleep(0.05)
                continue
            if sent.codes[-1] == NOT_ENOUGH_REPLICAS:
                await asyncio.sleep(0.1)
            else:
                assert sent.codes[-1] in (0, 46), sent  # 46: the first try had arrived after all
                if sent.codes[-1]:
                    sent.codes.append(0)
                    self._acknowledge(value)
        return sent

    async def _try(self, value: bytes, sent: Sent) -> None:
        batch = (self._partition, self.producer_id, 0, self.sequence, 1, value)
        frame = produce_frame(NAMED, next(_correlation_ids), self._client_id, (batch,), topic=self._topic)
        began_s = time.monotonic()
        _, outcomes, throttle_time_ms = read_answer(await self.ask(frame), NAMED)
        sent.first_answer_s = sent.first_answer_s or time.monotonic() - began_s
        sent.codes.append(outcomes[0][1])
        sent.throttle_times_ms.append(throttle_time_ms)
        if sent.codes[-1] == 0:
            self._acknowledge(value)

    def _acknowledge(self, value: bytes) -> None:
        self.acknowledged.append(value)
        self.sequence += 1


async def started(
    address: str, topic: str, number: int, *, at_once: int = 100, client_id: str = "swarm"
) -> list[SwarmProducer]:
    """That many producers with ids of the cluster."""
    room = asyncio.Semaphore(at_once)

    async def one() -> SwarmProducer:
        async with room:
            return await SwarmProducer(address, topic, client_id=client_id).begin()

    return list(await asyncio.gather(*(one() for _ in range(number))))
