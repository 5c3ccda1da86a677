"""Order of batches: refused batches and held beginnings, which no later batch of their partition may pass. PURE.

After (id, epoch, partition) was refused at base sequence s, a pipelined later batch must not reach a broker first. A
broker without state for the id accepts any first sequence. Then s can never be appended, and librdkafka even reports it
delivered (`rd_kafka_dr_implicit_ack`). So every batch above s is refused, too, whatever the quota decides, until a
batch at or below s has been forwarded. There is one table per process, never filtered, aged out or persisted.

A batch with sequence 0 begins a partition: the broker has no state of its producer yet. While a mute holds it, the
partition's leader may move. Java's producer then sends the next batch to the new leader without waiting for the answer
to the first (`RecordAccumulator.shouldStopDrainBatchesForPartition` stops retries only). That batch arrives on another
connection, where the id may have been known for hours. So a held beginning is entered in HeldBeginnings, and for
WATCH_MS no cache of any connection lets a batch of its partition pass. The other gateways of the fleet watch its id.

Must not know rates, modes or filters. Each rule is a small method, so that a test can break one at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto
from itertools import islice, takewhile
from typing import Final

from pidgate.quota.decisions import ProducerBatch
from pidgate.quota.entities import Portions, User
from pidgate.quota.grants import MOST_GRANTED_PARTITIONS, Grants
from pidgate.quota.sticky_entries import (
    COMES_BACK_WITHIN_MS,
    MOST_CUT_AT_ONCE,
    NO_ENTRIES,
    NOTHING_CUT,
    NOTHING_FORWARDED,
    SEQUENCE_MASK,
    TOPIC_ID_PREFIX,
    PartitionKey,
    StickyEntry,
    TopicNames,
    WatchedId,
    WatchRoom,
    room_for_cut,
    room_for_forwarded,
    shrunk,
)

WATCH_MS: Final = 300_000
"""Time to watch an id refused by any gateway: longer than a batch of any client lies unread behind a mute."""

MOST_REFUSED_PARTITIONS: Final = 1_000
"""Of one request. Each gets an entry, which takes time on the event loop."""

MOST_ENTRIES_OF_CONNECTION: Final = 6_000
"""They end together when it closes, 1 us each. A client has five such requests in flight, and retries one."""

_HALF_OF_SEQUENCES: Final = 1 << 30


class Position(Enum):
    """Position of a batch relative to refused batches."""

    UNWATCHED = auto()  # no recent refusal of this id
    PASSED = auto()  # a batch of this partition was forwarded since, over the same connection
    FIRST_SIGHT = auto()  # no batch of this partition is known on this connection
    ABOVE = auto()  # an earlier batch was refused and has not been forwarded
    SAME = auto()  # the refused batch itself
    BELOW = auto()


class StickyRefusals:
    """The table of refused batches of one process.

    `watched` is public for the hot path: by user, the ids that no cache may answer for, in the order of their latest
    refusal.
    """

    def __init__(self, entries_per_user: int) -> None:
        self.entries_per_user = entries_per_user
        self.grants = Grants()
        """Those of a watched id end before its record changes."""
        self.watched: dict[User, dict[int, WatchedId]] = {}
        self._portions = Portions[User]()
        self.topics = TopicNames()
        self._entries_of_user: dict[User, int] = {}
        self._by_connection: dict[int, dict[tuple[User, int, PartitionKey], None]] = {}
        self._room = WatchRoom(self.watched)
        self._cut = room_for_cut()
        self._forwarded = room_for_forwarded()

    # The rules

    def is_above(self, base_sequence: int, refused: int) -> bool:
        """Return whether `base_sequence` is ahead by less than 2^30 in the 31-bit serial arithmetic of sequences."""
        return 0 < (base_sequence - refused) & SEQUENCE_MASK < _HALF_OF_SEQUENCES

    def entry_ends_at_epoch(self, entry: StickyEntry, epoch: int) -> bool:
        """Return whether a newer epoch starts the partition's sequences at 0 again."""
        return epoch > entry.epoch

    def watch_is_over(self, record: WatchedId, now_ms: int) -> bool:
        """Return whether the id may be forgotten. Never while it has an entry: no entry ends by age."""
        return not record.entries and now_ms - record.refused_at_ms >= WATCH_MS

    def entries_lifted_by(self, record: WatchedId, key: PartitionKey) -> list[PartitionKey]:
        """Return the entries lifted by a forwarded batch of partition `key`: that partition's and no other."""
        return [key]

    def advance_entry(self, entry: StickyEntry, forwarded: ProducerBatch) -> bool:
        """Move the entry on to the next later refused batch, if `forwarded` is the refused one; else return False.

        A client may send a new batch before it has read that an earlier one was refused. Right behind s it would
        arrive out of order (45), which some clients report as failed and others answer with a new epoch.
        """
        if forwarded[1] != entry.epoch or forwarded[2] != entry.base_sequence or not entry.later:
            return False
        entry.move_on()
        return True

    def was_forwarded_over(
        self, record: WatchedId, epoch: int, topic: bytes, partition: int, connection_id: int
    ) -> bool:
        """Return whether a batch of the partition was forwarded over this connection since the id is watched.

        Another connection does not count. When a leader moves while s waits behind a mute, s is forwarded to the old
        leader, which refuses it, and the client may send s+n to the new one before it has read that.
        """
        canonical = self.topics.canonical(topic)
        if record.forwarded_over(epoch, canonical, partition) == connection_id:
            return True
        other = self.topics.other_form(canonical)
        return other is not None and record.forwarded_over(epoch, other, partition) == connection_id

    def are_partitions_clear(
        self, record: WatchedId, epoch: int, topic: bytes, partitions: list[int], connection_id: int
    ) -> bool:
        """Return whether a cache may answer for the id's next batch in each of these partitions.

        Hot: a producer may write to dozens of partitions with each request.
        """
        if record.entries:
            return False
        by_partition = record.forwarded.get((epoch, topic))
        if by_partition is None:
            return False
        for partition in partitions:  # noqa: SIM110 - a generator would cost more than what it looks at
            if by_partition.get(partition) != connection_id:
                return False
        return True

    # Lookups

    def clear_partitions(self, record: WatchedId, epoch: int, topic: bytes, connection_id: int) -> int:
        """Return the bits of the partitions for which `are_partitions_clear`."""
        by_partition = record.forwarded.get((epoch, topic))
        bits = 0
        if by_partition is not None and not record.entries:
            for partition, over in by_partition.items():
                if over == connection_id and 0 <= partition < MOST_GRANTED_PARTITIONS:
                    bits |= 1 << partition
        return bits

    def find_watched_id(self, user: User, producer_id: int, now_ms: int) -> WatchedId | None:
        """Return the record of a watched id; None when it was not refused in WATCH_MS and has no entry."""
        record = self.watched.get(user, {}).get(producer_id)
        if record is None or self.watch_is_over(record, now_ms):
            return None
        return record

    def throttle_left_ms(self, user: User, producer_id: int, now_ms: int) -> int:
        """Return what is left of the id's throttle; 0 or less when it is over or there was none."""
        record = self.find_watched_id(user, producer_id, now_ms)
        return record.deadline_ms - now_ms if record else 0

    def locate_batch(self, user: User, batch: ProducerBatch, connection_id: int, now_ms: int) -> Position:
        """Look the batch up on this connection. Ends the entry of an older epoch."""
        producer_id, epoch, base_sequence, topic, partition = batch
        record = self.find_watched_id(user, producer_id, now_ms)
        if record is None:
            return Position.UNWATCHED
        key = self._entry_key(record, topic, partition)
        entry = record.entries.get(key)
        if entry is not None and self.entry_ends_at_epoch(entry, epoch):
            self._end_entry(user, producer_id, record, key)
            entry = None
        if entry is None:
            return self._locate_without_entry(record, batch, connection_id)
        if epoch < entry.epoch:
            # From before the epoch bump: it must not pass the newer epoch's refused batch.
            return Position.ABOVE
        if base_sequence == entry.base_sequence:
            return Position.SAME
        return Position.ABOVE if self.is_above(base_sequence, entry.base_sequence) else Position.BELOW

    def _locate_without_entry(self, record: WatchedId, batch: ProducerBatch, connection_id: int) -> Position:
        _, epoch, base_sequence, topic, partition = batch
        if self.was_forwarded_over(record, epoch, topic, partition, connection_id):
            return Position.PASSED
        if self._is_stale_epoch(record, epoch, topic, partition):
            return Position.PASSED  # the broker says so: INVALID_PRODUCER_EPOCH
        cut = record.cut.get((self.topics.canonical(topic), partition))
        return Position.SAME if cut == (epoch, base_sequence) else Position.FIRST_SIGHT

    def _is_stale_epoch(self, record: WatchedId, epoch: int, topic: bytes, partition: int) -> bool:
        """Return whether a batch of a newer epoch was forwarded to the partition since the id is watched."""
        names = self.topics.canonical(topic), self.topics.other_form(self.topics.canonical(topic))
        return any(
            newer > epoch and name in names and partition in partitions
            for (newer, name), partitions in record.forwarded.items()
        )

    def would_overflow(self, user: User, connection_id: int, batches: list[ProducerBatch]) -> bool:
        """Return whether refusing these would overflow the user's table or take too long, so that the caller closes."""
        of_connection = len(self._by_connection.get(connection_id, ())) + len(batches)
        if len(batches) > MOST_REFUSED_PARTITIONS or of_connection > MOST_ENTRIES_OF_CONNECTION:
            return True
        watched = self.watched.get(user, {})
        new_entries = new_ids = 0
        for producer_id, _, base_sequence, topic, partition in batches:
            record = watched.get(producer_id)
            if record is None:
                new_ids += 1
            entry = None if record is None else record.entries.get(self._entry_key(record, topic, partition))
            if entry is None or base_sequence != entry.base_sequence:
                new_entries += entry is None or not entry.has_later(base_sequence)
        return self._entries_of_user.get(user, 0) + new_entries > self.entries_per_user or (
            new_ids > 0 and not self._room.has_room(user, new_ids)
        )

    def end_overdue_entry(self, user: User, batch: ProducerBatch, now_ms: int) -> bool:
        """Return whether the refused batch below this one is overdue, so that the connection has to be closed.

        The entry ends with it: it may belong to another connection, which stays open, and the batch may have expired
        at its client. The client continues with its lowest batch; above 0 that is a first sight.
        """
        record = self.watched[user][batch[0]]
        key = self._entry_key(record, batch[3], batch[4])
        if now_ms < record.entries[key].overdue_ms:
            return False
        self._end_entry(user, batch[0], record, key)
        return True

    # Events

    def record_refusal(
        self, user: User, batch: ProducerBatch, connection_id: int, now_ms: int, throttle_ms: int = 0
    ) -> None:
        """Enter a refused batch. An existing entry keeps the lower sequence."""
        producer_id, epoch, base_sequence, topic, partition = batch
        record = self._watch(user, producer_id, now_ms)
        if record.first_refused_ms is None:
            record.first_refused_ms = now_ms
        if record.forwarded or record.cut:
            self._forget_forwarded(record, epoch, topic, partition)
            record.forget_cut((self.topics.canonical(topic), partition))
            self._count_notes(user, producer_id, record)
        key = self._entry_key(record, topic, partition)
        overdue_ms = now_ms + throttle_ms + COMES_BACK_WITHIN_MS
        entry = record.entries.get(key)
        if entry is not None and epoch > entry.epoch:
            self._end_entry(user, producer_id, record, key)
            entry = None
        if entry is None:
            record.entries = record.entries or {}
            record.entries[key] = StickyEntry(epoch, base_sequence, connection_id, overdue_ms)
            self._count_entries(user, 1)
        elif epoch < entry.epoch:
            return
        elif self.is_above(base_sequence, entry.base_sequence):
            if not entry.has_later(base_sequence):
                entry.add_later(base_sequence)
                self._count_entries(user, 1)
            return
        else:
            if base_sequence != entry.base_sequence:
                entry.move_back(base_sequence)
                self._count_entries(user, 1)
            self._unindex(entry.connection_id, (user, producer_id, key))
            entry.connection_id, entry.overdue_ms = connection_id, overdue_ms
        self._by_connection.setdefault(connection_id, {})[(user, producer_id, key)] = None

    def watch_new_id(self, user: User, producer_id: int, now_ms: int) -> None:
        """Watch a new id from its first batch on, as a refused one.

        Another gateway may have refused it just before, and hold its first batch of another partition. When that
        partition's leader moves, the client sends the next batch here.
        """
        if self._room.count_admitted(user, now_ms // WATCH_MS):
            self._watch(user, producer_id, now_ms)

    def watch_held_ids(self, user: User, producer_ids: Collection[int], now_ms: int) -> None:
        """Watch the ids of held beginnings."""
        for producer_id in producer_ids:
            if producer_id in self.watched.get(user, ()) or self._room.count_noted(user, now_ms // WATCH_MS):
                self._watch(user, producer_id, now_ms)

    def watch_refused_elsewhere(self, user: User, producer_id: int, now_ms: int) -> None:
        """Watch an id refused or held by another gateway: its client may send the next batch here first."""
        if producer_id in self.watched.get(user, {}) or self._room.has_room(user, 1, elsewhere=True):
            record = self._watch(user, producer_id, now_ms)
            if record.first_refused_ms is None:
                record.first_refused_ms = now_ms

    def set_deadline(self, user: User, producer_id: int, until_ms: int) -> None:
        """Set the id's own deadline, which survives a reconnect."""
        record = self.watched[user][producer_id]
        record.deadline_ms = max(record.deadline_ms, until_ms)

    def end_deadlines(self, user: User, now_ms: int) -> None:
        """End the deadlines of the user's ids: its quota is no longer the one that set them."""
        for record in self.watched.get(user, {}).values():
            record.deadline_ms = min(record.deadline_ms, now_ms)

    def record_forwarded(self, user: User, batches: list[ProducerBatch], connection_id: int) -> None:
        """Note the forwarded batches of a request, and end the entries at or above them.

        The notes of an id are counted once.
        """
        records = self.watched.get(user, {})
        noted: dict[int, WatchedId] = {}
        for batch in batches:
            record = records.get(batch[0])
            if record is not None and not self.are_partitions_clear(
                record, batch[1], batch[3], [batch[4]], connection_id
            ):
                noted[batch[0]] = record
                self.grants.changed(user, batch[0])
                self._note_forwarded(user, batch, record, connection_id)
        for producer_id, record in noted.items():
            self._count_notes(user, producer_id, record)

    def _note_forwarded(
        self, user: User, batch: ProducerBatch, record: WatchedId, connection_id: int
    ) -> None:
        producer_id, epoch, _, topic, partition = batch
        canonical = self.topics.canonical(topic)
        if record.cut:
            record.forget_cut((canonical, partition))
        record.note_forwarded(epoch, canonical, partition, connection_id)
        if topic != canonical:
            record.note_forwarded(epoch, topic, partition, connection_id)
        if not record.entries:
            return
        for key in self.entries_lifted_by(record, self._entry_key(record, topic, partition)):
            if key not in record.entries:
                continue
            if self.advance_entry(record.entries[key], batch):
                self._count_entries(user, -1)
            else:
                record.note_forwarded(epoch, self.topics.canonical(key[0]), key[1], connection_id)
                self._end_entry(user, producer_id, record, key)

    def forget_failed_batches(
        self,
        user: User,
        producer_id: int,
        keys: Collection[PartitionKey],
        batches: Collection[ProducerBatch] = (),
    ) -> None:
        """Forget that batches of these partitions passed, because their broker has answered some with an error.

        The broker may lead them again when the next batch arrives, while the failed one is on its way to another
        broker. An entry that has advanced past such a batch moves back to it: `batches` are the known ones of the id.
        The notes are walked once for all keys, because a client may make up thousands of topics.
        """
        record = self.watched.get(user, {}).get(producer_id)
        if record is None:
            return
        self.grants.changed(user, producer_id)
        by_topic: dict[bytes, set[int]] = {}
        for topic, partition in keys:
            by_topic.setdefault(self.topics.canonical(topic), set()).add(partition)
        for (epoch, name), by_partition in list(record.forwarded.items()):
            for partition in by_partition.keys() & by_topic.get(self.topics.canonical(name), ()):
                record.forget_forwarded(epoch, name, partition)
        for _, epoch, base_sequence, name, partition in batches:
            entry = record.entries.get(self._entry_key(record, name, partition))
            if (
                entry is not None
                and entry.epoch == epoch
                and partition in by_topic.get(self.topics.canonical(name), ())
                and self.is_above(entry.base_sequence, base_sequence)
            ):
                has_room = self.count_entries(user) < self.entries_per_user
                entry.move_back(base_sequence, keeps_later=has_room)
                self._count_entries(user, has_room)
        self._count_notes(user, producer_id, record)

    def connection_closed(self, connection_id: int) -> None:
        """End the connection's entries: the client resends from its lowest unacknowledged sequence."""
        ended = self._by_connection.pop(connection_id, {})
        noted: dict[tuple[User, int], WatchedId] = {}
        for at, (user, producer_id, key) in enumerate(ended):
            record = self.watched[user][producer_id]
            entry = record.end_entry(key)
            self._count_entries(user, -1 - len(entry.later))
            if at < MOST_CUT_AT_ONCE:
                record.cut_off((self.topics.canonical(key[0]), key[1]), entry)
                noted[user, producer_id] = record
        for (user, producer_id), record in noted.items():
            self._count_notes(user, producer_id, record)

    def sweep(self, now_ms: int) -> None:
        """Stop watching the ids whose time is over, of the next portion of users."""
        for user, records in self._portions.of(self.watched):
            old = takewhile(lambda item: now_ms - item[1].refused_at_ms >= WATCH_MS, records.items())
            over = [producer_id for producer_id, record in old if self.watch_is_over(record, now_ms)]
            for producer_id in over:
                self.grants.changed(user, producer_id)
                self._forget_notes(user, producer_id, records.pop(producer_id))
            self._room.ids -= len(over)
            if not records:
                del self.watched[user]
            elif len(over) > len(records):
                self.watched[user] = dict(records)  # see shrunk

    def count_entries(self, user: User) -> int:
        """Return the number of entries of the user."""
        return self._entries_of_user.get(user, 0)

    # Internals

    def _watch(self, user: User, producer_id: int, now_ms: int) -> WatchedId:
        self.grants.changed(user, producer_id)
        records = self.watched.setdefault(user, {})
        record = records.pop(producer_id, None)
        self._room.ids += record is None
        if record is None or self.watch_is_over(record, now_ms):
            if record is not None:
                self._forget_notes(user, producer_id, record)
            record = WatchedId(now_ms, None, 0, NO_ENTRIES, NOTHING_CUT, NOTHING_FORWARDED)
        record.refused_at_ms = now_ms
        records[producer_id] = record
        return record

    def _entry_key(self, record: WatchedId, topic: bytes, partition: int) -> PartitionKey:
        """Return the key of the partition's entry, present or future."""
        canonical = self.topics.canonical(topic)
        other = self.topics.other_form(canonical)
        if other is not None and (other, partition) in record.entries:
            return other, partition
        return canonical, partition

    def _forget_forwarded(self, record: WatchedId, epoch: int, topic: bytes, partition: int) -> None:
        canonical = self.topics.canonical(topic)
        record.forget_forwarded(epoch, canonical, partition)
        other = self.topics.other_form(canonical)
        if other is not None:
            record.forget_forwarded(epoch, other, partition)

    def _count_notes(self, user: User, producer_id: int, record: WatchedId) -> None:
        """Count the notes of the id, and forget the oldest notes of the user where there is no room for them."""
        records = self.watched[user]
        for oldest in self._cut.count(user, producer_id, len(record.cut)):
            records[oldest].cut = NOTHING_CUT
        for oldest in self._forwarded.count(user, producer_id, record.partitions_forwarded):
            self.grants.changed(user, oldest)
            records[oldest].forget_all_forwarded()

    def _forget_notes(self, user: User, producer_id: int, record: WatchedId) -> None:
        """Forget the notes of an id whose watch is over; most have none."""
        if record.cut or record.forwarded:
            self._cut.count(user, producer_id, 0)
            self._forwarded.count(user, producer_id, 0)

    def _end_entry(self, user: User, producer_id: int, record: WatchedId, key: PartitionKey) -> None:
        entry = record.end_entry(key)
        self._unindex(entry.connection_id, (user, producer_id, key))
        self._count_entries(user, -1 - len(entry.later))

    def _unindex(self, connection_id: int, where: tuple[User, int, PartitionKey]) -> None:
        of_connection = self._by_connection[connection_id]
        del of_connection[where]
        if of_connection:
            self._by_connection[connection_id] = shrunk(of_connection)
        else:
            del self._by_connection[connection_id]

    def _count_entries(self, user: User, more: int) -> None:
        count = self._entries_of_user.get(user, 0) + more
        if count:
            self._entries_of_user[user] = count
        else:
            self._entries_of_user.pop(user, None)


MOST_HELD_OF_USER: Final = 20_000
"""About 5 MB."""
MOST_HELD: Final = 200_000
"""Of all users."""
FORGOTTEN_AT_ONCE: Final = 1_000
"""Ids of a user in one sweep: about 1 ms."""
_ANY: Final = b""


class HeldOfUser:
    """The entries of one user: until when each one lasts, by producer id and partition, the oldest id first."""

    __slots__ = ("count", "ids", "overfull_until_ms", "told_ms")

    def __init__(self) -> None:
        self.ids: dict[int, dict[PartitionKey, int]] = {}
        self.told_ms: dict[int, int] = {}
        """When an id in `ids` was last published for other gateways."""
        self.count = 0
        self.overfull_until_ms = 0


class HeldBeginnings:
    """Beginnings held a short while ago, by user, producer id, topic and partition.

    A topic id whose name is unknown in `topics` stands for every topic. An entry is never evicted. Without room for one
    more, all partitions of the user count as held until the entry would have expired: a batch above 0 is then refused
    once, for 100 ms.
    """

    __slots__ = ("_count", "_grants", "_topics", "users")

    def __init__(self, topics: TopicNames, grants: Grants) -> None:
        self._topics = topics
        self._grants = grants
        self.users: dict[User, HeldOfUser] = {}
        """Public for the hot path: users with held beginnings."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, user: User, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        """Enter the batches of a held request that begin a partition."""
        until_ms = now_ms + WATCH_MS
        for producer_id, _, base_sequence, topic, partition in batches:
            if base_sequence == 0:
                self._grants.changed(user, producer_id)
                of_user = self.users.get(user)
                if of_user is None:
                    of_user = self.users[user] = HeldOfUser()
                canonical = self._topics.canonical(topic)
                key = (_ANY if _is_unresolved(canonical) else canonical, partition)
                self._enter(of_user, producer_id, key, until_ms)

    def _enter(self, of_user: HeldOfUser, producer_id: int, key: PartitionKey, until_ms: int) -> None:
        held = of_user.ids.get(producer_id)
        if held is None or key not in held:
            if of_user.count >= MOST_HELD_OF_USER or self._count >= MOST_HELD:
                self._grants.all_changed()  # all ids of the user count as held from now on
                of_user.overfull_until_ms = until_ms
                return
            of_user.count += 1
            self._count += 1
        if held is None:
            held = {}
        else:
            del of_user.ids[producer_id]
        of_user.ids[producer_id] = held  # moved behind all other ids
        held[key] = until_ms

    def find_unpublished(
        self, user: User, batches: Sequence[ProducerBatch], now_ms: int
    ) -> list[ProducerBatch]:
        """Return a beginning of each id that has to be published for other gateways, and record it as published.

        They watch an id for WATCH_MS, so it is published again after half of that.
        """
        of_user = self.users.get(user)
        untold: dict[int, ProducerBatch] = {}
        for batch in batches:
            producer_id = batch[0]
            if batch[2] or of_user is None or producer_id in untold:
                continue
            told_ms = of_user.told_ms.get(producer_id)
            if told_ms is None or now_ms - told_ms >= WATCH_MS // 2:
                untold[producer_id] = batch
                if producer_id in of_user.ids:
                    of_user.told_ms[producer_id] = now_ms
        return list(untold.values())

    def is_beginning_held(
        self, user: User, producer_id: int, topic: bytes, partition: int, now_ms: int
    ) -> bool:
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

    def is_any_of_id_held(self, user: User, producer_id: int, now_ms: int) -> bool:
        """Return whether some beginning of the id may have been held a short while ago."""
        of_user = self.users.get(user)
        return of_user is not None and (producer_id in of_user.ids or now_ms < of_user.overfull_until_ms)

    def is_any_beginning_held(
        self, user: User, producer_id: int, topics: list[bytes], partitions: list[list[int]], now_ms: int
    ) -> bool:
        """Return whether one in these partitions, by topic, was held. Hot: mostly the user has no entry."""
        if user not in self.users:
            return False
        for at, topic in enumerate(topics):
            for partition in partitions[at]:
                if self.is_beginning_held(user, producer_id, topic, partition, now_ms):
                    return True
        return False

    def sweep(self, now_ms: int) -> None:
        """Forget the expired entries of each user's oldest ids."""
        for user, of_user in list(self.users.items()):
            for producer_id, held in list(islice(of_user.ids.items(), FORGOTTEN_AT_ONCE)):
                if max(held.values()) > now_ms:
                    break
                del of_user.ids[producer_id]
                of_user.told_ms.pop(producer_id, None)
                of_user.count -= len(held)
                self._count -= len(held)
            if not of_user.ids and now_ms >= of_user.overfull_until_ms:
                del self.users[user]


def _is_unresolved(topic: bytes) -> bool:
    """Return whether this is a topic id whose name is not known."""
    return topic.startswith(TOPIC_ID_PREFIX)
