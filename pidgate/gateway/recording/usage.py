"""Usage of each producer id: forwarded requests within one slice. PURE.

Each id in use has one small record, shared by the id's connections; each connection finds its own records in
a dict. At the end of a slice all records leave, and the next Produce of an id starts a new one. An id whose
last connection closes leaves at once. A partition that an id uses for the first time in a slice is put into
`fresh`. This module knows neither events nor clocks.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple, Protocol

from pidgate.quota.decisions import ProducerBatch
from pidgate.quota.entities import User

MOST_IDS: Final = 100_000
"""Most ids in use within one slice, about 50 MB. Traffic of further ids is not counted by id."""

MOST_TOPICS: Final = 8
MOST_PARTITIONS: Final = 512
"""Partitions of one topic. Within these bounds an id's partitions are counted exactly; beyond, the number is
a lower bound."""


Pair = tuple[int, bytes, int]
"""Producer id, topic and partition."""


class Carried(NamedTuple):
    """What a lane has carried of one id over one connection: totals, and bits of the partitions written, by topic."""

    requests: int
    nbytes: int
    batches: int
    records: int
    last_ms: int
    written: dict[bytes, int]


NO_USAGES: Final[dict[int, IdUsage]] = {}
"""Of a connection that has used no id yet. Never written to."""


class IdUsage:
    """One producer id of one user since the slice began."""

    __slots__ = (
        "_fresh", "_partition", "_partitions", "_topic", "_topics", "_written", "batches", "bytes", "connections",
        "epoch", "first_ms", "first_user", "last_ms", "open_connections", "producer_id", "records", "requests",
        "user"
    )  # fmt: skip

    def __init__(
        self, first_user: RecordedConnection, user: User, producer_id: int, now_ms: int, fresh: list[Pair]
    ) -> None:
        self._fresh = fresh
        self.first_user = first_user
        """The connection that used it first; the id's event names this connection's client."""
        self.user = user
        self.producer_id = producer_id
        self.epoch = -1
        self.requests = 0
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.first_ms = self.last_ms = now_ms
        self.connections = 0
        self.open_connections = 0
        self._topic = b""
        self._partition = -1
        self._topics: list[bytes] | None = None
        self._partitions: list[list[int]] | None = None
        """Partitions of the latest recognised request with several batches: most requests name the same ones
        again."""
        self._written: dict[bytes, int] | None = None
        """One bit per partition, by topic. None with a single partition: a dict costs more than all other
        fields."""

    @property
    def partitions(self) -> int:
        if self._written is None:
            return 1
        return sum(partitions.bit_count() for partitions in self._written.values())

    def count(self, batch: ProducerBatch, records: int) -> None:
        """Count one batch of a forwarded request."""
        _, self.epoch, _, topic, partition = batch
        self.batches += 1
        if records > 0:
            self.records += records
        self._count_partition(topic, partition)

    def count_recognised(
        self, epoch: int, topics: list[bytes], partitions: list[list[int]], batches: int, records: int
    ) -> None:
        """Count a recognised request with one batch for each of these partitions of each topic.

        Numbers are totals.
        """
        self.epoch = epoch
        self.batches += batches
        self.records += records
        if batches == 1:
            self._count_partition(topics[0], partitions[0][0])
        elif partitions != self._partitions or topics != self._topics:
            self._topics, self._partitions = topics.copy(), partitions.copy()
            for at in range(len(topics)):
                for partition in partitions[at]:
                    self._count_partition(topics[at], partition)

    def count_carried(self, epoch: int, carried: Carried) -> None:
        """Count what a lane has carried."""
        self.epoch = epoch
        self.requests += carried.requests
        self.bytes += carried.nbytes
        self.batches += carried.batches
        self.records += carried.records
        self.last_ms = carried.last_ms
        for topic, bits in carried.written.items():
            while bits:
                partition = (bits & -bits).bit_length() - 1
                self._count_partition(topic, partition)
                bits &= bits - 1

    def count_all(self, batches: list[ProducerBatch], record_counts: list[int]) -> bool:
        """Count all batches of a request at once.

        Returns False, with nothing counted, when they are not all of this id and within MOST_PARTITIONS. The
        caller counts them one by one then.
        """
        mine, of_topic = self.producer_id, batches[0][3]
        written = 0
        for producer_id, _, _, topic, partition in batches:
            if producer_id != mine or topic != of_topic or not 0 <= partition < MOST_PARTITIONS:
                return False
            written |= 1 << partition
        if min(record_counts) < 0:
            return False
        self._other_partition(of_topic, batches[0][4])
        self._other_partition(of_topic, batches[-1][4])
        before = 0 if self._written is None else self._written.get(of_topic, 0)
        if before and self._written is not None:
            self._written[of_topic] = before | written
        if fresh := written & ~before:
            self._fresh += ((mine, of_topic, batch[4]) for batch in batches if fresh >> batch[4] & 1)
        self.epoch = batches[0][1]
        self.batches += len(batches)
        self.records += sum(record_counts)
        return True

    def _count_partition(self, topic: bytes, partition: int) -> None:
        if partition != self._partition or topic != self._topic:
            self._other_partition(topic, partition)

    def _other_partition(self, topic: bytes, partition: int) -> None:
        is_fresh = self._partition < 0
        if not is_fresh:
            if self._written is None:
                self._written = {}
                self._write(self._topic, self._partition)
            is_fresh = self._write(topic, partition)
        if is_fresh:
            self._fresh.append((self.producer_id, topic, partition))
        self._topic, self._partition = topic, partition

    def _write(self, topic: bytes, partition: int) -> bool:
        """Note a partition; return False if it was noted before. One without room is never noted."""
        written = self._written
        if written is None or not 0 <= partition < MOST_PARTITIONS:
            return True
        before = written.get(topic)
        if before is None:
            if len(written) < MOST_TOPICS:
                written[topic] = 1 << partition
            return True
        if before >> partition & 1:
            return False
        written[topic] = before | 1 << partition
        return True


class RecordedConnection(Protocol):
    """A connection as seen by this table and the process's recorder."""

    connection_id: int
    usages: dict[int, IdUsage]

    def about(self) -> dict[str, Any]:
        """Return the client's fields of its events."""

    def end_slice(self) -> None:
        """Start a new slice: the usages have left the table."""


class UsageTable:
    """All ids in use. `leaving`: records to publish, oldest on the left.

    `fresh`: pairs used for the first time in this slice. Who counts a request takes them out. A pair without room in a
    record is in it each time.
    """

    def __init__(self) -> None:
        self.fresh: list[Pair] = []
        self._by_id: dict[tuple[User, int], IdUsage] = {}
        self.leaving: deque[IdUsage] = deque()
        self.uncounted_requests = 0
        """Requests forwarded while MOST_IDS others were in use."""

    def __len__(self) -> int:
        return len(self._by_id) + len(self.leaving)

    def begin(
        self, connection: RecordedConnection, user: User, producer_id: int, now_ms: int
    ) -> IdUsage | None:
        """Return the record of an id on its first use by this connection in the slice. None: no room."""
        key = (user, producer_id)
        usage = self._by_id.get(key)
        if usage is None:
            if len(self) >= MOST_IDS:
                self.uncounted_requests += 1
                return None
            usage = self._by_id[key] = IdUsage(connection, user, producer_id, now_ms, self.fresh)
        usage.connections += 1
        usage.open_connections += 1
        if connection.usages is NO_USAGES:
            connection.usages = {}
        connection.usages[producer_id] = usage
        return usage

    def connection_closed(self, connection: RecordedConnection) -> None:
        """Release the ids that no other connection uses."""
        for usage in connection.usages.values():
            usage.open_connections -= 1
            if usage.open_connections == 0:
                del self._by_id[usage.user, usage.producer_id]
                self.leaving.append(usage)
        connection.usages = NO_USAGES

    def end_slice(self) -> None:
        """Release all records. RecordedConnection.end_slice clears the connections' own dicts."""
        self.leaving.extend(self._by_id.values())
        self._by_id.clear()
