"""Held beginnings: exact by user, id, topic and partition, and no cache of a connection overrides them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota import sticky, sticky_entries
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Forward, ProducerBatch, Reason, Refuse, Verdict
from pidgate.quota.grants import Grants
from pidgate.quota.sticky import WATCH_MS, HeldBeginnings
from pidgate.quota.sticky_entries import TopicNames
from tests.support.rules import rule
from tests.unit.quota.world import batch, enforcing, seeds

TOPIC = b"t"
TOPIC_ID = b"\x00" + bytes(range(16))


@pytest.fixture
def names() -> TopicNames:
    return TopicNames()


@pytest.fixture
def held(names: TopicNames) -> HeldBeginnings:
    return HeldBeginnings(names, Grants())


def test_a_beginning_is_entered_for_a_while(held: HeldBeginnings) -> None:
    assert not held.is_beginning_held("alice", 7, TOPIC, 3, 0)
    held.note("alice", [batch(7, 0, partition=3)], 0)
    assert held.is_beginning_held("alice", 7, TOPIC, 3, WATCH_MS - 1)
    assert held.is_any_beginning_held("alice", 7, [b"other", TOPIC], [[1, 2], [3]], WATCH_MS - 1)
    assert not held.is_beginning_held("alice", 7, TOPIC, 3, WATCH_MS)
    assert not held.is_any_beginning_held("alice", 7, [TOPIC], [[3]], WATCH_MS)
    held.sweep(WATCH_MS - 1)
    assert len(held) == 1
    held.sweep(WATCH_MS)
    assert len(held) == 0


def test_a_batch_above_0_begins_nothing(held: HeldBeginnings) -> None:
    held.note("alice", [batch(7, 1, partition=3)], 0)
    assert not held.is_beginning_held("alice", 7, TOPIC, 3, 0)


def test_other_ids_partitions_topics_and_users_go_on(held: HeldBeginnings) -> None:
    held.note("alice", [batch(7, 0, partition=3)], 0)
    assert not held.is_any_beginning_held("alice", 7, [TOPIC, b"other"], [[0, 1], [3]], 0)
    assert not held.is_any_beginning_held("alice", 8, [TOPIC], [[3]], 0)
    assert not held.is_any_beginning_held("bob", 7, [TOPIC], [[3]], 0)


def test_a_topic_is_found_by_name_and_by_id(held: HeldBeginnings, names: TopicNames) -> None:
    held.note("alice", [(7, 0, 0, TOPIC, 0)], 0)
    assert held.is_beginning_held("alice", 7, TOPIC_ID, 0, 0), "as long as its name is unknown it may be any"
    assert not held.is_beginning_held("alice", 7, TOPIC_ID, 1, 0)
    names.learn(TOPIC, TOPIC_ID)
    assert held.is_beginning_held("alice", 7, TOPIC_ID, 0, 0)
    other_id = b"\x00" + bytes(16)
    names.learn(b"other", other_id)
    assert not held.is_beginning_held("alice", 7, other_id, 0, 0)


def test_an_id_without_a_name_stands_for_every_topic(held: HeldBeginnings, names: TopicNames) -> None:
    held.note("alice", [(7, 0, 0, TOPIC_ID, 0)], 0)
    names.learn(TOPIC, TOPIC_ID)
    assert held.is_beginning_held("alice", 7, TOPIC, 0, 0)
    assert held.is_beginning_held("alice", 7, b"other", 0, 0)
    assert not held.is_beginning_held("alice", 7, TOPIC, 1, 0)


IDS = st.integers(0, 2**63 - 1)
PARTITIONS = st.integers(0, 2**31 - 1)


@rule("Tables of names, watched ids, notes and held beginnings are bounded for each user.", "memory")
@given(st.lists(st.tuples(IDS, PARTITIONS), min_size=1, max_size=20), st.integers(1, 20))
def test_no_entry_is_lost_for_want_of_room(noted: list[tuple[int, int]], room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sticky, "MOST_HELD_OF_USER", room)
        held = HeldBeginnings(TopicNames(), Grants())
        for producer_id, partition in noted:
            held.note("alice", [batch(producer_id, 0, partition=partition)], 0)
        assert len(held) == min(len(set(noted)), room)
        for producer_id, partition in noted:
            assert held.is_beginning_held("alice", producer_id, TOPIC, partition, 0)
            assert held.is_any_beginning_held("alice", producer_id, [b"", TOPIC], [[], [partition]], 0)


def test_a_user_without_room_delays_no_other(held: HeldBeginnings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky, "MOST_HELD", 3)
    for producer_id in range(5):
        held.note("mallory", [batch(producer_id, 0)], producer_id)
    assert held.is_beginning_held("mallory", 99, TOPIC, 0, WATCH_MS)
    assert not held.is_beginning_held("alice", 3, TOPIC, 0, 0)
    held.sweep(WATCH_MS + 3)
    assert len(held) == 0
    assert held.is_beginning_held("mallory", 99, TOPIC, 0, WATCH_MS + 3)
    held.sweep(WATCH_MS + 4)
    assert not held.is_beginning_held("mallory", 99, TOPIC, 0, 0)


def test_a_sweep_forgets_a_portion(held: HeldBeginnings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky, "FORGOTTEN_AT_ONCE", 2)
    for producer_id in range(5):
        held.note("alice", [batch(producer_id, 0)], 0)
    held.note("alice", [batch(0, 0, partition=1)], 1)
    for left in (4, 2):
        held.sweep(WATCH_MS)
        assert len(held) == left
    assert held.is_beginning_held("alice", 0, TOPIC, 1, WATCH_MS)


def test_an_id_without_room_is_told_each_time(held: HeldBeginnings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky, "MOST_HELD", 1)
    for producer_id in (1, 2):
        held.note("alice", [batch(producer_id)], 0)
    assert [held.find_unpublished("alice", [batch(1), batch(2)], now_ms) for now_ms in (0, 1)] == [
        [batch(1), batch(2)],
        [batch(2)],
    ]
    held.sweep(WATCH_MS)
    assert held.find_unpublished("alice", [batch(1)], WATCH_MS) == []


class Gateway:
    """An admission, and a connection of alice on which id 7 is known."""

    def __init__(self) -> None:
        self.admission = Admission(enforcing(), seeds(), 0)
        self.client = Client("alice", "app", "10.0.0.1", 1)
        assert isinstance(self.judge(batch(7, 0, partition=1), 0), Forward)
        # No longer watched as a new id.
        self.began_ms = WATCH_MS
        self.admission.sweep(self.began_ms)
        assert isinstance(self.judge(batch(7, 1, partition=1), self.began_ms), Forward)

    def judge(self, one: ProducerBatch, now_ms: int) -> Verdict:
        return self.admission.judge(self.client, [one], transactional=False, now_ms=now_ms)

    def hold(self, *batches: ProducerBatch) -> None:
        """Hold a request with these batches behind a mute of another connection."""
        self.admission.held_beginnings.note("alice", batches, self.began_ms)


@rule("A batch behind a held beginning of its partition is refused once, whatever the caches say.", "order")
def test_a_batch_behind_a_held_beginning_is_refused_once() -> None:
    gateway = Gateway()
    now_ms = gateway.began_ms
    gateway.hold(batch(7, 0))
    refused = gateway.judge(batch(7, 5), now_ms)
    assert isinstance(refused, Refuse), "although the id is known on this connection"
    assert (refused.reason, refused.throttle_time_ms) == (Reason.ESTABLISHED, 100)
    assert isinstance(gateway.judge(batch(7, 5), now_ms + 100), Forward)
    assert isinstance(gateway.judge(batch(7, 6), now_ms + 100), Forward)


@rule("A batch behind a held beginning of its partition is refused once, whatever the caches say.", "order")
def test_the_other_partitions_of_the_id_stay_in_the_cache() -> None:
    gateway = Gateway()
    now_ms = gateway.began_ms
    gateway.hold(batch(7, 0))
    assert gateway.admission.knows(gateway.client, 7, 0, [TOPIC], [[1]], False, now_ms)
    assert not gateway.admission.knows(gateway.client, 7, 0, [TOPIC], [[1, 0]], False, now_ms)


def test_without_room_to_watch_it_is_refused_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky_entries, "MOST_NOTED_WATCHED", 0)
    gateway = Gateway()
    now_ms = gateway.began_ms
    gateway.hold(batch(7, 0))
    assert isinstance(gateway.judge(batch(7, 5), now_ms), Refuse)
    assert isinstance(gateway.judge(batch(7, 5), now_ms + 100), Forward)


def test_a_watched_id_is_known_once_each_of_its_partitions_has_passed() -> None:
    gateway = Gateway()
    now_ms, admission = gateway.began_ms, gateway.admission
    admission.sticky.watch_refused_elsewhere("alice", 7, now_ms)
    assert not admission.knows(gateway.client, 7, 0, [TOPIC], [[1]], False, now_ms)
    assert isinstance(gateway.judge(batch(7, 2, partition=1), now_ms), Refuse)
    assert isinstance(gateway.judge(batch(7, 2, partition=1), now_ms + 100), Forward)
    assert admission.knows(gateway.client, 7, 0, [TOPIC], [[1]], False, now_ms + 100)
    assert not admission.knows(gateway.client, 7, 0, [TOPIC], [[1, 2]], False, now_ms + 100)


def test_a_held_id_is_told_as_a_decision_without_tokens() -> None:
    gateway = Gateway()
    gateway.hold(batch(7, 0), batch(7, 3, partition=1))
    (told,) = gateway.admission.hold_decisions(
        gateway.client, [batch(7, 0), batch(7, 3, partition=1)], transactional=False, now_ms=gateway.began_ms
    )
    assert (told.producer_id, told.admitted, told.reason) == (7, False, Reason.HELD)
    assert (told.throttle_time_ms, told.tokens_before, told.request_partitions) == (0, None, 2)
