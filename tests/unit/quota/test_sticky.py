"""What must not pass before what: every rule of the exact table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota import sticky_entries
from pidgate.quota.sticky import WATCH_MS, Position, StickyRefusals
from pidgate.quota.sticky_entries import TopicNames
from tests.support.rules import rule
from tests.unit.quota.world import batch

A, B = 1, 2  # connections
ID = 4711


def table(entries_per_user: int = 100) -> StickyRefusals:
    return StickyRefusals(entries_per_user)


def refused(*sequences: int, connection: int = A) -> StickyRefusals:
    sticky = table()
    for base_sequence in sequences:
        sticky.record_refusal("alice", batch(ID, base_sequence), connection, 0)
    return sticky


def look(
    sticky: StickyRefusals,
    base_sequence: int,
    *,
    epoch: int = 0,
    topic: bytes = b"t",
    partition: int = 0,
    now_ms: int = 0,
) -> Position:
    one = batch(ID, base_sequence, epoch=epoch, topic=topic, partition=partition)
    return sticky.locate_batch("alice", one, 1, now_ms)


@rule(
    "Everything above a refused batch is refused while its entry stands, with any number in flight.", "order"
)
def test_a_pipeline_of_any_depth_waits_for_its_lowest_batch() -> None:
    sticky, depth = refused(0), 300
    for sequence in (*range(2, depth, 2), *range(1, depth, 2)):
        assert look(sticky, sequence) is Position.ABOVE
        sticky.record_refusal("alice", batch(ID, sequence), A, 0)
    assert sticky.count_entries("alice") == depth
    for sequence in range(depth):
        assert look(sticky, sequence) is Position.SAME
        assert look(sticky, sequence + 1) is not Position.SAME
        sticky.record_forwarded("alice", [batch(ID, sequence)], A)
    assert sticky.count_entries("alice") == 0


def test_batches_above_count_in_the_users_table() -> None:
    sticky = StickyRefusals(entries_per_user=3)
    for sequence in range(3):
        assert not sticky.would_overflow("alice", A, [batch(ID, sequence)])
        sticky.record_refusal("alice", batch(ID, sequence), A, 0)
    assert not sticky.would_overflow("alice", A, [batch(ID, 2)]), "it is there already"
    assert sticky.would_overflow("alice", A, [batch(ID, 3)])
    sticky.connection_closed(A)
    assert sticky.count_entries("alice") == 0


def test_without_room_an_entry_moves_back_and_forgets_the_later_one() -> None:
    """It was forwarded, and a broker did not take it: the later one is refused again where it comes too early."""
    sticky = StickyRefusals(entries_per_user=2)
    for sequence in (0, 1):
        sticky.record_refusal("alice", batch(ID, sequence), A, 0)
    sticky.record_forwarded("alice", [batch(ID, 0)], A)
    sticky.record_refusal("alice", batch(ID + 1, 0), A, 0)
    sticky.forget_failed_batches("alice", ID, [(b"t", 0)], [batch(ID, 0)])
    assert sticky.count_entries("alice") == 2
    assert [look(sticky, sequence) for sequence in (0, 1)] == [Position.SAME, Position.ABOVE]


def test_around_the_refused_sequence() -> None:
    sticky = refused(10)
    assert look(sticky, 9) is Position.BELOW
    assert look(sticky, 10) is Position.SAME
    assert look(sticky, 11) is Position.ABOVE
    assert look(sticky, 11, partition=1) is Position.FIRST_SIGHT
    assert sticky.locate_batch("bob", batch(ID, 11), 1, 0) is Position.UNWATCHED
    assert sticky.locate_batch("alice", batch(ID + 1, 11), 1, 0) is Position.UNWATCHED


@rule("A batch that a broker answered with an error has not passed.", "order")
def test_an_entry_that_moved_on_past_it_moves_back() -> None:
    """librdkafka sent 0, 1 and 3 at once; all wait behind a byte mute, and the leader of 0 has moved."""
    sticky = refused(0)
    for sequence in (1, 3):
        sticky.record_refusal("alice", batch(ID, sequence), A, 0)
    sticky.record_forwarded("alice", [batch(ID, 0)], A)
    assert look(sticky, 1) is Position.SAME
    sticky.forget_failed_batches("alice", ID, [(b"t", 0)], [batch(ID, 0)])
    assert look(sticky, 1) is Position.ABOVE
    assert look(sticky, 3) is Position.ABOVE
    assert look(sticky, 0) is Position.SAME
    sticky.record_forwarded("alice", [batch(ID, 0)], A)
    assert look(sticky, 1) is Position.SAME
    sticky.forget_failed_batches("alice", ID, [(b"t", 0)], [batch(ID, 1)])
    assert look(sticky, 1) is Position.SAME
    assert look(sticky, 3) is Position.ABOVE


@rule(
    "Everything above a refused batch is refused while its entry stands, with any number in flight.", "order"
)
@pytest.mark.parametrize(
    ("base_sequence", "refused_at", "above"),
    [
        (0, 2**31 - 5, True),
        (2**31 - 5, 0, False),
        (2**30 - 1, 0, True),
        (2**30, 0, False),
        (7, 7, False),
    ],
)
def test_above_is_serial_arithmetic(base_sequence: int, refused_at: int, above: bool) -> None:
    assert table().is_above(base_sequence, refused_at) is above


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**30 - 1))
def test_above_wraps_around(start: int, ahead: int) -> None:
    later = (start + ahead) % 2**31
    assert table().is_above(later, start)
    assert not table().is_above(start, later)


@rule("An entry moves on to the next refused batch; the lowest one goes first.", "order")
def test_an_entry_keeps_its_lower_sequence() -> None:
    assert look(refused(10, 15), 11) is Position.ABOVE
    assert look(refused(10, 5), 6) is Position.ABOVE
    assert look(refused(2**31 - 5, 3), 2**31 - 5) is Position.SAME


@rule("An entry ends with its batch, its connection or a newer epoch, never by age.", "order")
def test_forwarding_at_or_below_lifts_that_partition_alone() -> None:
    sticky = refused(10)
    sticky.record_refusal("alice", batch(ID, 4, partition=1), A, 0)
    sticky.record_forwarded("alice", [batch(ID, 10)], 1)
    assert look(sticky, 15) is Position.PASSED
    assert look(sticky, 5, partition=1) is Position.ABOVE
    assert sticky.count_entries("alice") == 1


def test_refused_again_is_first_sight_no_more_but_an_entry() -> None:
    sticky = refused(10)
    sticky.record_forwarded("alice", [batch(ID, 10)], 1)
    sticky.record_refusal("alice", batch(ID, 20), A, 0)
    assert look(sticky, 25) is Position.ABOVE
    sticky.connection_closed(A)
    assert look(sticky, 25) is Position.FIRST_SIGHT


@rule("An entry ends with its batch, its connection or a newer epoch, never by age.", "order")
def test_a_closed_connection_ends_what_was_refused_on_it() -> None:
    sticky = refused(10)
    sticky.record_refusal("alice", batch(ID, 0, partition=1), B, 0)
    sticky.connection_closed(A)
    assert look(sticky, 15) is Position.FIRST_SIGHT
    assert look(sticky, 10) is Position.SAME  # it came back, on a new connection
    assert look(sticky, 5, partition=1) is Position.ABOVE
    assert sticky.count_entries("alice") == 1


def test_an_entry_belongs_to_the_connection_that_was_refused_last() -> None:
    sticky = refused(10)
    sticky.record_refusal("alice", batch(ID, 10), B, 0)
    sticky.connection_closed(A)
    assert look(sticky, 15) is Position.ABOVE
    sticky.connection_closed(B)
    assert look(sticky, 15) is Position.FIRST_SIGHT


def test_a_higher_batch_does_not_move_the_entry_to_its_connection() -> None:
    sticky = refused(10)
    sticky.record_refusal("alice", batch(ID, 15), B, 0)
    sticky.connection_closed(B)
    assert look(sticky, 15) is Position.ABOVE


@rule("An entry ends with its batch, its connection or a newer epoch, never by age.", "order")
def test_a_newer_epoch_ends_the_entry_of_its_partition_alone() -> None:
    sticky = refused(10)
    sticky.record_refusal("alice", batch(ID, 10, partition=1), A, 0)
    assert look(sticky, 0, epoch=1) is Position.FIRST_SIGHT
    assert look(sticky, 15) is Position.FIRST_SIGHT
    assert look(sticky, 15, partition=1) is Position.ABOVE


def test_an_older_epoch_does_not_get_in_front_of_a_newer_one() -> None:
    sticky = table()
    sticky.record_refusal("alice", batch(ID, 0, epoch=1), A, 0)
    assert look(sticky, 0, epoch=0) is Position.ABOVE
    sticky.record_refusal("alice", batch(ID, 0, epoch=0), A, 0)
    assert look(sticky, 0, epoch=1) is Position.SAME


def test_passed_is_said_of_an_epoch() -> None:
    sticky = refused(10)
    sticky.record_forwarded("alice", [batch(ID, 10)], 1)
    assert look(sticky, 15, epoch=1) is Position.FIRST_SIGHT


@rule("An entry ends with its batch, its connection or a newer epoch, never by age.", "order")
def test_an_entry_never_ends_by_age_and_a_watch_does() -> None:
    sticky = refused(10)
    sticky.sweep(100 * WATCH_MS)
    assert look(sticky, 15, now_ms=100 * WATCH_MS) is Position.ABOVE
    sticky.record_forwarded("alice", [batch(ID, 10)], 1)
    assert look(sticky, 15, now_ms=WATCH_MS - 1) is Position.PASSED
    assert look(sticky, 15, now_ms=WATCH_MS) is Position.UNWATCHED
    sticky.sweep(WATCH_MS)
    assert not sticky.watched


def test_a_sweep_passes_over_old_ids_that_have_entries() -> None:
    sticky = refused(10)
    sticky.record_refusal("alice", batch(ID + 1, 0), B, 1)
    sticky.record_refusal("alice", batch(ID + 2, 0), B, WATCH_MS)
    sticky.connection_closed(B)
    sticky.sweep(WATCH_MS + 1)
    assert list(sticky.watched["alice"]) == [ID, ID + 2]


@rule(
    "A refused batch that is overdue closes the connection at the next one above it, and its entry ends.",
    "order",
)
def test_a_batch_is_overdue_30_s_after_its_throttle() -> None:
    sticky = StickyRefusals(entries_per_user=10)
    sticky.record_refusal("alice", batch(ID, 10), A, 0, 7_000)
    sticky.record_refusal("alice", batch(ID, 11), A, 36_000)
    assert not sticky.end_overdue_entry("alice", batch(ID, 11), 36_999)
    sticky.record_refusal("alice", batch(ID, 10), A, 36_999, 1_000)
    assert not sticky.end_overdue_entry("alice", batch(ID, 11), 67_998), "it came back"
    assert sticky.end_overdue_entry("alice", batch(ID, 11), 67_999)
    assert sticky.count_entries("alice") == 0


def test_a_users_table_is_bounded_and_nobody_elses() -> None:
    sticky = table(entries_per_user=2)
    sticky.record_refusal("alice", batch(1), A, 0)
    assert not sticky.would_overflow("alice", A, [batch(2)])
    assert sticky.would_overflow("alice", A, [batch(2), batch(2, partition=1)])
    sticky.record_refusal("alice", batch(2), A, 0)
    assert sticky.would_overflow("alice", A, [batch(3)])
    assert not sticky.would_overflow("alice", A, [batch(1), batch(2)])
    assert sticky.would_overflow("alice", A, [batch(1, 5), batch(2)])
    assert not sticky.would_overflow("bob", A, [batch(3)])
    sticky.connection_closed(A)
    assert sticky.count_entries("alice") == 0
    assert not sticky.would_overflow("alice", A, [batch(3)])


def test_the_ids_watched_of_one_user_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky_entries, "WATCHED_IDS_PER_USER", 2)
    sticky = table()
    for producer_id in (1, 2):
        sticky.record_refusal("alice", batch(producer_id), A, 0)
    sticky.connection_closed(A)
    assert sticky.would_overflow("alice", A, [batch(3)])
    assert not sticky.would_overflow("alice", A, [batch(2)])


def test_what_is_kept_of_one_id_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky_entries, "MOST_FORWARDED_OF_ID", sticky_entries.TOPIC_AS_PARTITIONS + 2)
    monkeypatch.setattr("pidgate.quota.sticky.MOST_CUT_AT_ONCE", 1)
    sticky = refused(10)
    for partition in (1, 2, 3):
        sticky.record_forwarded("alice", [batch(ID, 0, partition=partition)], 1)
    assert look(sticky, 5, partition=1) is Position.FIRST_SIGHT
    assert look(sticky, 5, partition=3) is Position.PASSED
    sticky.record_refusal("alice", batch(ID, 7, partition=4), A, 0)
    sticky.connection_closed(A)
    assert look(sticky, 10) is Position.SAME
    assert look(sticky, 7, partition=4) is Position.FIRST_SIGHT


TOPIC_ID = b"\x00" + bytes(range(16))


def test_a_topic_by_name_and_by_id_is_the_same_topic() -> None:
    sticky = refused(10)
    assert look(sticky, 15, topic=TOPIC_ID) is Position.FIRST_SIGHT
    sticky.topics.learn(b"t", TOPIC_ID)
    assert look(sticky, 15, topic=TOPIC_ID) is Position.ABOVE
    sticky.record_forwarded("alice", [batch(ID, 10, topic=TOPIC_ID)], 1)
    assert look(sticky, 15) is Position.PASSED
    assert look(sticky, 15, topic=TOPIC_ID) is Position.PASSED


def test_what_was_refused_before_the_name_was_learnt_is_found_after() -> None:
    sticky = table()
    sticky.record_refusal("alice", batch(ID, 10, topic=TOPIC_ID), A, 0)
    sticky.record_refusal("alice", batch(ID, 3, topic=TOPIC_ID, partition=1), A, 0)
    sticky.record_forwarded("alice", [batch(ID, 3, topic=TOPIC_ID, partition=1)], 1)
    sticky.topics.learn(b"t", TOPIC_ID)
    assert look(sticky, 15) is Position.ABOVE
    assert look(sticky, 5, partition=1) is Position.PASSED
    sticky.record_refusal("alice", batch(ID, 5, partition=1), A, 0)
    assert look(sticky, 6, partition=1, topic=TOPIC_ID) is Position.ABOVE
    sticky.record_refusal("alice", batch(ID, 4), A, 0)
    assert sticky.count_entries("alice") == 3
    sticky.connection_closed(A)
    assert look(sticky, 4, topic=TOPIC_ID) is Position.SAME


def test_topic_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky_entries, "MOST_ALIASES", 2)
    names = TopicNames()
    for number in (1, 2, 3):
        names.learn(b"topic-%d" % number, bytes([0, number]))
    assert names.canonical(bytes([0, 1])) == bytes([0, 1])
    assert names.other_form(b"topic-1") is None
    assert names.canonical(bytes([0, 3])) == b"topic-3"
    names.learn(b"topic-3", bytes([0, 3]))
    names.learn(b"topic-3", bytes([0, 9]))  # created anew: the newer id is the name's
    assert names.other_form(b"topic-3") == bytes([0, 9])
    assert names.canonical(bytes([0, 3])) == b"topic-3"
    names.learn(b"topic-4", bytes([0, 4]))
    assert names.other_form(b"topic-3") == bytes([0, 9]), "the older of its ids is forgotten, and no more"


@rule("An entry moves on to the next refused batch; the lowest one goes first.", "order")
def test_what_was_refused_later_comes_in_its_turn() -> None:
    sticky = StickyRefusals(10)
    for sequence in (10, 14, 12):
        sticky.record_refusal("alice", batch(ID, sequence), 1, 0)
    for sequence, next_sequence in ((10, 12), (12, 14)):
        sticky.record_forwarded("alice", [batch(ID, sequence)], 1)
        assert look(sticky, next_sequence) is Position.SAME
        assert look(sticky, 16) is Position.ABOVE
    sticky.record_forwarded("alice", [batch(ID, 14)], 1)
    assert look(sticky, 16) is Position.PASSED
    assert sticky.count_entries("alice") == 0


@rule("An entry moves on to the next refused batch; the lowest one goes first.", "order")
def test_a_lower_batch_that_is_refused_too_goes_first_and_the_other_after_it() -> None:
    sticky = StickyRefusals(10)
    sticky.record_refusal("alice", batch(ID, 12), 1, 0)
    sticky.record_refusal("alice", batch(ID, 10), 1, 0)
    sticky.record_forwarded("alice", [batch(ID, 10)], 1)
    assert look(sticky, 12) is Position.SAME
    assert look(sticky, 13) is Position.ABOVE


@rule("A gateway watches new ids and the ids that other gateways refused.", "order")
def test_an_id_refused_elsewhere_is_watched_without_an_entry() -> None:
    """Its first batch above 0 here is a first sight; what passes here first is not held up by it."""
    sticky = StickyRefusals(10)
    sticky.watch_refused_elsewhere("alice", 1, 0)
    assert sticky.locate_batch("alice", batch(1, 5), 7, 0) is Position.FIRST_SIGHT
    assert sticky.count_entries("alice") == 0
    record = sticky.find_watched_id("alice", 1, 0)
    assert record is not None
    assert record.deadline_ms == 0
    _, epoch, _, topic, partition = batch(1, 5)
    assert not sticky.are_partitions_clear(record, epoch, topic, [partition], 7)
    sticky.record_forwarded("alice", [batch(1)], 7)
    assert sticky.are_partitions_clear(record, epoch, topic, [partition], 7)
    assert sticky.locate_batch("alice", batch(1, 5), 7, 0) is Position.PASSED
    sticky.sweep(300_000)
    assert sticky.find_watched_id("alice", 1, 300_000) is None


def test_refusals_elsewhere_leave_room_for_those_here() -> None:
    sticky = StickyRefusals(10)
    for producer_id in range(sticky_entries.WATCHED_IDS_PER_USER // 2 + 5):
        sticky.watch_refused_elsewhere("alice", producer_id, 0)
    assert len(sticky.watched["alice"]) == sticky_entries.WATCHED_IDS_PER_USER // 2
    assert not sticky.would_overflow("alice", A, [batch(10**6)])
    sticky.watch_refused_elsewhere("alice", 0, 200_000)  # what is watched goes on to be
    sticky.sweep(300_000)
    assert list(sticky.watched["alice"]) == [0]


def test_an_entry_here_outlives_a_refusal_elsewhere() -> None:
    sticky = StickyRefusals(10)
    sticky.record_refusal("alice", batch(1, 5), 7, 0)
    sticky.watch_refused_elsewhere("alice", 1, 10)
    assert sticky.locate_batch("alice", batch(1, 6), 7, 10) is Position.ABOVE
    assert sticky.locate_batch("alice", batch(1, 5), 7, 10) is Position.SAME


def test_admissions_are_watched_up_to_a_bound_over_all_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky_entries, "MOST_ADMITTED_WATCHED", 3)
    sticky = StickyRefusals(10)
    for producer_id in range(5):
        sticky.watch_new_id(f"user-{producer_id}", producer_id, 299_999)
    assert list(sticky.watched) == ["user-0", "user-1", "user-2"]
    sticky.watch_new_id("dave", 9, 300_000)
    assert "dave" in sticky.watched
    sticky.record_refusal("erin", batch(1), 7, 299_999)  # refusals are never left out
    assert "erin" in sticky.watched


def test_ids_share_nothing_but_what_is_empty() -> None:
    sticky = StickyRefusals(10)
    sticky.record_refusal("alice", batch(1), 7, 0)
    sticky.record_forwarded("alice", [batch(1)], 7)
    sticky.record_refusal("alice", batch(2), 8, 0)
    sticky.connection_closed(8)
    sticky.watch_new_id("alice", 3, 0)
    record = sticky.find_watched_id("alice", 3, 0)
    assert record is not None
    assert (record.entries, record.cut, record.forwarded) == ({}, {}, {})
