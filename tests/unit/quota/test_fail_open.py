"""What passes while nobody decides: ten windows of a user's rate at most, the rest is refused for a second."""

from __future__ import annotations

from pidgate.quota import Admission, Forward, Mode, ProducerIdQuota, Question, Quotas, Refuse, UserQuota
from pidgate.quota.fail_open import FailOpenCeiling
from pidgate.quota.state import Answer, PendingDecision
from pidgate.quota.verdicts import Reason, Session
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
    ceiling = FailOpenCeiling()
    for quotas in (enforcing(0, mode=Mode.OBSERVE), enforcing(None, users={"bob": UserQuota.per_window(1)})):
        assert ceiling.admits(quotas, question, 0)
