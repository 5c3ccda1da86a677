"""Producers that do one thing after the other: a life of a crash loop, a producer for one batch.

What is due while one is at work waits, and its time counts: a thread that is held up is part of the load.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from pidgate.load.connection import Connection
from pidgate.load.context import FAILURES, Context, Link, Producer, end_task, take_id
from pidgate.load.pipeline import MOVED, RETRIABLE, RETRY_BACKOFF_S
from pidgate.load.plan import Address
from pidgate.load.tally import Tally
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.producer_requests import ProduceAnswer, produce_answer

Note = Callable[..., None]
"""Called with an event and its facts by name, for whoever keeps a journal."""
_ACKNOWLEDGED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


def _no_journal(_event: str, **_facts: object) -> None:
    pass


class OneByOne(ABC):
    """Worker through what is due, in a task of its own that begins with the first of it."""

    transactional_id: str | None = None

    def __init__(self, context: Context, tally: Tally, number: int, note: Note = _no_journal) -> None:
        self.context = context
        self.tally = tally
        self.note = note
        self.loop = asyncio.get_running_loop()
        self._turn = number
        self._waiting: deque[float] = deque()
        self._at_work: float | None = None
        self._more = asyncio.Event()
        self._work: asyncio.Future[None] | None = None

    @property
    def is_quiet(self) -> bool:
        return not self._waiting and self._at_work is None

    async def begin(self) -> None:
        """Do what can be done before anything is due; by default nothing."""
        await asyncio.sleep(0)

    def due(self, due_s: float) -> None:
        """Queue a batch that is due."""
        self.tally.due += 1
        self._waiting.append(due_s)
        self._more.set()
        if self._work is None:
            self._work = asyncio.ensure_future(self._work_on())

    def over(self, end_s: float) -> None:
        """End the work; count what is not done as unfinished. Raises what the work ended with."""
        if self._work is not None:
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
                if self.left_s(self._at_work) < 0:
                    self.tally.lost += 1
                else:
                    self.tally.sent_first(self._at_work, self.loop.time())
                    await self.one(self._at_work)
                self._at_work = None
            self._more.clear()

    def left_s(self, due_s: float) -> float:
        """Return how long the batch may still take before it is given up."""
        return due_s + self.context.plan.delivery_timeout_s - self.loop.time()

    @abstractmethod
    async def one(self, due_s: float) -> None:
        """Do what was due. Raises nothing but CancelledError: what goes wrong is counted."""

    def next_partition(self) -> int:
        """Return the partitions in turns."""
        self._turn += 1
        return self._turn % self.context.cluster.partitions

    def link_to_leader(self, partition: int) -> Link:
        async def find() -> Address:
            return self.context.cluster.leader(partition)

        return Link(self.context, self.tally, find)

    async def try_once(
        self,
        connection: Connection,
        partitions: Sequence[int],
        producer: Producer,
        sequence: int = 0,
        tries: int = 1,
    ) -> tuple[ProduceAnswer, float]:
        """Send one Produce request and count it. Raises OSError, KafkaProtocolError.

        Returns the answer, which has no error if the batch is in the log already, and when it came.
        """
        self.tally.requests += 1
        self.tally.resent += tries > 1
        frame, arrived_s = await self.context.send_batch(
            connection, partitions, producer, sequence, self.transactional_id
        )
        answer = produce_answer(frame)
        self.tally.throttled(answer.throttle_time_ms)
        if answer.error_code in _ACKNOWLEDGED:
            return answer._replace(error_code=ErrorCode.NONE), arrived_s
        self.tally.refuse(answer.error_code, has_throttle=answer.throttle_time_ms > 0)
        return answer, arrived_s

    def acknowledged(self, due_s: float, arrived_s: float) -> None:
        """Count a batch that is in the log."""
        plan = self.context.plan
        self.tally.acknowledge(due_s, arrived_s, plan.records_per_batch, plan.batch_bytes)


class CrashLoop(OneByOne):
    """Each batch is a life: connect, take an id, send one batch, die of whatever the answer is. Nothing is retried."""

    async def one(self, due_s: float) -> None:
        partition = self.next_partition()
        link = self.link_to_leader(partition)
        try:
            connection = await link.connection()
            producer = await take_id(connection, self.tally)
            self.tally.ids += 1
            answer, arrived_s = await self.try_once(connection, (partition,), producer)
            error_code = answer.error_code
        except FAILURES:
            self.tally.connection_errors += 1
            error_code, arrived_s = ErrorCode.NETWORK_EXCEPTION, 0.0
        finally:
            link.drop()
        if error_code == ErrorCode.NONE:
            self.acknowledged(due_s, arrived_s)
            return
        self.tally.lost += 1
        if error_code in MOVED or error_code == ErrorCode.NETWORK_EXCEPTION:
            await self.context.cluster.refresh()


class IdPerBatch(OneByOne):
    """Each batch has a producer of its own, which does its best until the batch is delivered, and is closed then.

    Notes of each id: began, refused, acknowledged, gave_up, lost (given up, but a try of it has no answer).
    """

    async def one(self, due_s: float) -> None:
        partition = self.next_partition()
        link = self.link_to_leader(partition)
        try:
            await self._deliver(due_s, link, partition)
        finally:
            link.drop()

    async def _deliver(self, due_s: float, link: Link, partition: int) -> None:
        partitions = (
            range(self.context.cluster.partitions)
            if self.context.plan.to_all_partitions
            else range(partition, partition + 1)
        )
        producer: Producer | None = None
        tries, ending = 0, "gave_up"
        while (left_s := self.left_s(due_s)) > 0:
            pause_s = RETRY_BACKOFF_S
            try:
                connection = await link.connection()
                if producer is None:
                    producer = await take_id(connection, self.tally)
                    self.tally.ids += 1
                    facts = {"producer": connection.client_id, "address": connection.local_address}
                    self.note("began", producer_id=producer.producer_id, **facts)
                tries += 1
                answer, arrived_s = await self.try_once(connection, partitions, producer, tries=tries)
                error_code = answer.error_code
                if error_code == ErrorCode.NONE:
                    self.note("acknowledged", producer_id=producer.producer_id, partitions=len(partitions))
                    return self.acknowledged(due_s, arrived_s)
                if error_code not in RETRIABLE:
                    break
                if error_code not in MOVED:
                    self.note(
                        "refused",
                        producer_id=producer.producer_id,
                        error_code=error_code,
                        throttle_time_ms=answer.throttle_time_ms,
                        message=answer.error_message or "",
                    )
                pause_s = max(pause_s, answer.throttle_time_ms / 1_000)
            except FAILURES as error:
                self.tally.connection_errors += 1
                self.note("trouble", error=str(error) or type(error).__name__)
                error_code = ErrorCode.NETWORK_EXCEPTION
                ending = "lost" if tries else ending
            if error_code in MOVED or error_code == ErrorCode.NETWORK_EXCEPTION:
                link.drop()
                await self.context.cluster.refresh()
            await asyncio.sleep(min(pause_s, left_s))
        self.tally.lost += 1
        if producer is not None:
            self.note(ending, producer_id=producer.producer_id)
