"""Records of StickyRefusals: refused batches, and the watched ids they belong to. PURE."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar

MOST_FURTHER_REFUSALS: Final = 5
"""No client has more requests in flight for an idempotent producer, since brokers keep the latest five batches. Where
topics keep more one day (KIP-1269), who has more in flight is closed when it is refused, and loses nothing."""

MOST_FORWARDED_OF_ID = 100_000
"""Partitions of one watched id, about 9 MB. What is beyond takes the place of all others at once."""

TOPIC_AS_PARTITIONS: Final = 8
"""Weight of a topic and epoch beside its partitions: it takes as much memory as eight of them."""

MOST_BYTES_OF_ONE: Final = 128
"""Of a table's memory for each of its elements. A dict that has just grown has 120 at most, a fresh copy 60: half of
its elements are taken out before it is copied again, whatever is put in and taken out meanwhile."""

_K = TypeVar("_K")
_V = TypeVar("_V")

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

    def comes_later(self, base_sequence: int) -> None:
        """Note that this higher one was refused, too."""
        if base_sequence not in self.later and len(self.later) < MOST_FURTHER_REFUSALS:
            self.later.append(base_sequence)

    def count_further(self) -> bool:
        """Count a refusal above it; return whether there are more than a client has in flight."""
        self.further_refusals += 1
        return self.further_refusals > MOST_FURTHER_REFUSALS


# Most watched ids need one of these three, and an empty dict that once held something has 230 bytes: an empty
# one is shared, and replaced before something is put in.
NO_ENTRIES: Final[dict[PartitionKey, StickyEntry]] = {}
NOTHING_CUT: Final[dict[PartitionKey, tuple[int, int]]] = {}
NOTHING_FORWARDED: Final[dict[tuple[int, bytes], dict[int, int]]] = {}


@dataclass(slots=True)
class RefusedId:
    """A watched id.

    first_refused_ms      None while it is watched but was not refused
    deadline_ms           end of its throttle
    cut                   epoch and sequence of entries that ended with their connection
    forwarded             connection last used since, by (epoch, topic) and partition
    partitions_forwarded  number of these; each topic and epoch counts as TOPIC_AS_PARTITIONS more

    The last three are notes: they may be forgotten (watch_room.py).
    """

    refused_at_ms: int
    first_refused_ms: int | None = None
    deadline_ms: int = 0
    entries: dict[PartitionKey, StickyEntry] = field(default_factory=lambda: NO_ENTRIES)
    cut: dict[PartitionKey, tuple[int, int]] = field(default_factory=lambda: NOTHING_CUT)
    forwarded: dict[tuple[int, bytes], dict[int, int]] = field(default_factory=lambda: NOTHING_FORWARDED)
    partitions_forwarded: int = 0

    def went_over(self, epoch: int, topic: bytes, partition: int) -> int | None:
        """Return the id of the connection that last forwarded this partition, or None."""
        by_partition = self.forwarded.get((epoch, topic))
        return None if by_partition is None else by_partition.get(partition)

    def goes_over(self, epoch: int, topic: bytes, partition: int, connection_id: int) -> None:
        """Note that something of the partition is forwarded."""
        if self.partitions_forwarded >= MOST_FORWARDED_OF_ID:
            self.forget_all_forwarded()
        by_partition = self.forwarded.get((epoch, topic))
        if by_partition is None:
            self.forwarded = self.forwarded or {}
            by_partition = self.forwarded[_shared_key(epoch, topic)] = {}
            self.partitions_forwarded += TOPIC_AS_PARTITIONS
        self.partitions_forwarded += partition not in by_partition
        by_partition[partition] = connection_id

    def forget_forwarded(self, epoch: int, topic: bytes, partition: int) -> None:
        """Forget that something of the partition was forwarded."""
        by_partition = self.forwarded.get((epoch, topic))
        if by_partition is None or by_partition.pop(partition, None) is None:
            return
        self.partitions_forwarded -= 1
        if by_partition:
            self.forwarded[_shared_key(epoch, topic)] = shrunk(by_partition)
            return
        del self.forwarded[epoch, topic]
        self.forwarded = shrunk(self.forwarded) or NOTHING_FORWARDED
        self.partitions_forwarded -= TOPIC_AS_PARTITIONS

    def forget_all_forwarded(self) -> None:
        """Forget all that was forwarded."""
        self.forwarded = NOTHING_FORWARDED
        self.partitions_forwarded = 0

    def end_entry(self, key: PartitionKey) -> StickyEntry:
        """Take the partition's entry out."""
        entry = self.entries.pop(key)
        self.entries = shrunk(self.entries) or NO_ENTRIES
        return entry

    def cut_off(self, key: PartitionKey, entry: StickyEntry) -> None:
        """Note that the partition's entry ended with its connection."""
        self.cut = self.cut or {}
        self.cut[key] = (entry.epoch, entry.base_sequence)

    def forget_cut(self, key: PartitionKey) -> None:
        """Forget such an entry."""
        if self.cut.pop(key, None) is not None:
            self.cut = shrunk(self.cut) or NOTHING_CUT


def shrunk(table: dict[_K, _V]) -> dict[_K, _V]:
    """Return the table something was just taken out of, as a copy when it is much too large for what is left.

    A dict keeps the memory of the most it ever held: a client that leaves one of a thousand would have it for nothing.
    """
    return dict(table) if table.__sizeof__() > MOST_BYTES_OF_ONE * (len(table) + 1) else table


@lru_cache(maxsize=1_024)
def _shared_key(epoch: int, topic: bytes) -> tuple[int, bytes]:
    """Return one tuple for all ids that write to the same topic."""
    return epoch, topic
