"""The kafka-python producer, 3.0: `producer/sender.py`, `producer/record_accumulator.py`, `net/manager.py`.

It comes from Java's of long ago. With idempotence a partition has one batch in flight (`guarantee_message_order`). 45
fails the batch, and brings another producer id. A throttled connection is paused. One request holds one batch of each
partition of a node.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import ClassVar

from tests.simulator.clients import errors, frames
from tests.simulator.clients.accumulator import Accumulator
from tests.simulator.clients.batches import Batch, State, Wait
from tests.simulator.clients.kafka_python_transactions import RETRIABLE, KafkaPythonTransactions
from tests.simulator.clients.node import Node
from tests.simulator.clients.settings import Settings, Times
from tests.simulator.clients.transaction_manager import State as Asking
from tests.simulator.clients.turns import Trace

_NEEDS_EPOCH = (errors.OUT_OF_ORDER, errors.UNKNOWN_PRODUCER_ID, errors.STALE_EPOCH)


class KafkaPythonProducer(Accumulator):
    """kafka-python 3.0's `KafkaProducer`, idempotent by default, or transactional."""

    family = "kafka-python"
    software = "kafka-python"
    newest_api_versions = 4
    times = Times(
        request_s=30.0,
        delivery_s=120.0,
        retry_backoff_s=0.1,
        retry_backoff_max_s=0.1,
        reconnect_backoff_s=0.05,
        reconnect_backoff_max_s=30.0,
        metadata_backoff_s=0.1,
        connect_s=10.0,
        max_block_s=60.0,
    )
    newest: ClassVar[dict[int, int]] = {
        frames.PRODUCE: 9,
        frames.METADATA: 13,
        frames.FIND_COORDINATOR: 6,
        frames.INIT_PRODUCER_ID: 4,
        frames.ADD_PARTITIONS: 3,
        frames.END_TXN: 3,
    }

    transactions: KafkaPythonTransactions

    def __init__(self, name: str, settings: Settings, random: Random, trace: Trace | None = None) -> None:
        super().__init__(name, settings, random, trace)
        self.transactions = KafkaPythonTransactions(self)
        self._muted: set[int] = set()
        """Partitions with a batch in flight."""
        self._sequences: dict[int, int] = {}
        self._last_offsets: dict[int, int] = {}
        self._drain_index = 0

    @property
    def is_stuck(self) -> bool:
        """Its id was reset and it asks for no other: nothing is sent and nobody is told. A fault of the real one."""
        ids = self.transactions
        # Before its bootstrap nothing has been asked for yet.
        was_given = ids.state is not Asking.UNINITIALIZED
        return was_given and ids.producer_id < 0 and ids.requests.is_empty and bool(self.open)

    # ---- Sender.run_once -------------------------------------------------------------------------------

    def turn(self, now_s: float) -> None:
        self.serve_metadata(now_s)
        while True:
            if self.told.fatal:
                self.end_fatally()
                return
            if not self.leaders:
                return  # not bootstrapped: the constructor has not come back
            if self.transactions.serve(now_s) or not self._send_producer_data(now_s):
                return

    def _send_producer_data(self, now_s: float) -> bool:
        collated: list[tuple[Node, list[Batch]]] = []
        for node in self._ready_nodes(now_s):
            if self.is_ready(node, now_s):
                batches = self._drain(node, now_s)
                if batches:
                    collated.append((node, batches))
            elif node.connection is None:
                self.connect(node, now_s)
        expired = self.expired(now_s)
        for batch in expired:
            self._erred(batch, errors.TIMED_OUT, -1)
        if any(batch.attempts for batch in expired):
            # What was drained in this turn goes nowhere, and expires. In transactions an exception has that effect.
            self.transactions.reset_id()
            return True
        for node, batches in collated:
            self.produce(node, batches, partial(self._answered, node, batches))
        return bool(collated)

    def is_ready(self, node: Node, now_s: float) -> bool:
        """Connected, and not paused."""
        if node.is_up and node.throttled_until_s > now_s:
            self.wake_at(node.throttled_until_s)
        return self.can_ask(node, now_s)

    def _ready_nodes(self, now_s: float) -> list[Node]:
        ready: dict[int, None] = {}
        for partition, queue in self.queues.items():
            leader = self.leaders.get(partition)
            if leader is None:
                self.request_metadata()
            elif queue and partition not in self._muted and self._may_try(queue[0], now_s):
                ready[leader[0]] = None
        return [self.nodes[node_id] for node_id in ready]

    def _may_try(self, batch: Batch, now_s: float) -> bool:
        if not batch.attempts or now_s >= batch.retry_at_s:
            return True
        self.wake_at(batch.retry_at_s)
        return False

    def _drain(self, node: Node, now_s: float) -> list[Batch]:
        partitions = self.led_by(node)
        drained: list[Batch] = []
        self._drain_index %= len(partitions)
        start = self._drain_index
        while True:
            partition = partitions[self._drain_index]
            self._drain_index = (self._drain_index + 1) % len(partitions)
            queue = self.queues.get(partition)
            if queue and partition not in self._muted and self._may_try(queue[0], now_s):
                if not self.transactions.may_send_to(partition):
                    break
                drained.append(self._taken(queue.popleft()))
            if self._drain_index == start:
                break
        return drained

    def _taken(self, batch: Batch) -> Batch:
        if not batch.attempts:
            sequence = self._sequences.get(batch.partition, 0)
            batch.numbered(*self.transactions.held, sequence)
            self._sequences[batch.partition] = sequence + batch.records & 0x7FFFFFFF
        batch.state = State.IN_FLIGHT
        self._muted.add(batch.partition)
        return batch

    def abort_undrained(self, error: str) -> None:
        """Fail what was never drained."""
        for batch in list(self.open):
            if batch.state is State.QUEUED:
                self.queues[batch.partition].remove(batch)
                self.failed(batch, error)

    def reset_sequences(self) -> None:
        """All partitions begin at 0 again."""
        self._sequences.clear()
        self._last_offsets.clear()

    # ---- requests and answers --------------------------------------------------------------------------

    def _answered(self, node: Node, batches: list[Batch], answer: bytes | None, version: int) -> None:
        if answer is None:
            code = errors.TIMED_OUT if self.lost_by == "timeout" else errors.NETWORK
            for batch in batches:
                batch.is_uncertain = True
                self._erred(batch, code, -1)
            return
        outcomes, _ = self.read_produce(node, answer, version)
        by_partition = {batch.partition: batch for batch in batches}
        for outcome in outcomes:
            self._complete(by_partition[outcome.partition], outcome)

    def _complete(self, batch: Batch, outcome: frames.Outcome) -> None:
        """`_complete_batch`."""
        if outcome.error_code not in (0, errors.DUPLICATE):
            self._erred(batch, outcome.error_code, outcome.log_start_offset)
            return
        if (batch.producer_id, batch.epoch) == self.transactions.held and outcome.base_offset >= 0:
            last_offset = outcome.base_offset + batch.records - 1
            self._last_offsets[batch.partition] = max(
                self._last_offsets.get(batch.partition, -1), last_offset
            )
        self._muted.discard(batch.partition)
        if not batch.is_done:
            self.acked(batch, outcome.base_offset)

    def _erred(self, batch: Batch, error: int, log_start_offset: int) -> None:
        """`_dispatch_error`."""
        self._muted.discard(batch.partition)
        now_s = self.now_s
        is_late = batch.queued_s + self.t.delivery_s <= now_s
        is_current = (batch.producer_id, batch.epoch) == self.transactions.held
        by_retention = (
            error == errors.UNKNOWN_PRODUCER_ID
            and log_start_offset >= 0
            and log_start_offset > self._last_offsets.get(batch.partition, -1)
        )
        if not batch.is_done and not is_late and is_current and (error in RETRIABLE or by_retention):
            if by_retention:
                self._sequences.pop(batch.partition, None)
                self._last_offsets.pop(batch.partition, None)
            self._reenqueue(batch, now_s)
        else:
            self._give_up(batch, error, by_retention=by_retention)
        if error in errors.INVALID_METADATA:
            self.request_metadata()

    def _reenqueue(self, batch: Batch, now_s: float) -> None:
        batch.attempts += 1
        batch.last_attempt_s = now_s
        batch.retry_at_s = now_s + self.t.retry_backoff_s
        batch.state = State.RETRY
        self.queues[batch.partition].appendleft(batch)

    def _give_up(self, batch: Batch, error: int, *, by_retention: bool) -> None:
        """`classify_batch_error`, and what it leads to."""
        if error in (
            errors.CLUSTER_FORBIDDEN,
            errors.TRANSACTION_FORBIDDEN,
            errors.FENCED,
            errors.INVALID_STATE,
        ):
            self.is_of_no_use(errors.words(error))
        elif error in _NEEDS_EPOCH and not by_retention:
            self.transactions.bump()
        elif error not in RETRIABLE and not by_retention:
            if self.transactional_id is not None:
                self.transactions.abortable(errors.words(error))
            else:
                self.is_of_no_use(errors.words(error))
        if not batch.is_done:
            self.failed(batch, errors.words(error))

    # ---- connections -----------------------------------------------------------------------------------

    def throttled(self, node: Node, throttle_ms: int) -> None:
        """The connection is paused; what is in flight has no more time for that."""
        until_s = self.now_s + throttle_ms / 1000
        if throttle_ms > 0 and until_s > node.throttled_until_s:
            node.throttled_until_s = until_s
            self.told.waits.append(Wait("throttle", self.now_s, until_s))

    def node_lost(self, node: Node, why: str) -> None:
        if not why.startswith("cannot connect"):
            # Only an attempt that came to nothing makes the next one wait.
            node.retry_at_s, node.failures = self.now_s, max(node.failures - 1, 0)
        self.request_metadata()

    def learn(self, found: frames.Leaders) -> None:
        super().learn(found)
        for node_id in [node_id for node_id in self.nodes if node_id < 0]:
            connection = self.nodes.pop(node_id).connection
            if connection is not None:
                connection.close("bootstrapped")
