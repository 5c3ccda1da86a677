"""Steps shared by all kinds of producers: get a producer id, send a batch, reconnect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from pidgate.gateway.clock import wall_ms
from pidgate.load.cluster import Cluster
from pidgate.load.connection import Answer, Connection
from pidgate.load.exchanges import init_producer_id
from pidgate.load.journal import ProducerJournal
from pidgate.load.pipeline import RETRY_BACKOFF_S
from pidgate.load.plan import Address, Plan
from pidgate.load.tally import Tally
from pidgate.protocol import producer_requests
from pidgate.protocol.errors import ErrorCode, KafkaProtocolError
from pidgate.protocol.logins import LoginRefused
from pidgate.protocol.record_batch import RecordBatch

_LAST_EPOCH: Final = 0x7FFE  # the next one means that the id is used up
_ASK_AGAIN: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)


class Producer(NamedTuple):
    """A producer id with its epoch (KIP-98)."""

    producer_id: int
    producer_epoch: int

    def bumped(self) -> Producer | None:
        """Return the next epoch, with sequences from 0. None after the last one."""
        if self.producer_epoch >= _LAST_EPOCH:
            return None
        return self._replace(producer_epoch=self.producer_epoch + 1)


class NoProducerId(Exception):
    """InitProducerId failed with an error that cannot be retried."""


FAILURES = (OSError, KafkaProtocolError, NoProducerId, LoginRefused)
"""Raised by connecting, getting an id and sending."""


async def take_id(connection: Connection, tally: Tally, transactional_id: str | None = None) -> Producer:
    """Get a producer id like a client: ask again while the broker (or a gateway's quota) answers "later".

    Raises NoProducerId, ConnectionError (another broker coordinates the transactional id), OSError,
    KafkaProtocolError.
    """
    while True:
        answer = await connection.run(init_producer_id(transactional_id))
        tally.count_throttle(answer.throttle_time_ms)
        if answer.error_code == ErrorCode.NONE:
            await asyncio.sleep(answer.throttle_time_ms / 1_000)
            return Producer(answer.producer_id, answer.producer_epoch)
        tally.ids_refused[answer.error_code] += 1
        if answer.error_code == ErrorCode.NOT_COORDINATOR:
            raise ConnectionError("another broker coordinates this transactional id")
        if answer.error_code not in _ASK_AGAIN:
            raise NoProducerId(f"InitProducerId: error code {answer.error_code}")
        await asyncio.sleep(max(RETRY_BACKOFF_S, answer.throttle_time_ms / 1_000))


@dataclass(frozen=True, slots=True)
class Context:
    """A run's cluster, the records of all its batches, and its journal if it has one."""

    plan: Plan
    cluster: Cluster
    batch: RecordBatch
    own_ids: Iterator[int]
    journal: ProducerJournal | None = None

    @classmethod
    def of(cls, plan: Plan, journal: ProducerJournal | None = None) -> Context:
        dice = random.Random(plan.seed)
        values = [dice.randbytes(plan.record_bytes) for _ in range(plan.records_per_batch)]
        return cls(plan, Cluster(plan), RecordBatch(values), count(plan.first_id or 0), journal)

    def partitions_of(self, number: int) -> Sequence[int]:
        """Return the partitions to which producer `number` (from 0) sends each batch."""
        partitions, each = self.cluster.partitions, self.plan.partitions_each
        if not each:
            return range(partitions)
        return [(number * each + one) % partitions for one in range(each)]

    async def new_producer(self, connection: Connection, tally: Tally) -> Producer:
        """Return a new producer id. Raises the exceptions of `take_id`."""
        if self.plan.first_id is not None:
            producer = Producer(next(self.own_ids), 0)
        else:
            producer = await take_id(connection, tally)
        tally.ids += 1
        return producer

    def send_batch(
        self,
        connection: Connection,
        partitions: Sequence[int],
        producer: Producer,
        sequence: int,
        transactional_id: str | None = None,
        batch: RecordBatch | None = None,
    ) -> asyncio.Future[Answer]:
        """Send the batch with this sequence to each of the partitions, in one Produce request."""
        stamped = (batch or self.batch).stamped(
            *producer, sequence, wall_ms(), is_transactional=transactional_id is not None
        )
        return connection.send(
            producer_requests.produce_request(
                connection.next_correlation_id(),
                connection.client_id,
                self.plan.topic_or_id,
                [(partition, stamped) for partition in partitions],
                acks=self.plan.acks,
                transactional_id=transactional_id,
            )
        )

    def read_answer(self, frame: bytes) -> producer_requests.ProduceAnswer:
        """Read the answer to a batch. Raises KafkaProtocolError."""
        by_id = bool(self.plan.topic_id)
        version = producer_requests.PRODUCE_BY_ID_VERSION if by_id else producer_requests.PRODUCE_VERSION
        return producer_requests.produce_answer(frame, version)


class Link:
    """A connection to the address returned by `find`, opened on demand and again when it was lost."""

    def __init__(self, context: Context, tally: Tally, find: Callable[[], Awaitable[Address]]) -> None:
        self._context = context
        self._tally = tally
        self._find = find
        self._connection: Connection | None = None

    async def connection(self) -> Connection:
        """Return the connection, opened if necessary. Raises OSError, LoginRefused, KafkaProtocolError."""
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._context.cluster.connect(await self._find(), self._tally)
        return self._connection

    def drop(self) -> None:
        """Close the connection; the next call of `connection` looks up the address again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def end_task(task: asyncio.Future[None]) -> None:
    """Cancel a task that does not end by itself. Raises its exception if it has one: a programming error."""
    if task.done() and not task.cancelled():
        task.result()
    task.cancel()
