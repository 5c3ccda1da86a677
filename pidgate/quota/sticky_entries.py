"""Records of StickyRefusals: refused batches, watched ids, their memory bounds, and topic names. PURE.

A refused batch is never forgotten: without room for it the connection is closed instead, which is always safe. Ids that
are watched for another reason may use half of the room, and are not watched beyond it.

Notes of partitions may be forgotten at any time. A note says where the last batch was forwarded, or that an entry ended
with its connection. A partition without a note is a first sight (Position.FIRST_SIGHT): a batch above 0 is refused once
more, for 100 ms, and a batch that comes back may lose its place in the queue. Forgetting a watch or an entry would do
the opposite, and let a batch pass before a refused one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar

from pidgate.quota.entities import MOST_USERS, User

COMES_BACK_WITHIN_MS: Final = 30_000
"""Longest time from a throttle's end to the retry: longer than any client's back-off."""

SEQUENCE_MASK: Final = 0x7FFFFFFF

MOST_FORWARDED_OF_ID = 100_000
"""Partitions of one watched id, about 9 MB. A further one replaces all of them."""

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

    later       higher sequences that were refused after it, in order: each has to pass in turn
    overdue_ms  when its client has given up the lowest one
    """

    epoch: int
    base_sequence: int
    connection_id: int
    overdue_ms: int
    later: list[int] = field(default_factory=list)

    def has_later(self, base_sequence: int) -> bool:
        """Return whether this higher sequence was refused, too."""
        at = self._find_later(base_sequence)
        return at < len(self.later) and self.later[at] == base_sequence

    def add_later(self, base_sequence: int) -> None:
        """Add a higher sequence that was refused, too, and is not in `later` yet."""
        self.later.insert(self._find_later(base_sequence), base_sequence)

    def _find_later(self, base_sequence: int) -> int:
        return bisect_left(self.later, self._ahead(base_sequence), key=self._ahead)

    def _ahead(self, sequence: int) -> int:
        return (sequence - self.base_sequence) & SEQUENCE_MASK

    def move_on(self) -> None:
        """Wait for the next higher sequence."""
        self.base_sequence = self.later.pop(0)

    def move_back(self, base_sequence: int, *, keeps_later: bool = True) -> None:
        """Wait for this lower sequence first, then for the present one."""
        if keeps_later:
            self.later.insert(0, self.base_sequence)
        self.base_sequence = base_sequence


# Most watched ids need one of these three, and a dict that was emptied takes 230 bytes. So all empty ones are these
# shared dicts, which are replaced before an insertion.
NO_ENTRIES: Final[dict[PartitionKey, StickyEntry]] = {}
NOTHING_CUT: Final[dict[PartitionKey, tuple[int, int]]] = {}
NOTHING_FORWARDED: Final[dict[tuple[int, bytes], dict[int, int]]] = {}


@dataclass(slots=True)
class WatchedId:
    """A watched id.

    first_refused_ms      None while it is watched but was not refused
    deadline_ms           end of its throttle
    cut                   epoch and sequence of entries that ended with their connection
    forwarded             connection last used since, by (epoch, topic) and partition
    partitions_forwarded  number of these; each topic and epoch counts as TOPIC_AS_PARTITIONS more

    The last three are notes: they may be forgotten (NoteRoom).
    """

    refused_at_ms: int
    first_refused_ms: int | None
    deadline_ms: int
    entries: dict[PartitionKey, StickyEntry]
    cut: dict[PartitionKey, tuple[int, int]]
    forwarded: dict[tuple[int, bytes], dict[int, int]]
    partitions_forwarded: int = 0

    def forwarded_over(self, epoch: int, topic: bytes, partition: int) -> int | None:
        """Return the id of the connection that last forwarded this partition, or None."""
        by_partition = self.forwarded.get((epoch, topic))
        return None if by_partition is None else by_partition.get(partition)

    def note_forwarded(self, epoch: int, topic: bytes, partition: int, connection_id: int) -> None:
        """Note that a batch of the partition is forwarded."""
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
        """Forget that a batch of the partition was forwarded."""
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
        """Forget all forwarded partitions."""
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
    """Return the table, or a copy if it takes much more memory than its elements need.

    A dict never frees memory: a client that leaves one element of a thousand would keep all of it.
    """
    return dict(table) if table.__sizeof__() > MOST_BYTES_OF_ONE * (len(table) + 1) else table


@lru_cache(maxsize=1_024)
def _shared_key(epoch: int, topic: bytes) -> tuple[int, bytes]:
    """Return one tuple for all ids that write to the same topic."""
    return epoch, topic


WATCHED_IDS_PER_USER = 50_000
"""About 20 MB."""

MOST_WATCHED: Final = 500_000
"""Of all users, about 200 MB. A user has at most as many as it leaves free for all others."""

MOST_WATCHED_USERS: Final = MOST_USERS

MOST_WATCHED_WHEN_ADMITTED: Final = 5_000
"""Of one user, so that admissions leave room for refusals."""

MOST_ADMITTED_WATCHED = 10_000
"""Of all users, in a period: about 9 MB. Thousands of users may bring millions of ids in an hour, each paid for."""

MOST_NOTED_WATCHED: Final = 50_000
"""Ids watched only for a noted beginning (HeldBeginnings), of all users, in a period: about 45 MB."""

MOST_CUT_OF_USER: Final = 20_000
"""About 5 MB. They cost a client nothing: a request that is refused, and a connection that is closed."""

MOST_CUT_AT_ONCE = 1_000
"""Of a connection that closes. To note more takes as long as to end all of its entries."""

MOST_CUT: Final = 200_000
"""Of all users, about 50 MB."""

MOST_FORWARDED_OF_USER: Final = 500_000
"""About 45 MB: 5,000 producers that begin within minutes, with a hundred partitions each."""

MOST_FORWARDED: Final = 2_000_000
"""Of all users, about 180 MB."""


class WatchRoom:
    """The free room. `ids`: watched ids of all users; `watched`: the ids by user.

    A period is as long as an id is watched.
    """

    def __init__(self, watched: Mapping[User, Sized]) -> None:
        self.ids = 0
        self._watched = watched
        self._admitted = self._noted = self._period = 0

    def has_room(self, user: User, new_ids: int, *, elsewhere: bool = False) -> bool:
        """Return whether `new_ids` more ids of the user may be watched. `elsewhere`: none of them was refused here."""
        share = 2 if elsewhere else 1
        records = self._watched.get(user)
        if records is None and len(self._watched) >= MOST_WATCHED_USERS // share:
            return False
        most = min(WATCHED_IDS_PER_USER // share, MOST_WATCHED // share - self.ids - new_ids)
        return (0 if records is None else len(records)) + new_ids <= most

    def count_admitted(self, user: User, period: int) -> bool:
        """Return whether an id that was admitted may be watched, and count it."""
        if period != self._period:
            self._begin(period)
        found = (
            self._admitted < MOST_ADMITTED_WATCHED
            and len(self._watched.get(user, ())) < MOST_WATCHED_WHEN_ADMITTED
            and self.has_room(user, 1, elsewhere=True)
        )
        self._admitted += found
        return found

    def count_noted(self, user: User, period: int) -> bool:
        """Return whether an id of which a beginning is noted may be watched, and count it."""
        if period != self._period:
            self._begin(period)
        found = self._noted < MOST_NOTED_WATCHED and self.has_room(user, 1, elsewhere=True)
        self._noted += found
        return found

    def _begin(self, period: int) -> None:
        self._period = period
        self._admitted = self._noted = 0


class NoteRoom:
    """Bounded count of one kind of note, by user and id. The ids with the oldest notes are forgotten first.

    A user has at most `most_of_user` notes, and at most as many as it leaves free for all others. So no user's notes
    are forgotten for another's.
    """

    def __init__(self, most_of_user: int, most_of_all: int) -> None:
        self.notes = 0
        self._most_of_user, self._most_of_all = most_of_user, most_of_all
        self._of_user: dict[User, OrderedDict[int, int]] = {}
        self._notes_of_user: dict[User, int] = {}

    def count(self, user: User, producer_id: int, notes: int) -> Sequence[int]:
        """Set the number of notes of the id; return the ids whose notes now have to be forgotten."""
        by_id = self._of_user.get(user)
        before = 0 if by_id is None else by_id.get(producer_id, 0)
        if notes == before:
            return ()
        if by_id is None:
            by_id = self._of_user[user] = OrderedDict()
        of_user = self._notes_of_user.get(user, 0) + notes - before
        self.notes += notes - before
        if notes:
            by_id[producer_id] = notes
        else:
            del by_id[producer_id]
        forgotten: list[int] = []
        while notes > before and of_user > min(self._most_of_user, self._most_of_all - self.notes):
            oldest, gone = by_id.popitem(last=False)
            of_user -= gone
            self.notes -= gone
            forgotten.append(oldest)
        self._notes_of_user[user] = of_user
        if not by_id:
            del self._of_user[user], self._notes_of_user[user]
        return forgotten

    def notes_of(self, user: User) -> int:
        """Return the number of the user's notes."""
        return self._notes_of_user.get(user, 0)


def room_for_cut() -> NoteRoom:
    """Return the room for entries that were cut off."""
    return NoteRoom(MOST_CUT_OF_USER, MOST_CUT)


def room_for_forwarded() -> NoteRoom:
    """Return the room for partitions of which something was forwarded."""
    return NoteRoom(MOST_FORWARDED_OF_USER, MOST_FORWARDED)


MOST_ALIASES = 100_000
"""Topic ids whose names are known; the oldest is forgotten first."""

TOPIC_ID_PREFIX: Final = b"\x00"


class TopicNames:
    """A topic by name or by id is the same topic (Produce v13 sends ids)."""

    __slots__ = ("_id_of", "_name_of")

    def __init__(self) -> None:
        self._name_of: dict[bytes, bytes] = {}
        self._id_of: dict[bytes, bytes] = {}

    def learn(self, name: bytes, topic_id: bytes) -> None:
        """Note that both are one topic. `topic_id`: 16 bytes, or 17 as in a ProducerBatch."""
        topic_id = TOPIC_ID_PREFIX + topic_id if len(topic_id) == 16 else topic_id
        if self._name_of.get(topic_id) == name:
            return
        while len(self._name_of) >= MOST_ALIASES:
            oldest = next(iter(self._name_of))
            forgotten = self._name_of.pop(oldest)
            if self._id_of.get(forgotten) == oldest:
                del self._id_of[forgotten]
        self._name_of[topic_id] = name
        self._id_of[name] = topic_id

    def canonical(self, topic: bytes) -> bytes:
        """Return the name, where it is known."""
        return self._name_of.get(topic, topic)

    def other_form(self, canonical: bytes) -> bytes | None:
        """Return the id under which the topic may have been seen before its name was learnt."""
        return self._id_of.get(canonical)
