"""Events waiting to be written: one bounded store, a queue for each partition (after Kafka's RecordAccumulator). PURE.

An event leaves its queue when the brokers have acknowledged it, and not before. Must not know Kafka clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

MOST_EVENTS: Final = 50_000
MOST_BYTES: Final = 64 * 1024 * 1024
LARGEST_EVENT_BYTES: Final = 900_000
"""Brokers take batches of 1 MiB by default (message.max.bytes)."""
_REMEMBERED_KEYS: Final = 20_000


class Waiting(NamedTuple):
    """An event waiting for its acknowledgement. `number`: how many came before it."""

    number: int
    key: bytes
    value: bytes


class PartitionQueue:
    """The events of one partition, in order; at most one batch of them is under way."""

    __slots__ = ("events", "is_busy", "most", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.events: deque[Waiting] = deque()
        self.is_busy = False
        self.most = MOST_EVENTS
        """Events in one batch at most: halved when the brokers find a batch too large."""

    def first(self) -> Iterator[Waiting]:
        """Return the events for the next batch."""
        return islice(self.events, self.most)


class RecordAccumulator:
    """All events not acknowledged. `partition_of(key, partitions)`: the topic's partitioner."""

    def __init__(self, partition_of: Callable[[bytes, int], int]) -> None:
        self._partition_of = partition_of
        self._arrived: deque[tuple[str, bytes, int]] = deque()
        self._queues: list[PartitionQueue] = []
        self._queue_of: dict[str, tuple[PartitionQueue, bytes]] = {}
        self.events = 0
        self.size_bytes = 0
        self.numbered = 0
        """Events kept so far. Each has its number, from 0 on."""
        self.dropped = 0
        self.last_drop = ""

    def put(self, key: str, value: bytes) -> None:
        """Keep the event, or drop it and count it. The newest is dropped: what waits is older and in order."""
        size = len(value)
        if self.events >= MOST_EVENTS or self.size_bytes + size > MOST_BYTES or size > LARGEST_EVENT_BYTES:
            self.drop("the event is too large" if size > LARGEST_EVENT_BYTES else "the buffer is full")
            return
        self.events += 1
        self.size_bytes += size
        self._arrived.append((key, value, self.numbered))
        self.numbered += 1

    @property
    def oldest(self) -> int:
        """Number of the oldest event that is waiting; that of the next event when none is."""
        oldest = self._arrived[0][2] if self._arrived else self.numbered
        return min([oldest, *(queue.events[0].number for queue in self._queues if queue.events)])

    def drop(self, reason: str, events: int = 1) -> None:
        """Count events that are given up."""
        self.dropped += events
        self.last_drop = reason

    def shape(self, partitions: int) -> None:
        """Set the number of partitions; if it changes, what waits is distributed anew."""
        for queue in self._queues:
            queue.is_busy = False
            queue.most = MOST_EVENTS
        if len(self._queues) == partitions:
            return
        waiting = sorted(event for queue in self._queues for event in queue.events)
        self._arrived.extendleft(
            (event.key.decode("utf-8", "surrogatepass"), event.value, event.number)
            for event in reversed(waiting)
        )
        self._queues = [PartitionQueue(partition) for partition in range(partitions)]
        self._queue_of.clear()

    def ready(self) -> list[PartitionQueue]:
        """Return the queues that have events and no batch under way."""
        arrived, queue_of = self._arrived, self._queue_of
        while arrived:
            key, value, number = arrived.popleft()
            found = queue_of.get(key)
            if found is None:
                found = self._remember(key)
            queue, key_bytes = found
            queue.events.append(Waiting(number, key_bytes, value))
        return [queue for queue in self._queues if queue.events and not queue.is_busy]

    def leave(self, queue: PartitionQueue, events: int) -> None:
        """Remove the first events of the queue: they are acknowledged or given up."""
        for _ in range(events):
            event = queue.events.popleft()
            self.events -= 1
            self.size_bytes -= len(event.value)

    def _remember(self, key: str) -> tuple[PartitionQueue, bytes]:
        # Hashing a key costs more than all the rest; users are few and come again.
        if len(self._queue_of) >= _REMEMBERED_KEYS:
            self._queue_of.clear()
        key_bytes = key.encode("utf-8", "surrogatepass")
        found = self._queues[self._partition_of(key_bytes, len(self._queues))], key_bytes
        self._queue_of[key] = found
        return found
