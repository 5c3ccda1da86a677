"""What an operator does once: a bucket that is full again, an id that is let in."""

from __future__ import annotations

import pytest

from pidgate.quota import counters
from pidgate.quota.changes import Command, CommandType
from pidgate.quota.counters import Refusal, RefusedIds
from pidgate.quota.decisions import NO_PRODUCER_ID, Bound, Forward, Reason, Refuse
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.questions import is_refused, question
from tests.support.rules import rule

HOUR_MS = 3_600_000


def quota_of(rate: int) -> ProducerIdQuota:
    ids = ProducerIdSettings(window_ms=HOUR_MS)
    quotas = Quotas(Mode.ENFORCE, ids, users={"alice": UserQuota.per_window(rate)})
    return ProducerIdQuota(quotas, lambda: 7, 0)


def ask(quota: ProducerIdQuota, producer_id: int, now_ms: int = 0, **asked: bool) -> Forward | Refuse:
    return quota.decide(*question("alice", producer_id, **asked), now_ms)  # type: ignore[arg-type]


def release(producer_id: int) -> Command:
    return Command(type=CommandType.RELEASE, user="alice", producer_id=producer_id)


def test_a_refill_fills_the_bucket_whatever_was_owed() -> None:
    quota = quota_of(2)
    assert [is_refused(ask(quota, number)) for number in range(4)] == [False, False, False, True]
    quota.apply(Command(type=CommandType.REFILL, user="alice"), 10)
    assert quota.status("alice", 10).tokens == 2
    quota.apply(Command(type=CommandType.REFILL, user="nobody"), 10)
    assert quota.status("nobody", 10).tokens is None


@pytest.mark.parametrize("rate", [0, 1])
def test_a_released_id_is_let_in_uncharged_once_and_told_as_a_refresh(rate: int) -> None:
    quota = quota_of(rate)
    for number in range(2):
        ask(quota, number)
    assert is_refused(ask(quota, 9))
    assert is_refused(ask(quota, 9, came_back=True))
    tokens, waiting = quota.status("alice", 0).tokens, quota.status("alice", 0).waiting
    quota.apply(release(9), 0)
    assert not quota.table.remembers("alice", 9, 0), "not before it comes"
    answer = ask(quota, 9, came_back=True)
    assert not is_refused(answer)
    assert [decision.reason for decision in answer.decisions] == [Reason.REFRESH]
    assert quota.status("alice", 0).tokens == tokens
    assert quota.status("alice", 0).waiting == max(0, waiting - 1)
    assert quota.table.remembers("alice", 9, 0)
    assert ("alice", 9) not in quota.table.refusals.released
    assert is_refused(ask(quota, 10)), "nobody else"


@rule(
    "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
    "order",
)
def test_a_release_lets_nothing_pass_before_what_may_lie_unread_elsewhere() -> None:
    quota = quota_of(0)
    quota.apply(release(9), 0)
    late = ask(quota, 9, above_0=True)
    assert is_refused(late)
    assert [decision.reason for decision in late.decisions] == [Reason.ESTABLISHED]
    assert not is_refused(ask(quota, 9, came_back=True))


def test_an_id_that_was_admitted_elsewhere_needs_no_release_any_more() -> None:
    quota = quota_of(0)
    quota.apply(release(9), 0)
    quota.admitted_elsewhere("alice", 9, 0, Reason.REFRESH)
    assert ("alice", 9) not in quota.table.refusals.released


def test_of_many_releases_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_RELEASED", 2)
    held = RefusedIds()
    for producer_id in range(3):
        held.release("alice", producer_id)
    assert list(held.released) == [("alice", 1), ("alice", 2)]


def test_the_latest_refusal_is_known_by_user_and_by_id() -> None:
    quota = quota_of(1)
    for number in range(4):
        ask(quota, number, now_ms=1_000)
    ask(quota, 2, now_ms=2_000, came_back=True)
    of_user, of_id = (
        quota.table.refusals.of_user("alice"),
        quota.table.refusals.of_id("alice", 3),
    )
    assert of_user is not None
    assert (of_user.producer_id, of_user.reason, of_user.queue_position) == (2, Reason.QUEUE, 0)
    assert (of_user.refused_ms, of_user.until_ms) == (2_000, 12_000)
    assert of_id is not None
    assert (of_id.producer_id, of_id.reason, of_id.bound) == (3, Reason.FIRST_SEEN, Bound.USER)
    assert (of_id.rate_milli, of_id.refused_ms, of_id.until_ms) == (1_000, 1_000, 11_000)
    assert of_id.queue_position is None
    assert quota.table.refusals.of_id("alice", 0) is None


def test_many_refused_ids_push_out_others_ids_but_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_EXPLAINED", 3)
    refusals = RefusedIds()
    for user, producer_id in (("bob", 1), ("alice", 0), ("alice", 1), ("alice", 2)):
        refusals.note_refusal(user, Refusal(producer_id, Reason.FIRST_SEEN, Bound.USER, 1_000, 0, 100, None))
    assert refusals.of_id("bob", 1) is None
    of_bob, of_alice = refusals.of_user("bob"), refusals.of_user("alice")
    assert of_bob is not None
    assert of_alice is not None
    assert (of_bob.producer_id, of_alice.producer_id) == (1, 2)


def test_of_many_users_the_one_refused_longest_ago_has_no_last_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters, "MOST_USERS_EXPLAINED", 2)
    refusals = RefusedIds()
    for user in ("alice", "bob", "carol"):
        refusals.note_refusal(user, Refusal(1, Reason.FIRST_SEEN, Bound.USER, 1_000, 0, 100, None))
    assert [refusals.of_user(user) is None for user in ("alice", "bob", "carol")] == [True, False, False]


def test_a_user_that_was_given_no_new_id_is_told_so() -> None:
    quota = quota_of(1)
    for number in range(3):
        ask(quota, number)
    assert is_refused(quota.decide(*question("alice"), 5))
    latest = quota.table.refusals.of_user("alice")
    assert latest is not None
    assert (latest.producer_id, latest.refused_ms) == (NO_PRODUCER_ID, 5)
