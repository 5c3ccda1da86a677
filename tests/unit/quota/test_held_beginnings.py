"""Beginnings that were not forwarded at once: noted where all workers see them, and no cache passes them by."""

from __future__ import annotations

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota import watch_room
from pidgate.quota.admission import Admission
from pidgate.quota.held_beginnings import PARTS, SLOTS, WORDS, HeldBeginnings
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode
from pidgate.quota.state import Answer, PendingDecision, Question
from pidgate.quota.state_access import WAITS_ON_MS
from pidgate.quota.sticky import WATCH_MS
from pidgate.quota.verdicts import Forward, ProducerBatch, Reason, Refuse, Session, Verdict
from tests.unit.quota.world import batch, enforcing, seeds

PASSED = Answer(False, ())


@pytest.fixture
def held() -> HeldBeginnings:
    return notes()


def notes() -> HeldBeginnings:
    return HeldBeginnings(memoryview(mmap.mmap(-1, 8 * WORDS)).cast("q"))


def test_a_beginning_is_noted_for_a_while(held: HeldBeginnings) -> None:
    assert not held.has("alice", 7, 3, 0)
    held.note("alice", [batch(7, 0, partition=3)], 0)
    assert held.has("alice", 7, 3, WATCH_MS - 1)
    assert held.has_any("alice", 7, [[1, 2], [3]], WATCH_MS - 1)
    assert not held.has("alice", 7, 3, WATCH_MS)


def test_what_begins_nothing_is_not(held: HeldBeginnings) -> None:
    held.note("alice", [batch(7, 1, partition=3)], 0)
    assert not held.has("alice", 7, 3, 0)


def test_the_streams_of_other_ids_and_partitions_go_on(held: HeldBeginnings) -> None:
    held.note("alice", [batch(7, 0, partition=3)], 0)
    assert not held.has_any("alice", 7, [[0, 1], [2, 4]], 0)
    assert not held.has_any("alice", 8, [[3]], 0)


def test_who_makes_up_the_ids_of_another_user_delays_none_of_them(held: HeldBeginnings) -> None:
    for producer_id in range(2 * SLOTS):
        held.note("mallory", [batch(producer_id, 0, partition=3)], 0)
    delayed = [user for user in NAMES if held.has_any(user, 7, [[0, 1, 2, 3]], 0)]
    assert len(delayed) < 2 * len(NAMES) // PARTS


NAMES = [f"user-{number}" for number in range(2_000)]
IDS = st.integers(0, 2**63 - 1)
PARTITIONS = st.integers(0, 2**31 - 1)


@given(st.lists(st.tuples(IDS, PARTITIONS), min_size=1, max_size=20))
def test_no_note_pushes_out_another(noted: list[tuple[int, int]]) -> None:
    held = notes()
    for producer_id, partition in noted:
        held.note("alice", [batch(producer_id, 0, partition=partition)], 0)
    for producer_id, partition in noted:
        assert held.has("alice", producer_id, partition, 0)
        assert held.has_any("alice", producer_id, [[], [partition]], 0)


class Elsewhere(ProducerIdQuota):
    """A state in another process."""

    def decide(self, question: Question, now_ms: int) -> Answer | None:  # type: ignore[override]
        return None


class Worker:
    """An admission whose questions are answered by the script."""

    def __init__(self, held: HeldBeginnings | None = None, *, mode: Mode = Mode.ENFORCE) -> None:
        quotas = enforcing(mode=mode)
        self.admission = Admission(quotas, seeds(), -WAITS_ON_MS, remote=Elsewhere(quotas, seeds(), 0))
        self.admission.held_beginnings = held
        self.session = Session("alice", "app", "10.0.0.1", 1)
        self.asked: list[Question] = []

    def judge(self, one: ProducerBatch, answer: Answer | None, now_ms: int = 0) -> Verdict | PendingDecision:
        verdict = self.admission.judge(self.session, [one], transactional=False, now_ms=now_ms)
        if not isinstance(verdict, PendingDecision):
            return verdict
        self.asked.append(verdict.question)
        if answer is None:
            return verdict
        verdict.answer = answer
        return self.admission.judge(self.session, [one], transactional=False, now_ms=now_ms, pending=verdict)


def test_what_another_worker_holds_is_waited_for_once(held: HeldBeginnings) -> None:
    worker = Worker(held)
    assert isinstance(worker.judge(batch(7, 4, partition=1), PASSED), Forward)
    held.note("alice", [batch(7, 0)], 0)
    refused = worker.judge(batch(7, 5), None)
    assert isinstance(refused, Refuse), "the id is known on this connection, and yet"
    assert (refused.reason, refused.throttle_time_ms) == (Reason.ESTABLISHED, 100)
    assert isinstance(worker.judge(batch(7, 5), None, 100), Forward)
    assert isinstance(worker.judge(batch(7, 6), None, 100), Forward), "nobody has to be asked"


def test_the_other_partitions_of_the_id_are_in_the_cache_as_before(held: HeldBeginnings) -> None:
    worker = Worker(held)
    assert isinstance(worker.judge(batch(7, 4, partition=1), PASSED), Forward)
    held.note("alice", [batch(7, 0)], 0)
    assert worker.admission.knows(worker.session, 7, 0, [b"orders"], [[1]], False, 0)
    assert not worker.admission.knows(worker.session, 7, 0, [b"orders"], [[1, 0]], False, 0)


def test_what_is_refused_is_noted(held: HeldBeginnings) -> None:
    """One that is above 0 takes the beginnings of its request with it."""
    worker = Worker(held)
    held.note("alice", [batch(7, 0, partition=1)], 0)
    request = [batch(7, 3, partition=1), batch(7, 0)]
    verdict = worker.admission.judge(worker.session, request, transactional=False, now_ms=0)
    assert isinstance(verdict, Refuse)
    assert held.has("alice", 7, 0, 0)


def test_without_room_to_watch_it_is_refused_all_the_same(
    held: HeldBeginnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_room, "MOST_NOTED_WATCHED", 0)
    worker = Worker(held)
    held.note("alice", [batch(7, 0)], 0)
    assert isinstance(worker.judge(batch(7, 5), None), Refuse)
    assert isinstance(worker.judge(batch(7, 5), PASSED, 100), Forward)


def test_who_is_never_refused_does_not_wait() -> None:
    worker = Worker(mode=Mode.OBSERVE)
    verdict = worker.judge(batch(7, 0), None)
    assert isinstance(verdict, PendingDecision)
    assert verdict.question.passed
    assert isinstance(worker.judge(batch(7, 1), None), Forward), "it went on, and is known"
    state = ProducerIdQuota(enforcing(0), seeds(), 0)
    verdict.answer = state.decide(verdict.question, 0)
    assert not verdict.answer.refused, "whatever the state thinks of it by then"
    (decision,) = worker.admission.counted(verdict, 0)
    assert (decision.reason, decision.would_refuse) == (Reason.OBSERVE, True)
    (counted,) = worker.admission.user_snapshots(0)
    assert counted.would_refuse == 1


def test_after_a_change_of_quotas_it_waits_for_a_while() -> None:
    """Another worker may hold an earlier batch of it, under the quotas before."""
    worker = Worker()
    worker.admission.set_quotas(enforcing(mode=Mode.OBSERVE), 0)
    for now_ms, passed in ((WAITS_ON_MS - 1, False), (WAITS_ON_MS, True)):
        verdict = worker.judge(batch(7, 0), None, now_ms)
        assert isinstance(verdict, PendingDecision)
        assert verdict.question.passed is passed
