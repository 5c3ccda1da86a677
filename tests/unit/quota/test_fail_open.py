"""What passes while the quota's code raises errors: ten windows of a user's rate, the rest is refused for a second."""

from __future__ import annotations

from typing import NoReturn

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Forward, Reason, Refuse
from pidgate.quota.entities import bound_milli
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support.questions import decide_name, is_refused
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, batch, enforcing, seeds


class Broken(ProducerIdQuota):
    """A state with a bug."""

    def decide(self, *_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("a bug")


def outcome(admission: Admission, producer_id: int, now_ms: int, user: str = "alice") -> str:
    client = Client(user, "app", "10.0.0.1", producer_id)
    verdict = admission.judge(client, [batch(producer_id)], transactional=False, now_ms=now_ms)
    if isinstance(verdict, Forward):
        return "passed"
    assert isinstance(verdict, Refuse)
    assert (verdict.reason, verdict.throttle_time_ms) == (Reason.FAIL_OPEN, 1_000)
    return "refused"


def broken(quotas: Quotas) -> Admission:
    return Admission(quotas, seeds(), 0, state=Broken(quotas, seeds(), 0))


@rule(
    "Requests forwarded undecided have a ceiling of ten times the user's rate, for each kind of id.",
    "failures",
)
def test_a_user_has_a_ceiling_of_its_own() -> None:
    admission = broken(enforcing(2))
    assert [outcome(admission, one, 0) for one in range(22)] == ["passed"] * 20 + ["refused"] * 2
    assert outcome(admission, 100, 0, "bob") == "passed"
    assert outcome(admission, 101, HOUR_MS) == "passed", "in the next window"
    (alice,) = [user for user in admission.user_snapshots(0) if user.user == "alice"]
    assert alice.admitted["fail_open"] == 21, "who profited is counted"


def test_who_may_bring_nothing_brings_nothing() -> None:
    assert outcome(broken(enforcing(0)), 1, 0) == "refused"


def test_who_is_not_held_to_a_rate_has_none() -> None:
    for quotas in (enforcing(0, mode=Mode.OBSERVE), enforcing(None, users={"bob": UserQuota.per_window(1)})):
        assert bound_milli(quotas, "alice", transactional=False) is None


def test_an_observed_user_has_no_ceiling() -> None:
    admission = broken(enforcing(1, mode=Mode.OBSERVE))
    assert [outcome(admission, one, 0) for one in range(12)] == ["passed"] * 12


def test_only_what_passed_is_counted() -> None:
    admission = broken(enforcing(1))
    outcomes = [outcome(admission, producer_id, 0) for producer_id in range(15)]
    assert outcomes.count("passed") == admission.fail_open.passed == 10


NAMES = Quotas(
    mode=Mode.ENFORCE, users={"alice": UserQuota(transactional_ids_rate_milli=1_000)}, default=UserQuota()
)


def named(admission: Admission, hashed: int) -> bool:
    """Return whether a transactional id passes."""
    client = Client("alice", "app", "10.0.0.1", 1)
    return isinstance(admission.judge_new_id(client, 0, hashed), Forward)


def _transactional_ids_have_a_ceiling() -> None:
    admission, state = broken(NAMES), ProducerIdQuota(NAMES, seeds(), 0)
    admission.state.insert_transactional_id = state.insert_transactional_id  # type: ignore[method-assign]
    assert [named(admission, hashed) for hashed in range(12)] == [True] * 10 + [False] * 2
    (alice,) = admission.user_snapshots(0)
    assert (alice.inits_failed_open, alice.inits_refused) == (10, 2)
    known = [decide_name(state, "alice", hashed).decisions for hashed in range(10)]
    assert known == [()] * 10, "what passed is remembered, and cost nothing"
    assert [is_refused(decide_name(state, "alice", 90 + n)) for n in range(3)] == [
        False,
        False,
        True,
    ]


@rule(
    "Requests forwarded undecided have a ceiling of ten times the user's rate, for each kind of id.",
    "failures",
)
def test_transactional_ids_have_a_ceiling_too_and_are_remembered() -> None:
    _transactional_ids_have_a_ceiling()


@rule(
    "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
    "order",
)
def test_a_refused_batch_stays_first_while_the_quota_fails() -> None:
    """An error lets no later batch pass before a refused one, and keeps no deadline for the id."""
    quotas = enforcing(1)
    admission = Admission(quotas, seeds(), 0)
    client = Client("alice", "app", "10.0.0.1", 1)
    verdicts = [admission.judge(client, [batch(one)], transactional=False, now_ms=0) for one in range(5)]
    assert isinstance(verdicts[-1], Refuse)
    admission.state = Broken(quotas, seeds(), 0)
    later = admission.judge(client, [batch(4, 1)], transactional=False, now_ms=10)
    assert isinstance(later, Refuse)
    assert later.reason is Reason.STICKY
    assert isinstance(admission.judge(client, [batch(4)], transactional=False, now_ms=20), Forward)
