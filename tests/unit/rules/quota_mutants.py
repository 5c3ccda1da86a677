"""Rules of the quota, each broken in one way, and a test of them that fails then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pidgate.quota import entities, users
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Bound
from pidgate.quota.fail_open import FailOpen
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.retry_queue import RetryQueue
from pidgate.quota.sticky import StickyRefusals
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import Grace
from tests.simulator.breaking import always, around, never, nothing, replaced
from tests.unit.rules.breaking import UnitMutant

_ADMISSION: Final = "tests/unit/quota/test_admission.py::"


# ---- refusals ------------------------------------------------------------------------------------------


def _released_at_once(before: Any) -> Any:
    def refusal(self: ProducerIdQuota, live: Any, question: Any, asked: Any, *rest: Any) -> Any:
        is_released = self.table.refusals.is_released(question.user, asked.producer_id)
        return None if is_released else before(self, live, question, asked, *rest)

    return refusal


def _lifted_by_an_error(before: Any) -> Any:
    def refused_locally(self: Admission, *looked: Any) -> Any:
        return None if self.fail_open.passed else before(self, *looked)

    return refused_locally


def _only_its_own(before: Any) -> Any:
    def record_refusal(self: Admission, session: Any, looked: Any, refusal: Any, now_ms: int) -> Any:
        own = [(batch, look) for batch, look in looked if batch[0] == refusal.producer_id]
        return before(self, session, own, refusal, now_ms)

    return record_refusal


def _one_by_one(before: Any) -> Any:
    def decide(self: ProducerIdQuota, question: Any, now_ms: int) -> Any:
        for asked in question.ids if len(question.ids) > 1 else ():
            before(self, replace(question, ids=[asked]), now_ms)
        return before(self, question, now_ms)

    return decide


def _counts_all_users(before: Any) -> Any:
    def holds_too_many(self: StickyRefusals, user: str, connection_id: int, batches: list[Any]) -> bool:
        return sum(self._entries_of_user.values()) + len(batches) > self.entries_per_user

    return holds_too_many


def _watch_forgotten(self: StickyRefusals, user: str, producer_id: int, record: Any) -> None:
    for oldest in self._cut.count(user, producer_id, len(record.cut)):
        del self.watched[user][oldest]


def _for_ever(_: Admission, now_ms: int, transactional: bool) -> int:
    return 0


# ---- mutes ---------------------------------------------------------------------------------------------


def _uncapped(_: ProducerIdQuota, wait_ms: int) -> int:
    return max(100, wait_ms)


def _moves_the_deadline(before: Any) -> Any:
    def refused_by_state(self: Admission, session: Any, looked: Any, answer: Any, now_ms: int) -> Any:
        verdict = before(self, session, looked, answer, now_ms)
        for decision in answer.decisions:
            until_ms = now_ms + decision.throttle_time_ms
            self.sticky.throttled(session.user, decision.producer_id, until_ms)
        return verdict

    return refused_by_state


# ---- what an id costs ----------------------------------------------------------------------------------


def _sighted_by_epoch(ids: Any, asked: Any, now_ms: int) -> Any:
    pair = ids.hashed(asked.producer_id + (asked.epoch << 40))
    return pair, ids.find(pair, now_ms)


def _inherits_from_anybody(self: ProducerIdQuota, user: str, old: int, new: int, now_ms: int) -> bool:
    self.insert_uncharged(user, new, now_ms, transactional=True)
    return True


def _blocked_ones_too(before: Any) -> Any:
    def admits(self: Grace, rate_milli: int | None, admitted: int, now_ms: int) -> bool:
        return bool(before(self, rate_milli or None, admitted, now_ms))

    return admits


def _of_one_address(before: Any) -> Any:
    def came_back(self: RetryQueue, producer_id: int, address: str, client_id: str, **more: Any) -> bool:
        return bool(before(self, producer_id, "", "", **more))

    return came_back


def _only_principals(before: Any) -> Any:
    def resolve(quotas: Any, user: str) -> Any:
        found = before(quotas, user)
        return replace(found, rate_milli=None) if entities.is_unidentified(user) else found

    return resolve


QUOTA_MUTANTS: Final[dict[str, UnitMutant]] = {
    "a release lifts": UnitMutant(
        "One store: a release",
        around(ProducerIdQuota, "_refusal", _released_at_once),
        "tests/unit/quota/test_commands.py::"
        "test_a_release_lets_nothing_pass_before_what_may_lie_unread_elsewhere",
        "late.refused",
    ),
    "an error of the quota lifts": UnitMutant(
        "Sticky first: a failure",
        around(Admission, "_refused_locally", _lifted_by_an_error),
        f"{_ADMISSION}test_when_the_state_fails_requests_pass_and_what_was_refused_stays_first",
        "world.refusal(session, batch(1, 6)).reason is Reason.STICKY",
        given={"inserts": True},
    ),
    "an error of the quota ends the request": UnitMutant(
        "Fail open: An error inside the quota code",
        replaced(Admission, "decide", lambda self, question, now_ms: self.state.decide(question, now_ms)),
        f"{_ADMISSION}test_when_the_state_fails_requests_pass_and_what_was_refused_stays_first",
        'raise ZeroDivisionError("broken")',
        given={"inserts": True},
        fails=ZeroDivisionError,
    ),
    "no ceiling of what fails open": UnitMutant(
        "Fail open: What passes undecided has a ceiling",
        replaced(FailOpen, "_admits", always),
        "tests/unit/quota/test_fail_open.py::test_a_user_has_a_ceiling_of_its_own",
        '["passed"] * 20 + ["refused"] * 2',
    ),
    "who has no name has no quota": UnitMutant(
        "Identity first: Whoever is authenticated has a quota",
        around(users, "resolve", _only_principals),
        f"{_ADMISSION}test_who_cannot_be_identified_has_a_quota",
        'world.refusal(world.connect(unidentified("OAUTHBEARER")),',
    ),
    "only the refused id has an entry": UnitMutant(
        "Refusals: A request is refused as a whole",
        around(Admission, "_record_refusal", _only_its_own),
        f"{_ADMISSION}test_a_remembered_id_in_a_refused_request_gets_its_entry_too",
        "world.refusal(session, batch(1, 6)).reason is Reason.STICKY",
    ),
    "a mixed request spends tokens": UnitMutant(
        "Refusals: no token is spent",
        around(ProducerIdQuota, "decide", _one_by_one),
        f"{_ADMISSION}test_a_request_that_mixes_ids_is_refused_whole_and_costs_nothing",
        "next(world.admission.user_snapshots(0)).tokens == 0",
    ),
    "new ids are not watched": UnitMutant(
        "Refusals: A new id is watched",
        replaced(StickyRefusals, "admitted", nothing),
        f"{_ADMISSION}test_a_young_id_above_0_on_an_unknown_partition_may_have_been_refused_elsewhere",
        "refused = world.refusal(elsewhere, batch(1, 3, partition=1))",
    ),
    "refused above for ever": UnitMutant(
        "Refusals: The sixth refusal above closes the connection",
        replaced(StickyRefusals, "too_many_further", never),
        f"{_ADMISSION}test_the_sixth_higher_batch_without_the_refused_one_closes",
        'ask(session, batch(1, 6)) == Close("sticky_batch_missing", 1)',
        given={"where": "next in line"},
    ),
    "a full table answers": UnitMutant(
        "Refusals: A full table closes the connection",
        replaced(StickyRefusals, "holds_too_many", never),
        f"{_ADMISSION}test_a_full_table_closes_instead_of_answering_and_spares_other_users",
        "world.judge(session, batch(2), batch(2, partition=1)) ==",
    ),
    "one table for all users": UnitMutant(
        "Refusals: nobody's entries are forgotten for another's",
        around(StickyRefusals, "holds_too_many", _counts_all_users),
        f"{_ADMISSION}test_a_full_table_closes_instead_of_answering_and_spares_other_users",
        'world.refusal(world.connect("bob"), batch(3))',
    ),
    "a watch is forgotten for its notes": UnitMutant(
        "Refusals: What is forgotten of a partition is refused once more",
        replaced(StickyRefusals, "_count_notes", _watch_forgotten),
        "tests/unit/quota/test_sticky_notes.py::test_what_is_forgotten_is_refused_once_more_and_never_passed",
        "looks(7) == [Look.SAME, Look.FIRST_SIGHT, Look.FIRST_SIGHT]",
    ),
    "a cache answers for ever": UnitMutant(
        "Refusals: A cache is asked again in each slice",
        replaced(Admission, "_slice_key", _for_ever),
        f"{_ADMISSION}test_an_id_is_looked_up_again_once_a_slice_and_refreshed_free_of_charge",
        "[decision.reason for decision in verdict.decisions] ==",
    ),
    "a throttle without a cap": UnitMutant(
        "Mutes: No throttle is longer than max_throttle",
        replaced(ProducerIdQuota, "_throttle_ms", _uncapped),
        "tests/unit/quota/test_producer_ids.py::test_a_throttle_is_at_least_100_ms_and_at_most_the_cap",
        "slow.decide(question(asked(9)), 0).decisions[0].throttle_time_ms ==",
    ),
    "no deadline but the mute": UnitMutant(
        "Mutes: A new connection does not shed the throttle",
        replaced(StickyRefusals, "throttled", nothing),
        f"{_ADMISSION}test_a_new_connection_does_not_shed_the_throttle",
        "(refused.reason, refused.throttle_time_ms) == (Reason.DEADLINE, 6_000)",
    ),
    "an early return extends its deadline": UnitMutant(
        "Mutes: What is left does not move the deadline",
        around(Admission, "_refused_by_state", _moves_the_deadline),
        f"{_ADMISSION}test_a_lower_batch_may_come_first_after_all",
        "isinstance(world.judge(elsewhere, batch(1, 0)), Forward)",
    ),
    "each epoch is an id": UnitMutant(
        "What an id costs: A newer epoch costs nothing",
        replaced(ProducerIdQuota, "_sighted", staticmethod(_sighted_by_epoch)),
        f"{_ADMISSION}test_an_admitted_id_is_not_charged_again_on_any_connection",
        "batch(1, 0, partition=7, epoch=3)) is FORWARD",
    ),
    "any id is inherited from": UnitMutant(
        "What an id costs: An id out of a transaction inherits",
        replaced(ProducerIdQuota, "inherit", _inherits_from_anybody),
        f"{_ADMISSION}test_an_id_handed_out_at_the_end_of_a_transaction_is_not_charged",
        '(snapshot.tokens, snapshot.admitted) == (100, {"observe": 1,',
    ),
    "observing leaves a debt": UnitMutant(
        "What an id costs: Who is observed leaves no debt",
        replaced(TokenBucket, "charge_floored", TokenBucket.charge),
        f"{_ADMISSION}test_observing_remembers_everything_and_leaves_no_debt",
        "(snapshot.tokens, snapshot.would_refuse, snapshot.live_ids) == (-1,",
    ),
    "a grace lets blocked users in": UnitMutant(
        "What an id costs: A bound of 0 blocks",
        around(Grace, "admits", _blocked_ones_too),
        "tests/unit/quota/test_grace.py::test_who_is_blocked_is_blocked_under_grace",
        "answer.refused",
        given={"rate": 0, "cluster_rate_milli": None, "bound": Bound.USER},
    ),
    "nobody comes back": UnitMutant(
        "What an id costs: Who came back goes first",
        replaced(ProducerIdQuota, "_in_line", never),
        f"{_ADMISSION}test_an_id_that_came_back_goes_before_those_seen_first",
        "(queued.reason, queued.decisions[0].queue_position) == (Reason.QUEUE,",
    ),
    "one lane for all": UnitMutant(
        "What an id costs: no crowd of one machine keeps another waiting",
        around(RetryQueue, "came_back", _of_one_address),
        "tests/unit/quota/test_retry_queue.py::"
        "test_twenty_threads_of_one_machine_do_not_keep_another_waiting",
        "queue.place(9_999) == 1",
    ),
    "what passed meanwhile is forgotten": UnitMutant(
        "Restored, then enforced: ids that passed meanwhile are put into it",
        replaced(ProducerIdQuota, "_hand_over_id", nothing),
        "tests/unit/quota/test_passed_while_restoring.py::test_what_the_restored_state_does_not_hold_is_charged_as_observed",
        'state.status("alice", 0).tokens == -1  # two tokens for six ids',
    ),
}
