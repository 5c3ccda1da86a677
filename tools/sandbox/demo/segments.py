"""Producer ids in a broker's log, read from its segment files, also of a dead broker.

Reads batch headers only (record batch v2, org.apache.kafka.common.record.DefaultRecordBatch).
"""

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# base_offset, length, leader_epoch, magic, crc, attributes, last_offset_delta, two timestamps,
# producer_id, producer_epoch, base_sequence, record count
_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH_ENDS = 12
_MAGIC = 2
_CONTROL = 0x20


@dataclass(slots=True)
class TopicIds:
    """The producer ids in one topic's log on one broker."""

    topic: str
    batches: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(partition, producer id) -> number of its batches."""

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(producer_id for _, producer_id in self.batches)

    @property
    def states(self) -> int:
        """Return the number of (partition, producer id) pairs; a broker keeps a heap object for each."""
        return len(self.batches)

    def partitions_of(self) -> Counter[int]:
        """Return producer id -> number of partitions with a batch of it."""
        return Counter(producer_id for _, producer_id in self.batches)

    def doubled(self) -> list[tuple[int, int]]:
        """Return the pairs with more than one batch."""
        return [pair for pair, count in self.batches.items() if count > 1]


def read_topic(log_directory: Path, topic: str) -> TopicIds:
    """Read all partitions of the topic in one of a broker's log.dirs."""
    found = TopicIds(topic)
    for directory in log_directory.glob(f"{topic}-*"):
        name, _, partition = directory.name.rpartition("-")
        if name != topic or not partition.isdigit():
            continue
        for segment in sorted(directory.glob("*.log")):
            for producer_id in producer_ids(segment.read_bytes()):
                found.batches[int(partition), producer_id] += 1
    return found


def producer_ids(segment: bytes) -> Iterator[int]:
    """Yield the producer id of each idempotent data batch; skips a truncated batch at the end."""
    at = 0
    while at + _HEADER.size <= len(segment):
        _, length, _, magic, _, attributes, _, _, _, producer_id, _, _, _ = _HEADER.unpack_from(segment, at)
        at += _BEFORE_LENGTH_ENDS + length
        # A preallocated or torn tail reads as zeros.
        if length <= 0 or at > len(segment):
            return
        if magic == _MAGIC and producer_id >= 0 and not attributes & _CONTROL:
            yield producer_id
