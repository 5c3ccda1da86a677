"""Steps that every kind of producer takes: a producer id, one try of a batch. The kinds decide on more."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pidgate.gateway.clock import wall_ms
from pidgate.load.cluster import Cluster
from pidgate.load.connection import Answer, Connection
from pidgate.load.exchanges import init_producer_id
from pidgate.load.pipeline import RETRY_BACKOFF_S
from pidgate.load.plan import Address, Plan
from pidgate.load.tally import Tally
from pidgate.protocol import producer_requests
from pidgate.protocol.errors import ErrorCode, KafkaProtocolError
from pidgate.protocol.logins import LoginRefused
from pidgate.protocol.record_batch import RecordBatch

_LAST_EPOCH: Final = 0x7FFE  # the one after it means that the id is used up
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
        """Return the next epoch, whose sequences begin at 0; None: this id has had its last one."""
        if self.producer_epoch >= _LAST_EPOCH:
            return None
        return self._replace(producer_epoch=self.producer_epoch + 1)


class NoProducerId(Exception):
    """InitProducerId was refused for another reason than "later"."""


FAILURES = (OSError, KafkaProtocolError, NoProducerId, LoginRefused)
"""Raised by connecting, taking an id and sending."""


async def take_id(connection: Connection, tally: Tally, transactional_id: str | None = None) -> Producer:
    """Ask for a producer id as clients do: again while the broker (or a gateway's quota) answers "later".

    Raises NoProducerId, ConnectionError (another broker coordinates the transactional id), OSError, KafkaProtocolError.
    """
    while True:
        answer = await connection.run(init_producer_id(transactional_id))
        tally.throttled(answer.throttle_time_ms)
        if answer.error_code == ErrorCode.NONE:
            await asyncio.sleep(answer.throttle_time_ms / 1_000)
            return Producer(answer.producer_id, answer.producer_epoch)
        tally.ids_refused[answer.error_code] += 1
        if answer.error_code == ErrorCode.NOT_COORDINATOR:
            raise ConnectionError("somebody else coordinates this transactional id")
        if answer.error_code not in _ASK_AGAIN:
            raise NoProducerId(f"InitProducerId: error code {answer.error_code}")
        await asyncio.sleep(max(RETRY_BACKOFF_S, answer.throttle_time_ms / 1_000))


@dataclass(frozen=True, slots=True)
class Context:
    """A run's cluster and the records that all of its batches hold."""

    plan: Plan
    cluster: Cluster
    batch: RecordBatch

    @classmethod
    def of(cls, plan: Plan) -> Context:
        dice = random.Random(plan.seed)
        values = [dice.randbytes(plan.record_bytes) for _ in range(plan.records_per_batch)]
        return cls(plan, Cluster(plan), RecordBatch(values))

    def send_batch(
        self,
        connection: Connection,
        partitions: Sequence[int],
        producer: Producer,
        sequence: int,
        transactional_id: str | None = None,
    ) -> asyncio.Future[Answer]:
        """Send the batch of this sequence to each of the partitions, in one Produce request."""
        batch = self.batch.stamped(
            *producer, sequence, wall_ms(), is_transactional=transactional_id is not None
        )
        return connection.send(
            producer_requests.produce_request(
                connection.next_correlation_id(),
                connection.client_id,
                self.plan.topic,
                [(partition, batch) for partition in partitions],
                acks=self.plan.acks,
                transactional_id=transactional_id,
            )
        )


class Link:
    """A connection to wherever `find` says, opened when it is needed and again when it was lost."""

    def __init__(self, context: Context, tally: Tally, find: Callable[[], Awaitable[Address]]) -> None:
        self._context = context
        self._tally = tally
        self._find = find
        self._connection: Connection | None = None

    async def connection(self) -> Connection:
        """Return the connection, made now if there is none. Raises OSError, LoginRefused, KafkaProtocolError."""
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._context.cluster.connect(await self._find(), self._tally)
        return self._connection

    def drop(self) -> None:
        """Close it; the next call of `connection` asks where to connect."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def end_task(task: asyncio.Future[None]) -> None:
    """Cancel a task that does not end by itself. Raises what it ended with, if it has: a mistake of ours."""
    if task.done() and not task.cancelled():
        task.result()
    task.cancel()
