"""What is noted of the partitions of watched ids: bounded, and what is forgotten is refused once more, never passed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random

import pytest

from pidgate.quota import sticky_entries
from pidgate.quota.sticky import MOST_ENTRIES_OF_CONNECTION, WATCH_MS, Position, StickyRefusals
from pidgate.quota.sticky_entries import TOPIC_AS_PARTITIONS, shrunk
from tests.support.rules import rule
from tests.support.steps import MOST_STEPS, steps_of
from tests.unit.quota.world import batch

CUT, FORWARDED = 20, 40
PARTITIONS = 5


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky_entries, "MOST_CUT_OF_USER", CUT)
    monkeypatch.setattr(sticky_entries, "MOST_CUT", 3 * CUT)
    monkeypatch.setattr(sticky_entries, "MOST_FORWARDED_OF_USER", FORWARDED)
    monkeypatch.setattr(sticky_entries, "MOST_FORWARDED", 3 * FORWARDED)


def kept(sticky: StickyRefusals, user: str) -> tuple[int, int]:
    """Return how much is noted, by counting it: entries that were cut off, and partitions forwarded."""
    records = sticky.watched.get(user, {}).values()
    forwarded = sum(
        len(by_partition) + TOPIC_AS_PARTITIONS
        for record in records
        for by_partition in record.forwarded.values()
    )
    return sum(len(record.cut) for record in records), forwarded


def counted(sticky: StickyRefusals, user: str) -> tuple[int, int]:
    return sticky._cut.notes_of(user), sticky._forwarded.notes_of(user)


def reconnecting(sticky: StickyRefusals, user: str = "mallory", *, ids: int = 50) -> None:
    """A connection for each made-up id, which is refused in as many partitions as it names, and closed."""
    for producer_id in range(ids):
        for partition in range(PARTITIONS):
            sticky.record_refusal(user, batch(producer_id, 7, partition=partition), 1_000 + producer_id, 0)
        sticky.connection_closed(1_000 + producer_id)


def naming_topics(sticky: StickyRefusals, user: str = "mallory", *, ids: int = 1, topics: int = 52) -> None:
    """Ids that are watched, and produce to one topic after the other."""
    for producer_id in range(ids):
        sticky.watch_new_id(user, producer_id, 0)
        for number in range(topics):
            sticky.record_forwarded(user, [batch(producer_id, topic=b"t-%d" % number)], 1)


def flooded(attack: Callable[[StickyRefusals], None]) -> tuple[int, int]:
    sticky = StickyRefusals(100)
    attack(sticky)
    assert kept(sticky, "mallory") == counted(sticky, "mallory")
    return kept(sticky, "mallory")


@rule("Tables of names, watched ids, notes and held beginnings are bounded for each user.", "memory")
def test_no_number_of_connections_or_topics_makes_the_notes_of_a_user_grow(small: None) -> None:
    cut, _ = flooded(reconnecting)
    assert CUT - PARTITIONS < cut <= CUT
    _, forwarded = flooded(naming_topics)
    assert 0 < forwarded <= FORWARDED
    _, forwarded = flooded(lambda sticky: naming_topics(sticky, ids=9, topics=2))
    assert FORWARDED / 2 <= forwarded <= FORWARDED


def test_of_all_notes_a_user_leaves_as_many_to_others(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky_entries, "MOST_CUT", CUT)
    sticky = StickyRefusals(100)
    reconnecting(sticky, "alice", ids=1)
    reconnecting(sticky, "mallory")
    assert kept(sticky, "alice") == (PARTITIONS, 0)
    assert sum(kept(sticky, user)[0] for user in ("alice", "mallory")) <= CUT - PARTITIONS


@rule("A batch on a partition whose history was evicted is refused once more.", "order")
def test_what_is_forgotten_is_refused_once_more_and_never_passed(small: None) -> None:
    """An id is forgotten, its oldest notes first, but not that it is watched, nor that a batch of it waits."""
    sticky = StickyRefusals(1_000)
    sticky.record_refusal("alice", batch(100, 7), 1, 0)
    sticky.record_refusal("alice", batch(100, 7, partition=1), 2, 0)
    sticky.record_refusal("alice", batch(100, 7, partition=2), 3, 0)
    sticky.record_forwarded("alice", [batch(100, 7, partition=1)], 2)
    sticky.connection_closed(3)

    def looks(base_sequence: int) -> list[Position]:
        return [
            sticky.locate_batch("alice", batch(100, base_sequence, partition=partition), 2, 0)
            for partition in range(3)
        ]

    assert looks(7) == [Position.SAME, Position.PASSED, Position.SAME]
    reconnecting(sticky, "alice")
    naming_topics(sticky, "alice", ids=2, topics=3)
    assert looks(7) == [Position.SAME, Position.FIRST_SIGHT, Position.FIRST_SIGHT]
    assert looks(8) == [Position.ABOVE, Position.FIRST_SIGHT, Position.FIRST_SIGHT]
    record = sticky.watched["alice"][100]
    assert not sticky.are_partitions_clear(record, 0, b"t", [1], 2), "no cache answers for it"


def test_notes_are_counted_exactly(small: None) -> None:
    """Whatever happens in whatever order, ended watches, moved leaders, and other names of a topic included."""
    dice = Random(1)
    topics = [b"t", b"u", b"\x00" + bytes(range(16))]
    for _ in range(40):
        sticky, now_ms = StickyRefusals(30), 0
        for step in range(300):
            user = dice.choice(("alice", "bob"))
            one = batch(
                dice.randrange(6),
                dice.randrange(3),
                epoch=dice.randrange(2),
                topic=dice.choice(topics),
                partition=dice.randrange(4),
            )
            connection = dice.randrange(4)
            now_ms += dice.choice((0, 0, 1_000, WATCH_MS // 10))
            act = dice.randrange(7)
            if act <= 1 and not sticky.would_overflow(user, connection, [one]):
                sticky.record_refusal(user, one, connection, now_ms)
            elif act <= 3:
                sticky.locate_batch(user, one, connection, now_ms)
                sticky.record_forwarded(user, [one], connection)
            elif act == 4:
                sticky.forget_failed_batches(user, one[0], [(one[3], one[4])])
            elif act == 5:
                sticky.connection_closed(connection)
            else:
                sticky.sweep(now_ms)
            if step == 150:
                sticky.topics.learn(b"t", topics[2])
            for name in ("alice", "bob"):
                assert kept(sticky, name) == counted(sticky, name)
                assert counted(sticky, name) <= (CUT, FORWARDED)
        for connection in range(4):
            sticky.connection_closed(connection)
        sticky.sweep(now_ms + WATCH_MS)
        assert (sticky.watched, sticky._cut.notes, sticky._forwarded.notes) == ({}, 0, 0)


def test_a_table_that_was_large_keeps_no_memory_for_it() -> None:
    """Else a thousand entries, all but one of which are ended, would cost 36 KB and count as one."""
    sticky = StickyRefusals(10_000)
    for partition in range(1_000):
        sticky.record_refusal("mallory", batch(1, partition=partition), 1, 0)
    sticky.record_refusal("mallory", batch(1, partition=1_000), 2, 0)
    entries = sticky.watched["mallory"][1].entries
    before_bytes = sys.getsizeof(entries)
    sticky.connection_closed(1)
    assert len(sticky.watched["mallory"][1].entries) == 1
    assert sys.getsizeof(sticky.watched["mallory"][1].entries) < before_bytes / 100
    many = dict.fromkeys(range(1_000))
    for key in range(999):
        del many[key]
        many = shrunk(many)
        assert list(many) == list(range(key + 1, 1_000))
    assert sys.getsizeof(many) < before_bytes / 100


@pytest.mark.parametrize("size", [*range(1, 70), 1_000, 1_023, 1_024, 1_025, 16_384, 16_385, 87_382])
def test_a_table_is_not_copied_for_each_that_is_taken_out_and_put_back(size: int) -> None:
    """A batch that comes back to a refusal is both, for each of a thousand partitions of a request."""
    table = dict.fromkeys(range(size))
    copies = 0
    for _ in range(1_000):
        del table[0]
        before, table = table, shrunk(table)
        copies += table is not before
        table[0] = None
    assert copies * size <= 2 * 1_000 + 2 * size


def test_a_connection_has_no_more_entries_than_end_in_a_turn() -> None:
    sticky = StickyRefusals(20_000)
    held = 0
    while not sticky.would_overflow("mallory", 1, [batch(held)]):
        sticky.record_refusal("mallory", batch(held), 1, 0)
        held += 1
    assert held == MOST_ENTRIES_OF_CONNECTION
    assert not sticky.would_overflow("mallory", 2, [batch(held)]), "another connection has room of its own"
    assert steps_of(lambda: sticky.connection_closed(1)) < MOST_STEPS / 2
    assert sticky.count_entries("mallory") == 0
    assert kept(sticky, "mallory") == counted(sticky, "mallory") == (sticky_entries.MOST_CUT_AT_ONCE, 0)
    assert not sticky.would_overflow("mallory", 1, [batch(held)])
