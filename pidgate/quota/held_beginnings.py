"""Beginnings of partitions that are held by a mute, by user, producer id, topic and partition. PURE.

A batch with sequence 0 begins a partition: the broker has no state of its producer yet, and accepts any first batch.
While it is held, the partition's leader may move. Java's producer then sends the next batch to the new leader without
waiting for the answer to the first (`RecordAccumulator.shouldStopDrainBatchesForPartition` stops retries only). That
batch arrives on another connection, where the id may have been known for hours. So a held beginning is entered here,
and for WATCH_MS no cache of any connection lets a batch of its partition pass.

An entry is never evicted. A user without room for one more gets all of its partitions treated as held instead, until
the entry would have expired: a batch above 0 is then refused once, for 100 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from pidgate.quota.decisions import ProducerBatch
from pidgate.quota.entities import User
from pidgate.quota.sticky import WATCH_MS
from pidgate.quota.sticky_entries import TOPIC_ID_PREFIX, PartitionKey, TopicNames

MOST_HELD_OF_USER: Final = 20_000
"""About 5 MB."""
MOST_HELD: Final = 200_000
"""Of all users."""
FORGOTTEN_AT_ONCE: Final = 1_000
"""Ids of a user in one sweep: about 1 ms."""
_ANY: Final = b""


class OfUser:
    """The entries of one user: until when each one lasts, by producer id and partition, the oldest id first."""

    __slots__ = ("count", "ids", "overfull_until_ms")

    def __init__(self) -> None:
        self.ids: dict[int, dict[PartitionKey, int]] = {}
        self.count = 0
        self.overfull_until_ms = 0


class HeldBeginnings:
    """The entries. A topic id whose name is unknown in `topics` stands for every topic."""

    __slots__ = ("_count", "_topics", "users")

    def __init__(self, topics: TopicNames) -> None:
        self._topics = topics
        self.users: dict[User, OfUser] = {}
        """Public for the hot path: of any other user nothing is held."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, user: User, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        """Enter those of a held request's batches that begin a partition."""
        until_ms = now_ms + WATCH_MS
        for producer_id, _, base_sequence, topic, partition in batches:
            if base_sequence == 0:
                of_user = self.users.get(user)
                if of_user is None:
                    of_user = self.users[user] = OfUser()
                canonical = self._topics.canonical(topic)
                key = (_ANY if _is_unresolved(canonical) else canonical, partition)
                self._enter(of_user, producer_id, key, until_ms)

    def _enter(self, of_user: OfUser, producer_id: int, key: PartitionKey, until_ms: int) -> None:
        held = of_user.ids.get(producer_id)
        if held is None or key not in held:
            if of_user.count >= MOST_HELD_OF_USER or self._count >= MOST_HELD:
                of_user.overfull_until_ms = until_ms
                return
            of_user.count += 1
            self._count += 1
        if held is None:
            held = {}
        else:
            del of_user.ids[producer_id]
        of_user.ids[producer_id] = held  # behind all other ids
        held[key] = until_ms

    def is_held(self, user: User, producer_id: int, topic: bytes, partition: int, now_ms: int) -> bool:
        """Return whether the id's beginning in this partition was held a short while ago."""
        of_user = self.users.get(user)
        if of_user is None:
            return False
        if now_ms < of_user.overfull_until_ms:
            return True
        held = of_user.ids.get(producer_id)
        if held is None:
            return False
        canonical = self._topics.canonical(topic)
        if _is_unresolved(canonical):
            return any(now_ms < until_ms for key, until_ms in held.items() if key[1] == partition)
        return now_ms < held.get((canonical, partition), 0) or now_ms < held.get((_ANY, partition), 0)

    def is_any_held(
        self, user: User, producer_id: int, topics: list[bytes], partitions: list[list[int]], now_ms: int
    ) -> bool:
        """Return whether one in these partitions, by topic, was held. Hot: mostly the user has no entry."""
        if user not in self.users:
            return False
        for at, topic in enumerate(topics):
            for partition in partitions[at]:
                if self.is_held(user, producer_id, topic, partition, now_ms):
                    return True
        return False

    def sweep(self, now_ms: int) -> None:
        """Forget the expired entries of each user's oldest ids."""
        for user, of_user in list(self.users.items()):
            for producer_id, held in list(islice(of_user.ids.items(), FORGOTTEN_AT_ONCE)):
                if max(held.values()) > now_ms:
                    break
                del of_user.ids[producer_id]
                of_user.count -= len(held)
                self._count -= len(held)
            if not of_user.ids and now_ms >= of_user.overfull_until_ms:
                del self.users[user]


def _is_unresolved(topic: bytes) -> bool:
    """Return whether this is a topic id whose name is not known."""
    return topic.startswith(TOPIC_ID_PREFIX)
