"""Clients that do one thing at a time: a life of a crash loop, a producer for one batch, a connection, a
fetch.

Work that becomes due during other work waits, and its waiting time counts: a blocked thread is part of the
load.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from pidgate.load.connection import Connection
from pidgate.load.context import FAILURES, Context, Link, Producer, end_task
from pidgate.load.exchanges import fetch
from pidgate.load.journal import record_value
from pidgate.load.pipeline import MOVED, RETRIABLE, RETRY_BACKOFF_S
from pidgate.load.plan import Address
from pidgate.load.tally import Tally
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.producer_requests import ProduceAnswer
from pidgate.protocol.record_batch import RecordBatch

_ACKNOWLEDGED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class OneByOne(ABC):
    """Worker that processes a queue in its own task, which starts with the first piece of work."""

    transactional_id: str | None = None
    pause_s = 0.0
    """Pause between two pieces of work."""

    def __init__(self, context: Context, tally: Tally, number: int) -> None:
        self.context = context
        self.tally = tally
        self.loop = asyncio.get_running_loop()
        self._turn = number
        self._waiting: deque[float] = deque()
        self._at_work: float | None = None
        self._is_endless = False
        self._more = asyncio.Event()
        self._work: asyncio.Future[None] | None = None

    @property
    def is_quiet(self) -> bool:
        return not self._waiting and self._at_work is None

    async def prepare(self) -> None:
        """Connect and the like before the first piece of work is due; by default do nothing."""
        await asyncio.sleep(0)

    def queue_work(self, due_s: float) -> None:
        self.tally.count_due(due_s)
        self._waiting.append(due_s)
        self._wake()

    def work_endlessly(self, is_endless: bool) -> None:
        """Start the next piece of work whenever one has ended, or stop doing so."""
        self._is_endless = is_endless
        self._wake()

    def end_run(self, end_s: float) -> None:
        """Stop; count all pending work as unfinished. Raises the exception of the task, if any."""
        if self._work is not None:
            end_task(self._work)
        if self._at_work is not None:
            self.tally.count_unfinished(self._at_work, end_s)
        for due_s in self._waiting:
            self.tally.count_unfinished(due_s, end_s)
        self._waiting.clear()

    def _wake(self) -> None:
        self._more.set()
        if self._work is None:
            self._work = asyncio.ensure_future(self._work_on())

    async def _work_on(self) -> None:
        while True:
            if not self._waiting and not self._is_endless:
                self._more.clear()
                await self._more.wait()
                continue
            if not self._waiting:
                self.tally.count_due(self.loop.time())
                self._waiting.append(self.loop.time())
            due_s = self._at_work = self._waiting.popleft()
            if self.left_s(due_s) < 0:
                self.tally.count_lost(due_s)
            else:
                self.tally.count_first_send(due_s, self.loop.time())
                await self.do_work(due_s)
            self._at_work = None
            if self.pause_s:
                await asyncio.sleep(self.pause_s)

    def left_s(self, due_s: float) -> float:
        """Return the time left until the batch is given up."""
        return due_s + self.context.plan.delivery_timeout_s - self.loop.time()

    @abstractmethod
    async def do_work(self, due_s: float) -> None:
        """Do one piece of work. Raises nothing but CancelledError: errors are counted."""

    def next_turn(self) -> int:
        self._turn += 1
        return self._turn

    def next_partition(self) -> int:
        """Return the partitions in turn."""
        return self.next_turn() % self.context.cluster.partitions

    def link_to_leader(self, partition: int) -> Link:
        async def find() -> Address:
            return self.context.cluster.leader(partition)

        return Link(self.context, self.tally, find)

    async def try_batch(
        self,
        connection: Connection,
        partitions: Sequence[int],
        producer: Producer,
        sequence: int = 0,
        tries: int = 1,
        batch: RecordBatch | None = None,
    ) -> tuple[ProduceAnswer, float]:
        """Send one Produce request and count it. Raises OSError, KafkaProtocolError.

        Returns the answer, without error if the batch was in the log already, and the time of its arrival.
        """
        self.tally.requests += 1
        self.tally.resent += tries > 1
        frame, arrived_s = await self.context.send_batch(
            connection, partitions, producer, sequence, self.transactional_id, batch
        )
        answer = self.context.read_answer(frame)
        self.tally.count_throttle(answer.throttle_time_ms)
        if answer.error_code in _ACKNOWLEDGED:
            return answer._replace(error_code=ErrorCode.NONE), arrived_s
        self.tally.count_refusal(answer.error_code, has_throttle=answer.throttle_time_ms > 0)
        return answer, arrived_s

    def count_acknowledged(self, due_s: float, arrived_s: float) -> None:
        plan = self.context.plan
        self.tally.count_acknowledged(due_s, arrived_s, plan.records_per_batch, plan.batch_bytes)

    async def count_connection_error(self) -> None:
        self.tally.connection_errors += 1
        await self.context.cluster.refresh()
        await asyncio.sleep(RETRY_BACKOFF_S)


class CrashLoop(OneByOne):
    """Each batch is a life: connect, get an id, send one batch, exit after any answer. Nothing is retried.

    In a journal each life is a number, and its record names it.
    """

    def __init__(self, context: Context, tally: Tally, number: int) -> None:
        super().__init__(context, tally, number)
        self.pause_s = context.plan.restart_after_s
        self._lives = 0

    async def do_work(self, due_s: float) -> None:
        partition, journal, batch = self.next_partition(), self.context.journal, None
        self._lives += 1
        if journal is not None:
            batch = RecordBatch([record_value(journal.producer, partition, self._lives)])
            journal.sent(partition, self._lives)
        link = self.link_to_leader(partition)
        try:
            connection = await link.connection()
            producer = await self.context.new_producer(connection, self.tally)
            answer, arrived_s = await self.try_batch(connection, (partition,), producer, batch=batch)
        except FAILURES:
            self.tally.count_lost(due_s)
            return await self.count_connection_error()
        finally:
            link.drop()
        if answer.error_code == ErrorCode.NONE:
            self.count_acknowledged(due_s, arrived_s)
            if journal is not None:
                journal.acknowledged(partition, self._lives)
            return None
        self.tally.count_lost(due_s)
        if answer.error_code in MOVED:
            await self.context.cluster.refresh()
        return None


class IdPerBatch(OneByOne):
    """Each batch has its own producer, which retries until the batch is delivered and is then closed.

    In a journal each producer id is a number.
    """

    async def do_work(self, due_s: float) -> None:
        partition = self.next_partition()
        link = self.link_to_leader(partition)
        try:
            await self._deliver(due_s, link, partition)
        finally:
            link.drop()

    async def _deliver(self, due_s: float, link: Link, partition: int) -> None:
        plan, journal = self.context.plan, self.context.journal
        partitions = (
            range(partition, partition + 1) if plan.partitions_each else self.context.partitions_of(0)
        )
        producer: Producer | None = None
        tries, is_unknown = 0, False
        while (left_s := self.left_s(due_s)) > 0 and tries != plan.most_tries:
            pause_s = RETRY_BACKOFF_S
            try:
                connection = await link.connection()
                if producer is None:
                    producer = await self.context.new_producer(connection, self.tally)
                    if journal is not None:
                        journal.sent(None, producer.producer_id)
                tries += 1
                answer, arrived_s = await self.try_batch(connection, partitions, producer, tries=tries)
                error_code = answer.error_code
                if error_code == ErrorCode.NONE:
                    if journal is not None:
                        journal.acknowledged(None, producer.producer_id)
                    return self.count_acknowledged(due_s, arrived_s)
                if error_code not in RETRIABLE:
                    break
                throttle_ms = answer.throttle_time_ms
                if journal is not None and error_code not in MOVED:
                    told = (error_code, throttle_ms, answer.error_message or "")
                    journal.refused(None, producer.producer_id, *told)
                pause_s = max(pause_s, throttle_ms / 1_000)
            except FAILURES:
                self.tally.connection_errors += 1
                error_code, is_unknown = ErrorCode.NETWORK_EXCEPTION, tries > 0
            if error_code in MOVED or error_code == ErrorCode.NETWORK_EXCEPTION:
                link.drop()
                await self.context.cluster.refresh()
            if tries != plan.most_tries:
                await asyncio.sleep(min(pause_s, left_s))
        self.tally.count_lost(due_s)
        if journal is not None and producer is not None:
            if is_unknown:
                journal.lost(None, producer.producer_id)
            else:
                journal.failed(None, producer.producer_id, "given up")
        return None


class ConnectLoop(OneByOne):
    """Each piece of work is a connection: ApiVersions, the login if any, and close."""

    async def do_work(self, due_s: float) -> None:
        try:
            address = self.context.cluster.leader(self.next_partition())
            connection = await self.context.cluster.connect(address, self.tally)
        except FAILURES:
            self.tally.count_lost(due_s)
            return await self.count_connection_error()
        self.tally.count_acknowledged(due_s, self.loop.time(), 0, 0)
        return connection.close()


class FetchLoop(OneByOne):
    """A consumer without a group that reads its partitions repeatedly over one connection."""

    def __init__(self, context: Context, tally: Tally, number: int) -> None:
        super().__init__(context, tally, number)
        self._offsets = dict.fromkeys(context.partitions_of(number), 0)
        self._link = self.link_to_leader(next(iter(self._offsets)))

    async def prepare(self) -> None:
        await self._link.connection()

    async def do_work(self, due_s: float) -> None:
        plan = self.context.plan
        try:
            self.tally.requests += 1
            answer = await (await self._link.connection()).run(fetch(plan.topic_id, self._offsets))
        except FAILURES:
            self.tally.count_lost(due_s)
            return await self.count_connection_error()
        self.tally.count_throttle(answer.throttle_time_ms)
        if answer.error_code:
            self.tally.count_refusal(answer.error_code, has_throttle=answer.throttle_time_ms > 0)
            return self.tally.count_lost(due_s)
        for partition, fetched in answer.partitions.items():
            if fetched.records:
                # Restart before the end, where a Fetch would wait for more.
                at_end = fetched.next_offset >= fetched.high_watermark
                self._offsets[partition] = 0 if at_end else fetched.next_offset
        records = sum(fetched.records for fetched in answer.partitions.values())
        self.tally.count_acknowledged(due_s, self.loop.time(), records, records * plan.record_bytes)
        return await asyncio.sleep(answer.throttle_time_ms / 1_000)

    def end_run(self, end_s: float) -> None:
        super().end_run(end_s)
        self._link.drop()
