"""Records of StickyRefusals: refused batches, and the watched ids they belong to. PURE."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

MOST_FORWARDED = 100_000
"""Partitions of one watched id; forgetting them costs each one refusal of 100 ms."""

PartitionKey = tuple[bytes, int]
"""Topic and partition."""


@dataclass(slots=True)
class StickyEntry:
    """The lowest refused base sequence of one (id, epoch, partition) and the connection it was refused on.

    `later`: higher ones that were refused after it, each of which has to come in its turn.
    """

    epoch: int
    base_sequence: int
    connection_id: int
    further_refusals: int = 0
    later: list[int] = field(default_factory=list)


# Most watched ids need one of these three, and an empty dict that once held something has 230 bytes: an empty
# one is shared, and replaced before something is put in.
NO_ENTRIES: dict[PartitionKey, StickyEntry] = {}
_NOTHING_CUT: dict[PartitionKey, tuple[int, int]] = {}
_NOTHING_FORWARDED: dict[tuple[int, bytes], dict[int, int]] = {}


@dataclass(slots=True)
class RefusedId:
    """A watched id.

    first_refused_ms      None while it is watched but was not refused
    deadline_ms           end of its throttle
    cut                   epoch and sequence of entries that ended with their connection
    forwarded             connection last used since, by (epoch, topic) and partition
    partitions_forwarded  number of these
    """

    refused_at_ms: int
    first_refused_ms: int | None = None
    deadline_ms: int = 0
    entries: dict[PartitionKey, StickyEntry] = field(default_factory=lambda: NO_ENTRIES)
    cut: dict[PartitionKey, tuple[int, int]] = field(default_factory=lambda: _NOTHING_CUT)
    forwarded: dict[tuple[int, bytes], dict[int, int]] = field(default_factory=lambda: _NOTHING_FORWARDED)
    partitions_forwarded: int = 0

    def went_over(self, epoch: int, topic: bytes, partition: int) -> int | None:
        """Return the id of the connection that last forwarded this partition, or None."""
        by_partition = self.forwarded.get((epoch, topic))
        return None if by_partition is None else by_partition.get(partition)

    def goes_over(self, epoch: int, topic: bytes, partition: int, connection_id: int) -> None:
        """Note that something of the partition is forwarded."""
        if self.partitions_forwarded >= MOST_FORWARDED:
            self.forwarded = {}
            self.partitions_forwarded = 0
        self.forwarded = self.forwarded or {}
        by_partition = self.forwarded.setdefault(_shared_key(epoch, topic), {})
        self.partitions_forwarded += partition not in by_partition
        by_partition[partition] = connection_id

    def forget_forwarded(self, epoch: int, topic: bytes, partition: int) -> None:
        """Forget that something of the partition was forwarded."""
        by_partition = self.forwarded.get((epoch, topic))
        if by_partition is not None and by_partition.pop(partition, None) is not None:
            self.partitions_forwarded -= 1


@lru_cache(maxsize=1_024)
def _shared_key(epoch: int, topic: bytes) -> tuple[int, bytes]:
    """Return one tuple for all ids that write to the same topic."""
    return epoch, topic
