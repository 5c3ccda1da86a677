"""A transactional producer: one transactional id for the run, one batch per transaction.

InitProducerId once, then AddPartitionsToTxn, Produce, EndTxn for each batch (KIP-98). Each of them may be
sent again over a new connection: the brokers recognize repetitions. A transaction that cannot be completed is
aborted by a new epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pidgate.load.connection import Answer
from pidgate.load.context import FAILURES, Context, Link, NoProducerId, Producer, take_id
from pidgate.load.loops import OneByOne
from pidgate.load.pipeline import MOVED, RETRIABLE, RETRY_BACKOFF_S
from pidgate.load.tally import Tally
from pidgate.protocol import messages, producer_requests
from pidgate.protocol.errors import ErrorCode, KafkaProtocolError
from pidgate.protocol.logins import Build, LoginRefused

_BUSY_S: Final = 0.02
"""Pause while the markers of the last transaction are written, as in Java."""
_COORDINATOR_MOVED: Final = frozenset((ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR))
_LATER: Final = RETRIABLE | _COORDINATOR_MOVED
_REFUSED_AGAIN_S: Final = 1.0


class _Broken(Exception):
    """A transaction cannot be completed."""


class Transactional(OneByOne):
    """Transactional producer.

    Its latency covers the whole transaction: records count when they are committed.
    """

    transactional_id: str

    def __init__(self, context: Context, tally: Tally, number: int) -> None:
        super().__init__(context, tally, number)
        self.transactional_id = name = f"{context.plan.client_id}-{number}"
        self._partition = number % context.cluster.partitions
        self._coordinator = Link(context, tally, lambda: context.cluster.coordinator(name))
        self._leader = self.link_to_leader(self._partition)
        self._producer: Producer | None = None
        self._beginning = asyncio.Lock()
        self._last_id = -1
        self._sequence = 0
        self._give_up_s = float("inf")

    async def prepare(self) -> None:
        """Get a producer id. A second caller waits for the first: each InitProducerId fences the one before."""
        async with self._beginning:
            await self._take_id()

    async def _take_id(self) -> None:
        while self._producer is None:
            try:
                coordinator = await self._coordinator.connection()
                producer = await take_id(coordinator, self.tally, self.transactional_id)
            except (NoProducerId, LoginRefused):
                await asyncio.sleep(_REFUSED_AGAIN_S)
            except (OSError, KafkaProtocolError):
                self._coordinator.drop()
                await asyncio.sleep(RETRY_BACKOFF_S)
            else:
                self._producer, self._sequence = producer, 0
                self.tally.ids += producer.producer_id != self._last_id
                self._last_id = producer.producer_id

    def end_run(self, end_s: float) -> None:
        super().end_run(end_s)
        self._coordinator.drop()
        self._leader.drop()

    async def do_work(self, due_s: float) -> None:
        self._give_up_s = due_s + self.context.plan.delivery_timeout_s
        await self.prepare()
        try:
            await self._add_partition()
            await self._produce()
            arrived_s = await self._commit()
        except _Broken:
            self.tally.count_lost(due_s)
            self._producer = None
            return
        self.count_acknowledged(due_s, arrived_s)

    async def _add_partition(self) -> None:
        producer, topic = self._known_producer(), self.context.plan.topic

        def build(n: int, client_id: str) -> bytes:
            return producer_requests.add_partition_to_txn_request(
                n, client_id, self.transactional_id, producer, topic, self._partition
            )

        await self._settle(build, producer_requests.add_partition_to_txn_answer)

    async def _commit(self) -> float:
        producer = self._known_producer()

        def build(n: int, client_id: str) -> bytes:
            return producer_requests.end_txn_request(
                n, client_id, self.transactional_id, producer, commit=True
            )

        def error_code(frame: bytes) -> int:
            version = producer_requests.END_TXN_VERSION
            return messages.end_txn_answer(frame, 0, len(frame), version).error_code

        return (await self._settle(build, error_code)).arrived_s

    async def _settle(self, build: Build, error_code_of: Callable[[bytes], int]) -> Answer:
        """Send a request to the coordinator until it succeeds. Raises _Broken."""
        while self.loop.time() < self._give_up_s:
            pause_s = _BUSY_S
            try:
                answer = await (await self._coordinator.connection()).ask(build)
                error_code = error_code_of(answer.frame)
                throttle_ms = producer_requests.throttle_time_ms(answer.frame)
                self.tally.count_throttle(throttle_ms)
                if error_code == ErrorCode.NONE:
                    await asyncio.sleep(throttle_ms / 1_000)
                    return answer
                if error_code not in _LATER:
                    break
                if error_code in _COORDINATOR_MOVED:
                    self._coordinator.drop()
                pause_s = max(pause_s, throttle_ms / 1_000)
            except FAILURES:
                self._coordinator.drop()
                self.tally.connection_errors += 1
                pause_s = RETRY_BACKOFF_S
            await asyncio.sleep(pause_s)
        raise _Broken

    async def _produce(self) -> None:
        tries, producer = 0, self._known_producer()
        while self.loop.time() < self._give_up_s:
            tries += 1
            try:
                connection = await self._leader.connection()
                answer, _ = await self.try_batch(
                    connection, (self._partition,), producer, self._sequence, tries
                )
                error_code, throttle_ms = answer.error_code, answer.throttle_time_ms
            except FAILURES:
                self.tally.connection_errors += 1
                error_code, throttle_ms = ErrorCode.NOT_LEADER_OR_FOLLOWER, 0
            if error_code == ErrorCode.NONE:
                self._sequence = self.context.batch.next_sequence(self._sequence)
                await asyncio.sleep(throttle_ms / 1_000)
                return
            if error_code not in RETRIABLE:
                break
            if error_code in MOVED:
                self._leader.drop()
                await self.context.cluster.refresh()
            await asyncio.sleep(max(RETRY_BACKOFF_S, throttle_ms / 1_000))
        raise _Broken

    def _known_producer(self) -> Producer:
        assert self._producer is not None
        return self._producer
