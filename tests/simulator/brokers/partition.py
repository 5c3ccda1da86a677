"""One partition: its log, its replicas, its leader, and what waits for replication. Pure.

Kafka: cluster/Partition, UnifiedLog, DelayedProduce. Replicas hold a beginning of the leader's log each; what none of
the in-sync ones lacks is below the high watermark. A new leader has what replication made it: the log ends where its
replica ended, and producer state is what replaying that log gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kio.schema.errors import ErrorCode

from pidgate.protocol.produce import TRANSACTIONAL
from tests.simulator.brokers.batches import NO_PRODUCER_ID, BatchHead, marker_batch
from tests.simulator.brokers.entries import Appended, Entry, Waiting
from tests.simulator.brokers.producer_state import OK, ProducerStates, Verification


class Partition:
    """`replicas[0]` leads at first; all are in sync."""

    def __init__(self, topic: str, index: int, replicas: Sequence[int], min_in_sync: int = 1) -> None:
        self.topic, self.index = topic, index
        self.replicas = tuple(replicas)
        self.in_sync = list(replicas)
        self.min_in_sync = min_in_sync
        self.leader: int | None = self.replicas[0]
        self.leader_epoch = 0
        self.log: list[Entry] = []
        self.end_offset = 0
        self.high_watermark = 0
        self.states = ProducerStates()
        self.lost: list[Entry] = []
        """Batches that were in the log of a leader, and went with it."""
        self._ends = dict.fromkeys(self.replicas, 0)
        self._waiting: list[Waiting] = []
        self._aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker) of aborted transactions: the transaction index."""

    # ---- what a leader does ------------------------------------------------------------------------------

    def refusal(self, node_id: int, acks: int) -> ErrorCode:
        """Partition.appendRecordsToLeader before it looks at the records."""
        if self.leader != node_id:
            return ErrorCode.not_leader_or_follower
        if acks == -1 and len(self.in_sync) < self.min_in_sync:
            return ErrorCode.not_enough_replicas
        return OK

    def append(self, head: BatchHead, raw: bytes, guard: Verification | None = None) -> Appended:
        """UnifiedLog.appendAsLeader of a client's batch: appended, known as a duplicate, or refused."""
        if head.producer_id >= 0:
            kept = self.states.duplicate_of(head)
            if kept is not None:
                return Appended(OK, kept.base_offset, kept.last_offset + 1)
            error = self.states.judge(head, guard)
            if error is not OK:
                return Appended(error)
        return self._appended(head, raw)

    def append_offsets(
        self, producer_id: int, epoch: int, guard: Verification | None, now_ms: int
    ) -> ErrorCode:
        """Offsets of a transaction, appended by the group's coordinator: a batch without a sequence."""
        head = BatchHead(producer_id, epoch, -1, 1, 0, TRANSACTIONAL, now_ms, 0)
        error = self.states.judge(head, guard, has_sequence=False)
        if error is OK:
            self._appended(head, b"")
        return error

    def _appended(self, head: BatchHead, raw: bytes) -> Appended:
        base_offset = self.end_offset
        self._take(
            Entry(
                base_offset,
                self.leader_epoch,
                head.producer_id,
                head.epoch,
                head.base_sequence,
                head.records,
                head.is_transactional,
                None,
                raw,
                head,
                head.max_timestamp_ms,
            )
        )
        return Appended(OK, base_offset, self.end_offset)

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        transactions_v2: bool,
    ) -> ErrorCode:
        """WriteTxnMarkers for this partition, at its leader."""
        if self.leader is None:
            return ErrorCode.not_leader_or_follower
        error = self.states.judge_marker(
            producer_id, epoch, coordinator_epoch, transactions_v2=transactions_v2
        )
        if error is not OK:
            return error
        raw = marker_batch(producer_id, epoch, coordinator_epoch, now_ms, commit=commit)
        base_offset, leader_epoch = self.end_offset, self.leader_epoch
        entry = Entry(
            base_offset,
            leader_epoch,
            producer_id,
            epoch,
            -1,
            1,
            True,
            commit,
            raw,
            None,
            now_ms,
            coordinator_epoch,
        )
        self._take(entry)
        return OK

    def _take(self, entry: Entry) -> None:
        self.log.append(entry)
        self.end_offset = entry.next_offset
        self._know(entry)
        if self.leader is not None:
            self._ends[self.leader] = self.end_offset
        if len(self.in_sync) == 1:
            self._move_high_watermark()

    def _know(self, entry: Entry) -> None:
        if entry.head is not None:
            if entry.producer_id != NO_PRODUCER_ID:
                self.states.append(entry.head, entry.base_offset)
            return
        first_offset = self.states.append_marker(
            entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.base_offset, entry.timestamp_ms
        )
        if first_offset is not None and not entry.commits:
            self._aborted.append((entry.producer_id, first_offset, entry.base_offset))

    def wait(self, next_offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` when all in-sync replicas have the log up to there, or it cannot come to that any more."""
        if self.high_watermark >= next_offset:
            done(self._replicated())
        else:
            self._waiting.append(Waiting(next_offset, done))

    def _replicated(self) -> ErrorCode:
        """Partition.checkEnoughReplicasReachOffset."""
        enough = len(self.in_sync) >= self.min_in_sync
        return OK if enough else ErrorCode.not_enough_replicas_after_append

    # ---- replication -------------------------------------------------------------------------------------

    def followers(self) -> list[int]:
        """In-sync replicas that lack a part of the log."""
        return [node for node in self.in_sync if node != self.leader and self._ends[node] < self.end_offset]

    def replicate(self, node_id: int, up_to: int, leader_epoch: int) -> None:
        """The follower has fetched from the leader of that epoch up to this offset."""
        if leader_epoch == self.leader_epoch and node_id in self.in_sync:
            self._ends[node_id] = max(self._ends[node_id], min(up_to, self.end_offset))
            self._move_high_watermark()

    def replicate_now(self) -> None:
        """All in-sync replicas have all of the log."""
        if self.high_watermark < self.end_offset:
            for node_id in self.in_sync:
                self._ends[node_id] = self.end_offset
            self._move_high_watermark()

    def _move_high_watermark(self) -> None:
        self.high_watermark = max(self.high_watermark, min([self._ends[node] for node in self.in_sync]))
        self.states.replicated(self.high_watermark)
        if self._waiting:
            reached = [wait for wait in self._waiting if wait.next_offset <= self.high_watermark]
            self._waiting = [wait for wait in self._waiting if wait.next_offset > self.high_watermark]
            for wait in reached:
                wait.done(self._replicated())

    def move_leader(self, node_id: int) -> None:
        """Another in-sync replica leads: what it lacks is lost, and was never acknowledged to acks=all.

        Raises ValueError for a node that is not in sync (an unclean election).
        """
        if node_id not in self.in_sync:
            raise ValueError(f"node {node_id} is not in sync for {self.topic}-{self.index}")
        self.leader = node_id
        self.leader_epoch += 1
        self._truncate(self._ends[node_id])
        waiting, self._waiting = self._waiting, []
        for wait in waiting:
            wait.done(ErrorCode.not_leader_or_follower)

    def node_lost(self, node_id: int) -> None:
        """The node is down: out of the in-sync replicas, and another leads if it did and there is one."""
        if node_id not in self.in_sync or self.in_sync == [node_id]:
            # The last in-sync replica stays one; without it there is no leader.
            if self.in_sync == [node_id] and self.leader == node_id:
                self.leader = None
                self.leader_epoch += 1
            return
        self.in_sync.remove(node_id)
        if self.leader == node_id:
            self.move_leader(self.in_sync[0])
        self._move_high_watermark()

    def node_back(self, node_id: int) -> None:
        """The node runs again, and has caught up."""
        if node_id not in self.replicas:
            return
        if self.leader is None:
            self.leader = node_id
            self.leader_epoch += 1
        if node_id not in self.in_sync:
            self.in_sync.append(node_id)
            self._ends[node_id] = self.end_offset

    def _truncate(self, end_offset: int) -> None:
        """UnifiedLog.truncateTo: producer state is read from the log that is left (verifications are gone)."""
        kept = [entry for entry in self.log if entry.next_offset <= end_offset]
        self.lost += self.log[len(kept) :]
        self.log = kept
        self.end_offset = end_offset
        for node in self._ends:
            self._ends[node] = min(self._ends[node], end_offset)
        self.states, self._aborted = ProducerStates(), []
        for entry in kept:
            self._know(entry)
        self.states.replicated(self.high_watermark)

    # ---- reading -----------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """UnifiedLog.lastStableOffset: the first offset that read_committed does not see."""
        first_unstable = self.states.first_unstable_offset()
        return self.high_watermark if first_unstable is None else min(first_unstable, self.high_watermark)

    def is_committed(self, entry: Entry) -> bool:
        """Whether a read_committed consumer is given these records, now or ever given what the log holds."""
        if entry.commits is not None or entry.next_offset > self.last_stable_offset:
            return False
        return not (entry.is_transactional and self._is_aborted(entry))

    def _is_aborted(self, entry: Entry) -> bool:
        return any(
            producer_id == entry.producer_id and first <= entry.base_offset < marker
            for producer_id, first, marker in self._aborted
        )

    def committed(self) -> Iterator[Entry]:
        """Batches of clients that a read_committed consumer sees, in order."""
        return (entry for entry in self.log if self.is_committed(entry))

    def aborted_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that touch these offsets: of a Fetch answer."""
        return [
            (producer_id, first)
            for producer_id, first, marker in self._aborted
            if marker >= start and first < end
        ]
