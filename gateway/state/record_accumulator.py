"""Events waiting to be written: one bounded store for all, one lane for each partition of the topic.

An event leaves its lane when the brokers have acknowledged it, and not before. Knows nothing of Kafka clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

MOST_EVENTS: Final = 50_000
MOST_BYTES: Final = 64 * 1024 * 1024
LARGEST_EVENT_BYTES: Final = 900_000
"""Brokers take batches of 1 MiB (message.max.bytes) unless they are told otherwise."""
_REMEMBERED_KEYS: Final = 20_000


class Waiting(NamedTuple):
    """An event as it was published."""

    key: bytes
    value: bytes


class Lane:
    """The events of one partition, in order; at most one batch of them is under way."""

    __slots__ = ("events", "is_busy", "most", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.events: deque[Waiting] = deque()
        self.is_busy = False
        self.most = MOST_EVENTS
        """Events in one batch: halved when the brokers find a batch too large."""

    def first(self) -> Iterator[Waiting]:
        """What the next batch is made of."""
        return islice(self.events, self.most)


class RecordAccumulator:
    """All events that wait, under way or not. `partition_of(key, partitions)`: the topic's partitioner."""

    def __init__(self, partition_of: Callable[[bytes, int], int]) -> None:
        self._partition_of = partition_of
        self._arrived: deque[tuple[str, bytes]] = deque()
        self._lanes: list[Lane] = []
        self._lane_of: dict[str, tuple[Lane, bytes]] = {}
        self.events = 0
        self.size_bytes = 0
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
        self._arrived.append((key, value))

    def drop(self, reason: str, events: int = 1) -> None:
        self.dropped += events
        self.last_drop = reason

    def shape(self, partitions: int) -> None:
        """So many partitions from now on. What waits is dealt out anew if that is a change."""
        for lane in self._lanes:
            lane.is_busy = False
            lane.most = MOST_EVENTS
        if len(self._lanes) == partitions:
            return
        waiting = [
            (event.key.decode("utf-8", "surrogatepass"), event.value)
            for lane in self._lanes
            for event in lane.events
        ]
        self._arrived.extendleft(reversed(waiting))
        self._lanes = [Lane(partition) for partition in range(partitions)]
        self._lane_of.clear()

    def ready(self) -> list[Lane]:
        """The lanes that have something to send and nothing under way."""
        arrived, lane_of = self._arrived, self._lane_of
        while arrived:
            key, value = arrived.popleft()
            found = lane_of.get(key)
            if found is None:
                found = self._remember(key)
            lane, key_bytes = found
            lane.events.append(Waiting(key_bytes, value))
        return [lane for lane in self._lanes if lane.events and not lane.is_busy]

    def leave(self, lane: Lane, events: int) -> None:
        """The first events of the lane are done with."""
        for _ in range(events):
            event = lane.events.popleft()
            self.events -= 1
            self.size_bytes -= len(event.value)

    def _remember(self, key: str) -> tuple[Lane, bytes]:
        # Hashing a key costs more than all the rest; users are few and come again.
        if len(self._lane_of) >= _REMEMBERED_KEYS:
            self._lane_of.clear()
        key_bytes = key.encode("utf-8", "surrogatepass")
        found = self._lanes[self._partition_of(key_bytes, len(self._lanes))], key_bytes
        self._lane_of[key] = found
        return found
