"""What passes while nobody decides: ten windows of a user's rate at most, the rest is refused for a second."""

from __future__ import annotations

import pytest

from pidgate.quota import fail_open
from pidgate.quota.admission import Admission
from pidgate.quota.fail_open import bound_milli
from pidgate.quota.new_ids import judge_new_id
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota
from pidgate.quota.state import Answer, PendingDecision, Question, new_id_question
from pidgate.quota.verdicts import Forward, Reason, Refuse, Session
from tests.unit.quota.world import HOUR_MS, batch, enforcing, seeds


class Gone(ProducerIdQuota):
    """A state that never answers."""

    def decide(self, question: Question, now_ms: int) -> Answer | None:  # type: ignore[override]
        return None


def outcome(admission: Admission, producer_id: int, now_ms: int, user: str = "alice") -> str:
    session = Session(user, "app", "10.0.0.1", producer_id)
    pending = admission.judge(session, [batch(producer_id)], transactional=False, now_ms=now_ms)
    assert isinstance(pending, PendingDecision)
    pending.answer = admission.access.failed_open(pending.question, now_ms)
    verdict = admission.judge(
        session, [batch(producer_id)], transactional=False, now_ms=now_ms, pending=pending
    )
    if isinstance(verdict, Forward):
        return "passed"
    assert isinstance(verdict, Refuse)
    assert (verdict.reason, verdict.throttle_time_ms) == (Reason.BUSY, 1_000)
    return "refused"


def gone(quotas: Quotas) -> Admission:
    return Admission(quotas, seeds(), 0, remote=Gone(quotas, seeds(), 0))


def test_a_user_has_a_ceiling_of_its_own() -> None:
    admission = gone(enforcing(2))
    assert [outcome(admission, one, 0) for one in range(22)] == ["passed"] * 20 + ["refused"] * 2
    assert outcome(admission, 100, 0, "bob") == "passed"
    assert outcome(admission, 101, HOUR_MS) == "passed", "in the next window"
    (alice,) = [user for user in admission.user_snapshots(0) if user.user == "alice"]
    assert alice.admitted["fail_open"] == 21, "who profited is counted"


def test_who_may_bring_nothing_brings_nothing() -> None:
    assert outcome(gone(enforcing(0)), 1, 0) == "refused"


def test_who_is_not_held_to_a_rate_has_none() -> None:
    question = Question("alice", "", "", False, 1, ())
    for quotas in (enforcing(0, mode=Mode.OBSERVE), enforcing(None, users={"bob": UserQuota.per_window(1)})):
        assert bound_milli(quotas, question) is None


def test_processes_share_a_users_ceiling() -> None:
    workers = [gone(enforcing(2)) for _ in range(2)]
    for worker in workers:
        worker.access.fail_open.processes = len(workers)
    passed = [outcome(workers[number % 2], number, 0) for number in range(40)].count("passed")
    assert passed == 20


def test_only_what_passed_is_counted() -> None:
    admission = gone(enforcing(1))
    outcomes = [outcome(admission, producer_id, 0) for producer_id in range(15)]
    assert outcomes.count("passed") == admission.access.fail_open.passed == 10


NAMES = Quotas(
    mode=Mode.ENFORCE, users={"alice": UserQuota(transactional_ids_rate_milli=1_000)}, default=UserQuota()
)


def named(admission: Admission, state: ProducerIdQuota, hashed: int) -> bool:
    """Return whether a transactional id passes while nobody answers; `state` is what answers later."""
    session = Session("alice", "app", "10.0.0.1", 1)
    pending = judge_new_id(admission, session, 0, None, hashed)
    assert isinstance(pending, PendingDecision)
    assert not pending.question.passed
    pending.answer = admission.access.fail_open.answer(NAMES, state, pending.question, 0)
    return isinstance(judge_new_id(admission, session, 0, pending, hashed), Forward)


def _transactional_ids_have_a_ceiling() -> None:
    admission, state = gone(NAMES), ProducerIdQuota(NAMES, seeds(), 0)
    assert [named(admission, state, hashed) for hashed in range(12)] == [True] * 10 + [False] * 2
    (alice,) = admission.user_snapshots(0)
    assert (alice.inits_failed_open, alice.inits_refused) == (10, 2)
    known = [state.decide(new_id_question("alice", "", "", hashed), 0).decisions for hashed in range(10)]
    assert known == [()] * 10, "what passed is remembered, and cost nothing"
    assert [state.decide(new_id_question("alice", "", "", 90 + n), 0).refused for n in range(3)] == [
        False,
        False,
        True,
    ]


def test_transactional_ids_have_a_ceiling_too_and_are_remembered() -> None:
    _transactional_ids_have_a_ceiling()


def _bound_of_produce_alone(quotas: Quotas, question: Question) -> int | None:
    return bound_milli(quotas, question) if question.ids else None


@pytest.mark.parametrize(
    ("place", "name", "mutant"),
    [
        (fail_open, "bound_milli", _bound_of_produce_alone),
        (ProducerIdQuota, "insert_transactional_id", lambda *_: None),
    ],
)
def test_a_mutant_that_leaves_them_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, mutant: object
) -> None:
    monkeypatch.setattr(place, name, mutant)
    with pytest.raises(AssertionError):
        _transactional_ids_have_a_ceiling()


class Broken(ProducerIdQuota):
    """A state with a bug."""

    def decide(self, question: Question, now_ms: int) -> Answer:
        raise ZeroDivisionError("a bug")


def test_an_error_in_the_quota_opens_no_more_in_one_process() -> None:
    """Whoever finds a request that raises one is not rid of its quota."""
    quotas = enforcing(1)
    admission = Admission(quotas, seeds(), 0, state=Broken(quotas, seeds(), 0))
    session = Session("alice", "app", "10.0.0.1", 1)
    verdicts = [admission.judge(session, [batch(one)], transactional=False, now_ms=0) for one in range(12)]
    assert [isinstance(verdict, Forward) for verdict in verdicts] == [True] * 10 + [False] * 2
