"""The partitions of a cluster, where they lie, and what becomes of them when nodes fail. Pure.

Kafka: the controller's part (ReplicationControlManager) as far as clients see it, and replication with its delays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from tests.simulator.brokers.partition import Partition
from tests.simulator.brokers.timers import Delays, Timers, none

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_PARTITIONS: Final = 50
"""offsets.topic.num.partitions, transaction.state.log.num.partitions."""


class Topic:
    """A name, an id, and the partitions."""

    def __init__(self, name: str, topic_id: bytes, partitions: list[Partition]) -> None:
        self.name, self.topic_id, self.partitions = name, topic_id, partitions


class Topics:
    """Topics by name and by id; each append is replicated to each follower in its time."""

    def __init__(
        self, nodes: Sequence[int], timers: Timers, delays: Delays, replication_factor: int, min_in_sync: int
    ) -> None:
        self._nodes = tuple(nodes)
        self._timers, self._delays = timers, delays
        self._factor = min(replication_factor, len(self._nodes))
        self._min_in_sync = min(min_in_sync, self._factor)
        self._created = 0
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._shown: dict[tuple[int, str, int], tuple[int | None, int]] = {}
        """(Node, topic, index) -> leader and epoch, of nodes that have not learnt of a newer one."""
        self.epoch = 0
        """Grows with each change that Metadata shows."""

    def create(self, name: str, partitions: int) -> Topic:
        """Create a topic; partition n is led by the n-th node. A name that was deleted before gets a new id."""
        self._created += 1
        nodes = self._nodes
        made = [
            Partition(
                name, n, [nodes[(n + step) % len(nodes)] for step in range(self._factor)], self._min_in_sync
            )
            for n in range(partitions)
        ]
        topic_id = hashlib.blake2b(f"{name}/{self._created}".encode(), digest_size=16).digest()
        topic = self.by_name[name] = self.by_id[topic_id] = Topic(name, topic_id, made)
        self.epoch += 1
        return topic

    def internal(self, name: str, index: int) -> Partition:
        """Return a partition of an internal topic, which is created with the first question about it."""
        topic = self.by_name.get(name) or self.create(name, INTERNAL_PARTITIONS)
        return topic.partitions[index]

    def delete(self, name: str) -> None:
        """Delete a topic."""
        topic = self.by_name.pop(name)
        del self.by_id[topic.topic_id]
        self.epoch += 1

    def partition(self, name: str, index: int) -> Partition | None:
        """Return the partition, if there is one."""
        topic = self.by_name.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def partitions(self) -> Iterator[Partition]:
        """All of them, in the order of their creation."""
        return (partition for topic in self.by_name.values() for partition in topic.partitions)

    def replicate(self, partition: Partition) -> None:
        """The followers fetch what the leader has now."""
        delay_ms = self._delays.replication_ms
        if delay_ms is none:
            partition.replicate_now()
            return
        end_offset, leader_epoch = partition.end_offset, partition.leader_epoch
        for node_id in partition.followers():
            fetched = partial(partition.replicate, node_id, end_offset, leader_epoch)
            self._timers.after(delay_ms(), fetched)

    def move_leader(self, partition: Partition, node_id: int) -> None:
        """Another in-sync replica becomes the leader, and nodes learn it one by one. Raises ValueError."""
        before = partition.leader, partition.leader_epoch
        partition.move_leader(node_id)
        for node in self._nodes:
            delay_ms = self._delays.metadata_ms()
            key = node, partition.topic, partition.index
            if delay_ms > 0 and node != node_id:
                self._shown.setdefault(key, before)
                self._timers.after(delay_ms, partial(self._learnt, key))
        self.epoch += 1
        self.replicate(partition)

    def _learnt(self, key: tuple[int, str, int]) -> None:
        if self._shown.pop(key, None) is not None:
            self.epoch += 1

    def shown_leader(self, partition: Partition, node_id: int) -> tuple[int | None, int]:
        """Return leader and leader epoch as a node's Metadata has them: it may be behind."""
        key = node_id, partition.topic, partition.index
        return self._shown.get(key) or (partition.leader, partition.leader_epoch)

    def node_lost(self, node_id: int) -> None:
        """A node is down: it leaves every partition, whose other replicas take over."""
        for partition in self.partitions():
            partition.node_lost(node_id)
            self.replicate(partition)
        self.epoch += 1

    def node_back(self, node_id: int) -> None:
        """The node runs again and is in sync."""
        for partition in self.partitions():
            partition.node_back(node_id)
        self.epoch += 1


def internal_partition(key: str) -> int:
    """Utils.abs(key.hashCode()) % 50: where a group or a transactional id is coordinated."""
    value = 0
    for unit in _utf16(key):
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % INTERNAL_PARTITIONS


def _utf16(text: str) -> list[int]:
    raw = text.encode("utf-16-be")
    return [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]
