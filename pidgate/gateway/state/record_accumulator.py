"""Events waiting to be written: one bounded store, one queue per partition (after Kafka's RecordAccumulator).
PURE.

Each key, a user, holds at most as much of the store as it leaves free. An observed user may cause events faster than
they are written. Then its newest events are dropped and counted, so that other users keep room and a sample of its
events remains.

An event leaves its queue only when the brokers have acknowledged it. This module must not know Kafka clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

MOST_EVENTS: Final = 50_000
MOST_BYTES: Final = 64 * 1024 * 1024
LARGEST_EVENT_BYTES: Final = 900_000
"""Brokers accept batches of 1 MiB by default (message.max.bytes)."""
_REMEMBERED_KEYS: Final = 20_000


class Held:
    """Events of one key in the store."""

    __slots__ = ("events", "key", "size_bytes")

    def __init__(self, key: str) -> None:
        self.key = key
        self.events = 0
        self.size_bytes = 0


class Waiting(NamedTuple):
    """An event waiting for its acknowledgement. `number`: count of earlier events. `held`: by its key."""

    number: int
    key: bytes
    value: bytes
    held: Held


class PartitionQueue:
    """The events of one partition, in order, with at most one batch in flight."""

    __slots__ = ("events", "is_busy", "most", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.events: deque[Waiting] = deque()
        self.is_busy = False
        self.most = MOST_EVENTS
        """Most events in a batch: halved when the brokers refuse a batch as too large."""

    def first(self) -> Iterator[Waiting]:
        """Return the events for the next batch."""
        return islice(self.events, self.most)


class RecordAccumulator:
    """All unacknowledged events. `partition_of(key, partitions)`: the topic's partitioner."""

    def __init__(self, partition_of: Callable[[bytes, int], int]) -> None:
        self._partition_of = partition_of
        self._arrived: deque[tuple[Held, bytes, int]] = deque()
        self._queues: list[PartitionQueue] = []
        self._queue_of: dict[str, tuple[PartitionQueue, bytes]] = {}
        self._held: dict[str, Held] = {}
        self.events = 0
        self.size_bytes = 0
        self.numbered = 0
        """Events accepted so far, which are numbered from 0."""
        self.dropped = 0
        self.last_drop = ""

    def put(self, key: str, value: bytes) -> None:
        """Append the event, or drop and count it.

        The newest event is dropped: waiting ones are older and in order.
        """
        size = len(value)
        if size > LARGEST_EVENT_BYTES:
            self.drop("the event is too large")
            return
        held = self._held.get(key) or Held(key)
        if not self._has_room(held, size):
            self.drop("the buffer is full, or its user has no room in it")
            return
        self._held[key] = held
        held.events += 1
        held.size_bytes += size
        self.events += 1
        self.size_bytes += size
        self._arrived.append((held, value, self.numbered))
        self.numbered += 1

    def _has_room(self, held: Held, size: int) -> bool:
        """Return whether a key that holds so much may add an event: it leaves at least as much free."""
        return (
            self.events + held.events < MOST_EVENTS
            and self.size_bytes + held.size_bytes + 2 * size <= MOST_BYTES
        )

    @property
    def oldest(self) -> int:
        """Number of the oldest waiting event; the next event's number when none waits."""
        oldest = self._arrived[0][2] if self._arrived else self.numbered
        return min([oldest, *(queue.events[0].number for queue in self._queues if queue.events)])

    def drop(self, reason: str, events: int = 1) -> None:
        """Count dropped events."""
        self.dropped += events
        self.last_drop = reason

    def shape(self, partitions: int) -> None:
        """Set the number of partitions. When it changes, waiting events are distributed again."""
        for queue in self._queues:
            queue.is_busy = False
            queue.most = MOST_EVENTS
        if len(self._queues) == partitions:
            return
        waiting = sorted(event for queue in self._queues for event in queue.events)
        self._arrived.extendleft((event.held, event.value, event.number) for event in reversed(waiting))
        self._queues = [PartitionQueue(partition) for partition in range(partitions)]
        self._queue_of.clear()

    def ready(self) -> list[PartitionQueue]:
        """Return the queues with events and without a batch in flight."""
        arrived, queue_of = self._arrived, self._queue_of
        while arrived:
            held, value, number = arrived.popleft()
            found = queue_of.get(held.key)
            if found is None:
                found = self._remember(held.key)
            queue, key_bytes = found
            queue.events.append(Waiting(number, key_bytes, value, held))
        return [queue for queue in self._queues if queue.events and not queue.is_busy]

    def leave(self, queue: PartitionQueue, events: int) -> None:
        """Remove the first events of the queue: acknowledged or dropped."""
        for _ in range(events):
            event = queue.events.popleft()
            size = len(event.value)
            self.events -= 1
            self.size_bytes -= size
            held = event.held
            held.events -= 1
            held.size_bytes -= size
            if not held.events:
                del self._held[held.key]

    def _remember(self, key: str) -> tuple[PartitionQueue, bytes]:
        # Hashing a key costs more than all other steps, and the few users recur.
        if len(self._queue_of) >= _REMEMBERED_KEYS:
            self._queue_of.clear()
        key_bytes = key.encode("utf-8", "surrogatepass")
        found = self._queues[self._partition_of(key_bytes, len(self._queues))], key_bytes
        self._queue_of[key] = found
        return found
