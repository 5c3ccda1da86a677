"""Ids whose first batch may wait in another process: named in answers, watched, and never answered for by a cache."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidgate.quota import watch_room
from pidgate.quota import young_ids as young_module
from pidgate.quota.admission import Admission
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode
from pidgate.quota.state import Answer, AskedId, PendingDecision, Question
from pidgate.quota.state_access import WAITS_ON_MS
from pidgate.quota.sticky import WATCH_MS
from pidgate.quota.verdicts import Forward, ProducerBatch, Reason, Refuse, Session, Verdict
from pidgate.quota.young_ids import YoungIds
from tests.unit.quota.world import batch, enforcing, seeds

PASSED = Answer(False, ())


def question(*producer_ids: int, begins: bool = True, passed: bool = False) -> Question:
    asked = [AskedId(one, 0, 0, b"t", 0, begins_partition=begins) for one in producer_ids]
    return Question("alice", "10.0.0.1", "app", False, len(asked), asked, passed=passed)


def named(table: YoungIds, asked: Question, now_ms: int = 0, worker: int = 1) -> tuple[int, ...]:
    answer = replace(PASSED)
    table.name(asked, answer, worker, now_ms)
    return answer.young


def test_who_begins_a_partition_is_young_for_all_who_ask_after_it() -> None:
    table = YoungIds()
    assert named(table, question(7, begins=False)) == ()
    assert named(table, question(7)) == (7,)
    assert named(table, question(6, 7, begins=False)) == (7,)


def test_who_waits_nowhere_is_not() -> None:
    table = YoungIds()
    assert named(table, question(7, passed=True)) == ()
    table.name(question(7), Answer(True, ()), 1, 0)
    assert named(table, question(7, begins=False)) == ()


def test_it_ends() -> None:
    table = YoungIds()
    named(table, question(7))
    table.sweep(WATCH_MS - 1)
    assert named(table, question(7, begins=False)) == (7,)
    table.sweep(WATCH_MS)
    assert named(table, question(7, begins=False)) == ()


def test_nothing_waits_in_a_worker_that_is_gone() -> None:
    table = YoungIds()
    for worker, producer_id in ((1, 6), (1, 7), (2, 7)):
        named(table, question(producer_id), worker=worker)
    table.worker_lost(1)
    assert named(table, question(6, 7, begins=False)) == (7,)
    table.worker_lost(2)
    assert named(table, question(6, 7, begins=False)) == ()


def test_there_is_an_end_to_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(young_module, "MOST_YOUNG", 2)
    table = YoungIds()
    named(table, question(1, 2, 3))
    assert named(table, question(1, 2, 3, begins=False)) == (2, 3)


class Elsewhere(ProducerIdQuota):
    """A state in another process."""

    def decide(self, question: Question, now_ms: int) -> Answer | None:  # type: ignore[override]
        return None


class Worker:
    """An admission whose questions are answered by the script."""

    def __init__(self, *, mode: Mode = Mode.ENFORCE) -> None:
        quotas = enforcing(mode=mode)
        self.admission = Admission(quotas, seeds(), -WAITS_ON_MS, remote=Elsewhere(quotas, seeds(), 0))
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


def test_a_young_id_above_0_is_refused_once_and_then_known() -> None:
    worker = Worker()
    refused = worker.judge(batch(7, 5), Answer(False, (), young=(7,)))
    assert isinstance(refused, Refuse)
    assert (refused.reason, refused.throttle_time_ms) == (Reason.ESTABLISHED, 100)
    assert isinstance(worker.judge(batch(7, 5), Answer(False, (), young=(7,)), 100), Forward)
    assert isinstance(worker.judge(batch(7, 6), None, 100), Forward), "nobody has to be asked"


def test_for_whom_the_watch_has_no_room_no_cache_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_room, "MOST_YOUNG_WATCHED", 0)
    worker = Worker()
    young = Answer(False, (), young=(7,))
    assert isinstance(worker.judge(batch(7, 0), young), Forward)
    assert isinstance(worker.judge(batch(7, 0, partition=1), young), Forward)
    assert isinstance(worker.judge(batch(7, 1), young), Refuse)
    assert len(worker.asked) == 3


def test_who_is_never_refused_does_not_wait() -> None:
    worker = Worker(mode=Mode.OBSERVE)
    verdict = worker.judge(batch(7, 0), None)
    assert isinstance(verdict, PendingDecision)
    assert verdict.question.passed
    assert isinstance(worker.judge(batch(7, 1), None), Forward), "it went on, and is known"
    state = ProducerIdQuota(enforcing(0), seeds(), 0)
    verdict.answer = state.decide(verdict.question, 0)
    assert not verdict.answer.refused, "whatever the state thinks of it by then"
    (decision,) = worker.admission.counted("alice", verdict, 0)
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
