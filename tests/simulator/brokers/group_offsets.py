"""Offsets that groups committed within transactions: pending until the marker, then committed or gone. Pure.

Kafka: OffsetMetadataManager (group-coordinator). Members and generations are not checked: there are no groups here.
"""

from __future__ import annotations

from typing import Any

from tests.simulator.brokers.transaction import TopicPartition

Committed = dict[tuple[str, str, int], int]
"""(group, topic, partition) -> offset."""


class GroupOffsets:
    """The committed offsets of all groups."""

    def __init__(self) -> None:
        self.committed: Committed = {}
        self._pending: dict[tuple[TopicPartition, int], Committed] = {}

    def pending(self, place: TopicPartition, request: Any) -> None:
        """Keep what a TxnOffsetCommit brought; `place`: the group's partition of __consumer_offsets."""
        kept = self._pending.setdefault((place, request.producer_id), {})
        for topic in request.topics:
            for partition in topic.partitions:
                kept[request.group_id, topic.name, partition.partition_index] = partition.committed_offset

    def ended(self, place: TopicPartition, producer_id: int, commit: bool) -> None:
        """A marker of this producer was written into the partition."""
        found = self._pending.pop((place, producer_id), None)
        if found and commit:
            self.committed.update(found)
