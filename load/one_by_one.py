"""Producers that do one thing after the other: a life of a crash loop, a producer for one batch.

What is due while one is at work waits, and its time counts: a thread that is held up is part of the load.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque

from pidgate.load.connection import Connection
from pidgate.load.context import Context, NoProducerId, Producer, read_produce_answer
from pidgate.load.ending import end_task
from pidgate.load.login import LoginRefused
from pidgate.load.pipeline import MOVED, RETRIABLE, RETRY_BACKOFF_S
from pidgate.load.tally import Tally
from pidgate.protocol.errors import ErrorCode, KafkaProtocolError

FAILURES = (OSError, KafkaProtocolError, NoProducerId, LoginRefused)
"""What may come out of connecting and asking."""


class OneByOne(ABC):
    """Works through what is due, in a task of its own."""

    def __init__(self, context: Context, tally: Tally, number: int) -> None:
        self.context = context
        self.tally = tally
        self.loop = asyncio.get_running_loop()
        self._turn = number
        self._waiting: deque[float] = deque()
        self._at_work: float | None = None
        self._more = asyncio.Event()
        self._work = asyncio.ensure_future(self._work_on())

    @property
    def is_quiet(self) -> bool:
        return not self._waiting and self._at_work is None

    async def begin(self) -> None:
        """What is done before anything is due; by most, nothing."""
        await asyncio.sleep(0)

    def due(self, due_s: float) -> None:
        """A batch is due."""
        self.tally.due += 1
        self._waiting.append(due_s)
        self._more.set()

    def over(self, end_s: float) -> None:
        """The run ends now."""
        end_task(self._work)
        if self._at_work is not None:
            self.tally.left_unfinished(self._at_work, end_s)
        for due_s in self._waiting:
            self.tally.left_unfinished(due_s, end_s)
        self._waiting.clear()

    async def _work_on(self) -> None:
        while True:
            await self._more.wait()
            while self._waiting:
                self._at_work = self._waiting.popleft()
                if self._overdue(self._at_work):
                    self.tally.lost += 1
                else:
                    self.tally.sent_first(self._at_work, self.loop.time())
                    await self.one(self._at_work)
                self._at_work = None
            self._more.clear()

    def _overdue(self, due_s: float) -> bool:
        return self.loop.time() > due_s + self.context.plan.delivery_timeout_s

    @abstractmethod
    async def one(self, due_s: float) -> None:
        """Do what was due. Raises nothing but CancelledError: what goes wrong is counted."""

    def next_partition(self) -> int:
        """In turns."""
        self._turn += 1
        return self._turn % self.context.cluster.partitions

    async def try_once(
        self, connection: Connection, partition: int, producer: Producer, *, sequence: int = 0, tries: int = 1
    ) -> tuple[int, int, float]:
        """(error code, throttle_time_ms, when the answer came) of one Produce request; counted."""
        return await produce(self.context, self.tally, connection, partition, producer, sequence, tries)

    def acknowledged(self, due_s: float, arrived_s: float) -> None:
        """The batch is in the log."""
        plan = self.context.plan
        self.tally.acknowledge(due_s, arrived_s, plan.records_per_batch, plan.batch_bytes)


async def produce(
    context: Context,
    tally: Tally,
    connection: Connection,
    partition: int,
    producer: Producer,
    sequence: int,
    tries: int,
    transactional_id: str | None = None,
) -> tuple[int, int, float]:
    """One Produce request and its answer, counted. Raises OSError, KafkaProtocolError."""
    tally.requests += 1
    tally.resent += tries > 1
    frame, arrived_s = await context.send_batch(connection, partition, producer, sequence, transactional_id)
    error_code, throttle_time_ms = read_produce_answer(frame)
    tally.throttled(throttle_time_ms)
    if error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        tally.refuse(error_code, has_throttle=throttle_time_ms > 0)
        return error_code, throttle_time_ms, arrived_s
    return ErrorCode.NONE, throttle_time_ms, arrived_s


class CrashLoop(OneByOne):
    """Each batch is a life: connect, take an id, send one batch, die of whatever the answer is. Nothing is retried."""

    async def one(self, due_s: float) -> None:
        connection = None
        partition = self.next_partition()
        try:
            connection = await self.context.cluster.connect(
                self.context.cluster.leader(partition), self.tally
            )
            producer = await self.context.take_id(connection, self.tally)
            self.tally.ids += 1
            error_code, _, arrived_s = await self.try_once(connection, partition, producer)
        except FAILURES:
            self.tally.connection_errors += 1
            error_code, arrived_s = ErrorCode.NETWORK_EXCEPTION, 0.0
        finally:
            if connection is not None:
                connection.close()
        if error_code == ErrorCode.NONE:
            self.acknowledged(due_s, arrived_s)
            return
        self.tally.lost += 1
        if error_code in MOVED or error_code == ErrorCode.NETWORK_EXCEPTION:
            await self.context.cluster.refresh()


class IdPerBatch(OneByOne):
    """Each batch has a producer of its own, which does its best until the batch is delivered, and is closed then."""

    async def one(self, due_s: float) -> None:
        connection: Connection | None = None
        producer: Producer | None = None
        partition, tries = self.next_partition(), 0
        try:
            while not self._overdue(due_s):
                pause_s = RETRY_BACKOFF_S
                try:
                    if connection is None:
                        address = self.context.cluster.leader(partition)
                        connection = await self.context.cluster.connect(address, self.tally)
                    if producer is None:
                        producer = await self.context.take_id(connection, self.tally)
                        self.tally.ids += 1
                    tries += 1
                    error_code, throttle_time_ms, arrived_s = await self.try_once(
                        connection, partition, producer, tries=tries
                    )
                    if error_code == ErrorCode.NONE:
                        return self.acknowledged(due_s, arrived_s)
                    if error_code not in RETRIABLE:
                        break
                    pause_s = max(pause_s, throttle_time_ms / 1_000)
                except FAILURES:
                    self.tally.connection_errors += 1
                    error_code = ErrorCode.NETWORK_EXCEPTION
                if connection is not None and (
                    error_code in MOVED or error_code == ErrorCode.NETWORK_EXCEPTION
                ):
                    connection.close()
                    connection = None
                    await self.context.cluster.refresh()
                await asyncio.sleep(pause_s)
            self.tally.lost += 1
        finally:
            with contextlib.suppress(OSError):
                if connection is not None:
                    connection.close()
