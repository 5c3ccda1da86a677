"""The Java producer: `Sender`, the idempotent half of `TransactionManager`, and `NetworkClient`'s throttling.

It keeps batches as they were first sent, retries a partition's batches one at a time and in order, sends new ones
beside the last retry, and bumps its epoch by itself. One request holds one batch of each partition of a node.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from pidgate.load.plan import Address
from tests.simulator.clients import errors, frames
from tests.simulator.clients.batches import Batch
from tests.simulator.clients.java_accumulator import JavaAccumulator
from tests.simulator.clients.node import Node
from tests.simulator.clients.settings import Times

_LAST_EPOCH = 32_767


class JavaProducer(JavaAccumulator):
    """Kafka 4.x's `KafkaProducer`, idempotent or transactional."""

    family = "java"
    software = "apache-kafka-java"
    asks_versions_again = True
    newest_api_versions = 4
    times = Times(
        request_s=30.0,
        delivery_s=120.0,
        retry_backoff_s=0.1,
        retry_backoff_max_s=1.0,
        reconnect_backoff_s=0.05,
        reconnect_backoff_max_s=1.0,
        metadata_backoff_s=0.1,
        connect_s=10.0,
        max_block_s=60.0,
    )
    newest: ClassVar[dict[int, int]] = {
        frames.PRODUCE: 13,
        frames.METADATA: 13,
        frames.FIND_COORDINATOR: 6,
        frames.INIT_PRODUCER_ID: 5,
        frames.ADD_PARTITIONS: 3,
        frames.END_TXN: 5,
    }

    # ---- the application -------------------------------------------------------------------------------

    async def finish_up(self) -> None:
        await super().finish_up()
        await self.transactions.finish_up()

    # ---- Sender.runOnce --------------------------------------------------------------------------------

    def turn(self, now_s: float) -> None:
        self.serve_metadata(now_s)
        while True:
            self._resolve_sequences()
            if self.told.fatal:
                self.end_fatally()
                return
            if self.transactional_id is None and self.wants_epoch:
                self._bump_epoch()
            if self.transactions.serve(now_s) or not self._send_producer_data(now_s):
                return

    def _send_producer_data(self, now_s: float) -> bool:
        collated: list[tuple[Node, list[Batch]]] = []
        for node in self.ready_nodes(now_s):
            if self.is_ready(node, now_s):
                batches = self.drain(node, now_s)
                if batches:
                    collated.append((node, batches))
        self._expire(now_s)
        for node, batches in collated:
            self.produce(node, batches, partial(self._answered, node, batches))
        return bool(collated)

    def _expire(self, now_s: float) -> None:
        for batch in self.expired(now_s):
            self._fail(batch, errors.TIMED_OUT, gap_is_known=False)
            if batch.attempts:
                behind = max(self.unresolved.get(batch.partition, 0), batch.last_sequence + 1)
                self.unresolved[batch.partition] = behind
                self.wake()

    # ---- requests and answers --------------------------------------------------------------------------

    def _answered(self, node: Node, batches: list[Batch], answer: bytes | None, version: int) -> None:
        if answer is None:
            for batch in batches:
                batch.is_uncertain = True
                self._complete(batch, frames.Outcome(batch.partition, errors.NETWORK, -1, -1, (-1, -1)))
            return
        outcomes, endpoints = self.read_produce(node, answer, version)
        by_partition = {batch.partition: batch for batch in batches}
        for outcome in outcomes:
            self._complete(by_partition[outcome.partition], outcome)
            if outcome.leader[0] >= 0 and outcome.leader[1] >= 0:
                self._learn_from_answer(outcome, endpoints)

    def _learn_from_answer(self, outcome: frames.Outcome, endpoints: dict[int, Address]) -> None:
        node_id = outcome.leader[0]
        if node_id in endpoints:
            self.node_at(node_id, endpoints[node_id])
        if node_id in self.nodes:
            self.learn_leader(outcome.partition, outcome.leader)

    def _complete(self, batch: Batch, outcome: frames.Outcome) -> None:
        """`Sender.completeBatch`."""
        error = outcome.error_code
        if error == 0:
            self._succeed(batch, outcome.base_offset)
            return
        if self._can_retry(batch, outcome):
            self.reenqueue(batch)
        elif error == errors.DUPLICATE:
            self._succeed(batch, -1)
        elif not batch.is_done:
            self._fail(batch, error, gap_is_known=True)
        if error in errors.INVALID_METADATA:
            self.request_metadata()

    def _can_retry(self, batch: Batch, outcome: frames.Outcome) -> bool:
        """`Sender.canRetry` and `TransactionManager.canRetry`."""
        if batch.is_done or batch.queued_s + self.t.delivery_s <= self.now_s:
            return False
        error, partition = outcome.error_code, batch.partition
        sequences, is_idempotent = self.sequences_of(partition), self.transactional_id is None
        if error == errors.UNKNOWN_PRODUCER_ID:
            if outcome.log_start_offset == -1 or batch.is_reset:
                return True
            if sequences.last_acked_offset < outcome.log_start_offset and not is_idempotent:
                sequences.start_at_beginning(*self.transactions.held)
                return True
            if is_idempotent:
                self.want_epoch_for(partition)
                return True
        elif error == errors.OUT_OF_ORDER:
            behind = self.unresolved.get(partition)
            if behind is None and (batch.is_reset or not sequences.is_next(batch.base_sequence)):
                return True
            if is_idempotent:
                if behind is None or batch.base_sequence == behind:
                    self.want_epoch_for(partition)
                return True
        return error in errors.RETRIABLE

    def _succeed(self, batch: Batch, offset: int) -> None:
        self.sequences_of(batch.partition).acked(batch, offset)
        if not batch.is_done:
            self.acked(batch, offset)

    def _fail(self, batch: Batch, error: int, *, gap_is_known: bool) -> None:
        """`Sender.failBatch` and `TransactionManager.handleFailedBatch`."""
        self.failed(batch, errors.words(error))
        self.transactions.batch_failed(error)
        sequences = self.sequences_of(batch.partition)
        sequences.remove(batch)
        if self.told.fatal:
            return
        if error == errors.UNKNOWN_PRODUCER_ID:
            del self.sequences[batch.partition]
            self.unresolved.pop(batch.partition, None)
        elif self.transactional_id is None and (gap_is_known or error == errors.OUT_OF_ORDER):
            self.want_epoch_for(batch.partition)
        elif gap_is_known:
            sequences.close_gap(batch)

    # ---- sequences -------------------------------------------------------------------------------------

    def _resolve_sequences(self) -> None:
        """`maybeResolveSequences`: all that had been sent is done; did the broker take it?"""
        for partition in [*self.unresolved]:
            sequences = self.sequences_of(partition)
            if sequences.in_flight:
                continue
            del self.unresolved[partition]
            if sequences.is_next(sequences.next_sequence):
                continue
            if self.transactional_id is None:
                self.want_epoch_for(partition)
            else:
                self.transactions.sequences_are_lost()

    def _bump_epoch(self) -> None:
        """`bumpIdempotentProducerEpoch`."""
        transactions = self.transactions
        if transactions.epoch >= _LAST_EPOCH:
            transactions.forget_id()
        else:
            transactions.epoch += 1
        if self.is_traced:
            self.note(f"bumps its epoch to {transactions.epoch}")
        for partition in sorted(self.to_renumber):
            self.sequences_of(partition).start_at_beginning(*transactions.held)
            self.unresolved.pop(partition, None)
        self.to_renumber.clear()
        self.wants_epoch = False
