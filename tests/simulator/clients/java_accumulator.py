"""The Java producer's batches between application and request: `RecordAccumulator`, and the sequences they get."""

from __future__ import annotations

from random import Random

from tests.simulator.clients.accumulator import Accumulator
from tests.simulator.clients.batches import Batch, State
from tests.simulator.clients.java_transactions import JavaTransactions
from tests.simulator.clients.node import Node
from tests.simulator.clients.sequences import Sequences
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.turns import Trace


class JavaAccumulator(Accumulator):
    """Says which batches may go to a node now, and in which order they are tried again."""

    transactions: JavaTransactions

    def __init__(self, name: str, settings: Settings, random: Random, trace: Trace | None = None) -> None:
        super().__init__(name, settings, random, trace)
        self.sequences: dict[int, Sequences] = {}
        self.unresolved: dict[int, int] = {}
        """Partitions of which a batch that had been sent has expired; the sequence behind it."""
        self.wants_epoch = False
        self.to_renumber: set[int] = set()
        """Partitions whose batches are numbered anew with the next epoch."""
        self.transactions = JavaTransactions(self)
        self._drain_index: dict[int, int] = {}

    def want_epoch_for(self, partition: int) -> None:
        """Bump the epoch in the next turn, and number what this partition has in flight anew."""
        self.wants_epoch = True
        self.to_renumber.add(partition)

    def reset_sequences(self) -> None:
        """All begins anew, with another epoch."""
        self.sequences.clear()
        self.unresolved.clear()

    def node_lost(self, node: Node, why: str) -> None:
        self.request_metadata()

    def is_ready(self, node: Node, now_s: float) -> bool:
        """`NetworkClient.ready`: nothing is, while metadata is due."""
        if node.connection is None:
            self.connect(node, now_s)
        elif node.throttled_until_s > now_s:
            self.wake_at(node.throttled_until_s)
        return not self.metadata_is_due(now_s) and self.can_ask(node, now_s)

    def ready_nodes(self, now_s: float) -> list[Node]:
        """Nodes that lead a partition whose first batch is not backing off."""
        ready: dict[int, None] = {}
        for partition, queue in self.queues.items():
            if not queue:
                continue
            leader = self.leaders.get(partition)
            if leader is None:
                self.request_metadata()
            elif leader[0] not in ready and self._may_try(queue[0], now_s):
                ready[leader[0]] = None
        return [self.nodes[node_id] for node_id in ready]

    def _may_try(self, batch: Batch, now_s: float) -> bool:
        """Not while it backs off, unless there is a new leader to try it at."""
        leader_epoch = self.leaders[batch.partition][1]
        if leader_epoch > batch.leader_epoch:
            batch.leader_epoch, batch.attempts_at_leader = leader_epoch, batch.attempts
        if not batch.attempts or batch.attempts == batch.attempts_at_leader or now_s >= batch.retry_at_s:
            return True
        self.wake_at(batch.retry_at_s)
        return False

    def drain(self, node: Node, now_s: float) -> list[Batch]:
        """Take one batch of each partition that the node leads (`drainBatchesForOneNode`)."""
        partitions = self.led_by(node)
        drained: list[Batch] = []
        index = start = self._drain_index.get(node.node_id, 0) % len(partitions)
        while True:
            # It stays where a partition has to wait: as in Java, that one blocks the round, and begins the next.
            self._drain_index[node.node_id] = index
            partition = partitions[index]
            index = (index + 1) % len(partitions)
            queue = self.queues.get(partition)
            if queue and self._may_try(queue[0], now_s):
                if self._must_wait(queue[0]):
                    break
                drained.append(self._taken(queue.popleft()))
            if index == start:
                break
        return drained

    def _must_wait(self, first: Batch) -> bool:
        """`shouldStopDrainBatchesForPartition`."""
        transactions, partition = self.transactions, first.partition
        if transactions.producer_id < 0 or not transactions.may_send_to(partition):
            return True
        sequences = self.sequences.get(partition)
        if sequences is None:
            return False
        if first.base_sequence < 0:
            is_stale = (sequences.producer_id, sequences.epoch) != transactions.held
            if (sequences.in_flight and is_stale) or partition in self.unresolved:
                return True
        elif sequences.in_flight and sequences.in_flight[0].base_sequence != first.base_sequence:
            return True
        return False

    def _taken(self, batch: Batch) -> Batch:
        sequences = self.sequences_of(batch.partition)
        if batch.base_sequence < 0:
            if (sequences.producer_id, sequences.epoch) != self.transactions.held and not sequences.in_flight:
                sequences.start_at_beginning(*self.transactions.held)
            sequences.number(batch)
        batch.is_reset = False
        batch.state = State.IN_FLIGHT
        return batch

    def sequences_of(self, partition: int) -> Sequences:
        """Made at first use."""
        found = self.sequences.get(partition)
        if found is None:
            found = self.sequences[partition] = Sequences()
        return found

    def abort_undrained(self, error: str) -> None:
        """Fail what has not been sent (`abortUndrainedBatches`); what has is tried until its end is known."""
        for batch in list(self.open):
            if batch.base_sequence < 0 and batch.state is State.QUEUED:
                self.queues[batch.partition].remove(batch)
                self.failed(batch, error)

    def reenqueue(self, batch: Batch) -> None:
        """Try it again later, before all with a higher sequence."""
        now_s = self.now_s
        batch.attempts += 1
        batch.last_attempt_s = now_s
        batch.retry_at_s = now_s + self.backoff_s(
            self.t.retry_backoff_s, self.t.retry_backoff_max_s, batch.attempts - 1
        )
        batch.state = State.RETRY
        queue = self.queues[batch.partition]
        at = 0
        while at < len(queue) and 0 <= queue[at].base_sequence < batch.base_sequence:
            at += 1
        queue.insert(at, batch)
