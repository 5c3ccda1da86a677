"""What every kind of producer does: take a producer id, send a batch. One try; the kinds decide on more."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Final, NamedTuple

from pidgate.gateway.clock import wall_ms
from pidgate.load.cluster import Cluster
from pidgate.load.connection import Answer, Connection
from pidgate.load.pipeline import RETRY_BACKOFF_S
from pidgate.load.plan import Plan
from pidgate.load.tally import Tally
from pidgate.protocol import messages, producer_requests, throttle
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.produce_answers import may_hold_errors, partition_errors
from pidgate.protocol.record_batch import RecordBatch

_VERSION: Final = producer_requests.PRODUCE_VERSION
_LAST_EPOCH: Final = 0x7FFE  # the one after it means that the id is used up
_ASK_AGAIN: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)


class Producer(NamedTuple):
    """Who sends: KIP-98."""

    producer_id: int
    producer_epoch: int

    def bumped(self) -> Producer | None:
        """In the next epoch, with sequences from 0 on; None: this id has had its last one."""
        if self.producer_epoch >= _LAST_EPOCH:
            return None
        return self._replace(producer_epoch=self.producer_epoch + 1)


class NoProducerId(Exception):
    """InitProducerId was refused for another reason than "later"."""


@dataclass(frozen=True, slots=True)
class Context:
    """One run's cluster and the records that all of its batches hold."""

    plan: Plan
    cluster: Cluster
    batch: RecordBatch

    @classmethod
    def of(cls, plan: Plan) -> Context:
        dice = random.Random(plan.seed)
        values = [dice.randbytes(plan.record_bytes) for _ in range(plan.records_per_batch)]
        return cls(plan, Cluster(plan), RecordBatch(values))

    async def take_id(
        self, connection: Connection, tally: Tally, transactional_id: str | None = None
    ) -> Producer:
        """As clients do: again while the broker (or a gateway's quota) says "later".

        Raises NoProducerId, OSError, KafkaProtocolError.
        """
        client_id = self.plan.client_id
        while True:
            answer = await connection.ask(
                lambda n: producer_requests.init_producer_id_request(n, client_id, transactional_id)
            )
            frame = answer.frame
            told = messages.init_producer_id_answer(
                frame, 0, len(frame), producer_requests.INIT_PRODUCER_ID_VERSION
            )
            throttle_ms = producer_requests.throttle_time_ms(frame)
            tally.throttled(throttle_ms)
            if told.error_code == ErrorCode.NONE:
                await asyncio.sleep(throttle_ms / 1_000)
                return Producer(told.producer_id, told.producer_epoch)
            tally.ids_refused[told.error_code] += 1
            if told.error_code == ErrorCode.NOT_COORDINATOR:
                raise ConnectionError("somebody else coordinates this transactional id")
            if told.error_code not in _ASK_AGAIN:
                raise NoProducerId(f"InitProducerId: error code {told.error_code}")
            await asyncio.sleep(max(RETRY_BACKOFF_S, throttle_ms / 1_000))

    def send_batch(
        self,
        connection: Connection,
        partition: int,
        producer: Producer,
        sequence: int,
        transactional_id: str | None = None,
    ) -> asyncio.Future[Answer]:
        """One Produce request with the batch of this sequence."""
        batch = self.batch.stamped(
            *producer, sequence, wall_ms(), is_transactional=transactional_id is not None
        )
        return connection.send(
            producer_requests.produce_request(
                connection.next_correlation_id(),
                self.plan.client_id,
                self.plan.topic,
                ((partition, batch),),
                acks=self.plan.acks,
                transactional_id=transactional_id,
            )
        )


def read_produce_answer(frame: bytes) -> tuple[int, int]:
    """(error code of the one partition, throttle_time_ms). Raises KafkaProtocolError."""
    end = len(frame)
    errors = partition_errors(frame, 0, end, _VERSION) if may_hold_errors(frame, 0, end, _VERSION) else []
    at = throttle.produce_throttle_at(frame, 0, end, _VERSION)
    return errors[0][2] if errors else 0, 0 if at is None else throttle.read(frame, at)
