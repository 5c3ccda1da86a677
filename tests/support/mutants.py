"""The table of mutants: rules that guard records and quotas, each broken in one way, and what notices it.

An entry stays here as long as its breach loses, doubles or reorders records, or sheds a quota. `BY_SCHEDULE` has those
that a schedule of the simulator notices (run in tests/unit/simulator/test_schedules.py), `BY_TEST` the others (run in
tests/unit/support/test_mutants.py). The rule is the sentence of a `@rule` mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Any, Final

import pytest

from pidgate.gateway.proxy import client_channel
from pidgate.gateway.proxy.apis import authentication, produce
from pidgate.gateway.proxy.apis.passing_produce import has_passed
from pidgate.gateway.proxy.apis.produce import ProduceApi
from pidgate.gateway.proxy.broker_side import BrokerSide
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.connection_state import OPEN
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.gateway.proxy.in_flight_requests import InFlightRequests
from pidgate.gateway.state import manager, publisher
from pidgate.gateway.state.event_log import EventLog
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.protocol.sasl import SaslExchange
from pidgate.quota import entities, users
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Answer, Bound, ProducerBatch, Question, Session
from pidgate.quota.fail_open import FailOpen
from pidgate.quota.held_beginnings import HeldBeginnings
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas
from pidgate.quota.sticky import StickyRefusals
from pidgate.quota.sticky_entries import RefusedId
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import Grace, LiveUser
from tests.simulator.every import SmallWorld
from tests.simulator.themes import Theme
from tests.support.breaking import (
    Breach,
    Break,
    Scheduled,
    Tested,
    always,
    around,
    never,
    nothing,
    nothing_later,
    replaced,
)


def _cache_first(_: Admission, session: Session, batches: Iterable[Any], key: int, now_ms: int) -> bool:
    return all(session.admitted.get(batch[0]) == key for batch in batches)


def _hot_path_first(_: Admission, session: Session, producer_id: int, *rest: object) -> bool:
    return producer_id in session.admitted


def _lifted(by: Callable[[Quotas], bool]) -> Break:
    """Have such quotas lift every refusal when they come into force."""

    def make(before: Any) -> Any:
        def set_quotas(self: Admission, quotas: Quotas, now_ms: int) -> None:
            before(self, quotas, now_ms)
            if by(quotas):
                self.sticky = StickyRefusals(quotas.producer_ids.sticky_entries)

        return set_quotas

    return around(Admission, "set_quotas", make)


def _is_observed(quotas: Quotas) -> bool:
    return quotas.mode is Mode.OBSERVE


def _exempts_somebody(quotas: Quotas) -> bool:
    return any(user.exempt for user in quotas.users.values())


def _lifted_by_more(before: Any) -> Any:
    """A raised rate lifts what was refused, as if it had passed."""

    def set_quotas(self: Admission, quotas: Quotas, now_ms: int) -> None:
        earlier = self.quotas.default.producer_ids_rate_milli
        before(self, quotas, now_ms)
        if earlier is None or earlier >= (quotas.default.producer_ids_rate_milli or 0):
            return
        for user, records in self.sticky.watched.items():
            for producer_id, record in records.items():
                for key, entry in list(record.entries.items()):
                    record.goes_over(entry.epoch, *key, entry.connection_id)
                    self.sticky._end(user, producer_id, record, key)

    return set_quotas


def _expiring(patch: pytest.MonkeyPatch) -> None:
    before = StickyRefusals.refused_id

    def is_over(_: StickyRefusals, record: RefusedId, now_ms: int) -> bool:
        return now_ms - record.refused_at_ms >= 1_000

    def refused_id(self: StickyRefusals, user: str, producer_id: int, now_ms: int) -> RefusedId | None:
        record = self.watched.get(user, {}).get(producer_id)
        if record is not None and is_over(self, record, now_ms):
            for key in list(record.entries):
                self._end(user, producer_id, record, key)
            del self.watched[user][producer_id]
            self._room.ids -= 1
        return before(self, user, producer_id, now_ms)

    patch.setattr(StickyRefusals, "watch_is_over", is_over)
    patch.setattr(StickyRefusals, "refused_id", refused_id)


def _all_lifted(_: StickyRefusals, record: RefusedId, key: Any) -> list[Any]:
    return list(record.entries)


def _latest_stands(before: Any) -> Any:
    def refused(
        self: StickyRefusals, user: str, batch: ProducerBatch, connection_id: int, now_ms: int
    ) -> None:
        record = self.watched.get(user, {}).get(batch[0])
        key = (batch[3], batch[4])
        if record is not None and (found := self._key_in(record, *key)) in record.entries:
            self._end(user, batch[0], record, found)
        before(self, user, batch, connection_id, now_ms)

    return refused


def _any_connection(
    self: StickyRefusals, record: RefusedId, epoch: int, topic: bytes, partition: int, _: int
) -> bool:
    return record.went_over(epoch, self.topics.canonical(topic), partition) is not None


def _entry_stays(self: StickyRefusals, user: str, batch: ProducerBatch) -> bool:
    record = self.watched[user][batch[0]]
    entry = record.entries[self._key_in(record, batch[3], batch[4])]
    entry.further_refusals += 1
    return entry.further_refusals > 5


def _first_held_only(before: Any) -> Any:
    def held(api: ProduceApi, context: Any, *rest: Any) -> None:
        if not context.held:
            before(api, context, *rest)

    return held


def _refusal(rule: str, breaks: Break, seed: int, theme: Theme = Theme.REFUSALS) -> Scheduled:
    return Scheduled(rule, breaks, Breach.OVERTAKEN, theme, seed)


def _sticky(
    rule: str, name: str, by: Callable[..., Any], seed: int, theme: Theme = Theme.REFUSALS
) -> Scheduled:
    return _refusal(rule, replaced(StickyRefusals, name, by), seed, theme)


def _noted(rule: str, breaks: Break, seed: int) -> Scheduled:
    return _refusal(rule, breaks, seed, Theme.HELD)


_SENT: Final = ("send", "java-1", 0, 1)


_NOTED_FIRST: Final = (
    "A batch behind a held beginning of its partition is refused once, whatever the caches say."
)


_OVER_NOTES: Final = (
    "A batch behind a held beginning of its partition is refused once, whatever the caches say."
)


def _out_of_turn(self: InFlightRequests, answer: bytes) -> None:
    self.out.append(answer)


def _by_connection(before: Any) -> Any:
    def __init__(self: Conversation, admission: Admission, session: Session, *args: Any, **more: Any) -> None:
        session.user = f"{session.user}/{session.connection_id}"
        before(self, admission, session, *args, **more)

    return __init__


def _as_it_is(_: object, node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


def _without_looking(self: Conversation, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
    return self.intake(now_ms) is OPEN and self.repeated.recognise_beginning(beginning, request_bytes)


def _known_anywhere(self: Conversation, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
    begins = _without_looking(self, beginning, request_bytes, now_ms)
    return begins and self.repeated.producer_id in self.session.admitted


def _happens_at_its_beginning(patch: pytest.MonkeyPatch) -> None:
    before = Conversation.may_pass

    def may_pass(self: Conversation, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
        passes = before(self, beginning, request_bytes, now_ms)
        if passes:
            has_passed(self, request_bytes, now_ms)
        return passes

    patch.setattr(Conversation, "may_pass", may_pass)
    patch.setattr(client_channel, "has_passed", nothing)


def _inserted_first(before: Any) -> Any:
    def decide(self: ProducerIdQuota, question: Question, now_ms: int) -> Answer:
        answer: Answer = before(self, question, now_ms)
        if answer.refused:
            for asked in question.ids:
                self.insert_uncharged(question.user, asked.producer_id, now_ms)
        return answer

    return decide


def _unrestored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuotaStateManager, "_restore_from_directory", nothing_later)
    patch.setattr(QuotaStateManager, "_restore_from_topic", nothing_later)


def _one_more(before: Any) -> Any:
    def wait_ms(self: TokenBucket, place: int, now_ms: int) -> Any:
        return before(self, place - 1, now_ms)

    return wait_ms


def _has_no_topic(self: EventLog) -> bool:
    return self.publisher is None


def _refusal_passed_on(rule: str, breaks: Break, seed: int) -> Scheduled:
    return Scheduled(rule, breaks, Breach.OVERTAKEN, Theme.PASSING, seed)


def _quota(rule: str, breaks: Break, theme: Theme, seed: int) -> Scheduled:
    return Scheduled(rule, breaks, Breach.QUOTA, theme, seed)


_KEPT_WHOLE: Final = "A request that may be refused or held is buffered whole."


_ADMISSION: Final = "tests/unit/quota/test_admission.py::"


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


def _watch_forgotten(self: StickyRefusals, user: str, producer_id: int, record: Any) -> None:
    for oldest in self._cut.count(user, producer_id, len(record.cut)):
        del self.watched[user][oldest]


def _inherits_from_anybody(self: ProducerIdQuota, user: str, old: int, new: int, now_ms: int) -> bool:
    self.insert_uncharged(user, new, now_ms, transactional=True)
    return True


def _blocked_ones_too(before: Any) -> Any:
    def admits(self: Grace, rate_milli: int | None, admitted: int, now_ms: int) -> bool:
        return bool(before(self, rate_milli or None, admitted, now_ms))

    return admits


def _only_principals(before: Any) -> Any:
    def resolve(quotas: Any, user: str) -> Any:
        found = before(quotas, user)
        return replace(found, rate_milli=None) if entities.is_unidentified(user) else found

    return resolve


_CONVERSATION: Final = "tests/unit/gateway/proxy/test_conversation.py::"


_PASSING: Final = "tests/unit/gateway/proxy/test_passing_on.py::"


_BYTES: Final = "tests/unit/gateway/proxy/test_bytes_on_a_connection.py::"


def _answered_anyway(before: Any) -> Any:
    def walk(self: RepeatedProduce, *frame: Any) -> Any:
        _, transactional, batches = before(self, *frame)
        return 1, transactional, batches

    return walk


def _refusal_answered(before: Any) -> Any:
    def stop(context: Any, request: Any, verdict: Any, acks: int, now_ms: int) -> Any:
        return before(context, request, verdict, 1, now_ms)

    return stop


def _each_his_own() -> Callable[[str], str]:
    numbers = count()
    return lambda mechanism: f"\0{mechanism}/{next(numbers)}"


def _token_after_token(before: Any) -> Any:
    def record_client_token(self: SaslExchange, token: bytes) -> None:
        self._unanswered = None
        before(self, token)

    return record_client_token


def _nobody_waits(self: Conversation, request: Any) -> None:
    self.unanswered.add(request)


def _passes_until_known(before: Any) -> Any:
    def before_login(self: Conversation, request: Any) -> Any:
        if self.authentication.required is None:
            return request.api.request(self, request, 0)
        return before(self, request)

    return before_login


def _reset(before: Any) -> Any:
    def leave_broker(self: BrokerSide) -> None:
        transport = getattr(self.broker, "_transport", None)
        if transport is not None:
            transport.abort()
        before(self)

    return leave_broker


def _no_topic_is_forbidden(patch: pytest.MonkeyPatch) -> None:
    before = RepeatedProduce.__init__

    def __init__(self: RepeatedProduce, *_: Any) -> None:
        before(self)

    patch.setattr(RepeatedProduce, "__init__", __init__)


def _muted(rule: str, test: str, at: str) -> Tested:
    return Tested(rule, replaced(Conversation, "mute", nothing), test, at)


BY_SCHEDULE: Final[dict[str, Scheduled]] = {
    "cache before sticky": _refusal(
        "No cache forwards a batch while an earlier batch of its partition is refused.",
        replaced(Admission, "_known", _cache_first),
        11,
    ),
    "the hot path before sticky": _refusal(
        "No cache forwards a batch while an earlier batch of its partition is refused.",
        replaced(Admission, "knows", _hot_path_first),
        11,
    ),
    "no rule for first sight above 0": _refusal(
        "The first batch of an unknown id above sequence 0 is refused once, for 100 ms.",
        replaced(Admission, "_first_sight_above_0", never),
        13,
    ),
    "lifted by an exemption": _refusal(
        "No change of quotas lifts a refusal: neither a raised rate, nor observe mode, nor an exemption.",
        _lifted(_exempts_somebody),
        8,
    ),
    "lifted by observing": _refusal(
        "No change of quotas lifts a refusal: neither a raised rate, nor observe mode, nor an exemption.",
        _lifted(_is_observed),
        49,
    ),
    "lifted by a raised rate": Scheduled(
        "No change of quotas lifts a refusal: neither a raised rate, nor observe mode, nor an exemption.",
        around(Admission, "set_quotas", _lifted_by_more),
        Breach.OVERTAKEN,
        acts=(_SENT, ("rate", 20), ("wait", 1_000), ("send", "java-1", 1, 1), _SENT),
        small=SmallWorld("java"),
    ),
    "entries expire by age": _refusal(
        "An entry ends with its batch, its connection or a newer epoch, never by age.", _expiring, 40
    ),
    "an entry is in nobody's way": _sticky(
        "Batches above a refused batch are refused too; above means serial arithmetic on 31 bits.",
        "are_next",
        always,
        11,
    ),
    "lifted per id, not per partition": _sticky(
        "An entry ends only when a batch at or below it is forwarded on its partition.",
        "entries_lifted_by",
        _all_lifted,
        11,
    ),
    "lifted by a batch above": _sticky(
        "Batches above a refused batch are refused too; above means serial arithmetic on 31 bits.",
        "is_above",
        never,
        1,
        Theme.RESTLESS,
    ),
    "an entry does not move on": _sticky(
        "An entry moves on to the next refused batch; the lowest one goes first.", "moves_on", never, 15
    ),
    "the latest refusal stands": _refusal(
        "An entry moves on to the next refused batch; the lowest one goes first.",
        around(StickyRefusals, "refused", _latest_stands),
        15,
    ),
    "passed over any connection": _sticky(
        "A batch has passed only on the connection it was forwarded on.", "passed_before", _any_connection, 25
    ),
    "closed for an entry that stays": Scheduled(
        "The sixth refusal above an entry closes the connection and ends the entry.",
        replaced(StickyRefusals, "too_many_further", _entry_stays),
        Breach.CLOSED_AGAIN,
        Theme.REFUSALS,
        10,
    ),
    "nobody notes a beginning": _noted(_NOTED_FIRST, replaced(HeldBeginnings, "note", nothing), 3),
    "what is behind a held request is not noted": _noted(
        _NOTED_FIRST, around(ProduceApi, "held", _first_held_only), 1
    ),
    "a cache answers in spite of a note": _noted(_OVER_NOTES, replaced(Admission, "_known", _cache_first), 3),
    "the hot path answers in spite of a note": _noted(
        _OVER_NOTES, replaced(HeldBeginnings, "is_any_held", never), 3
    ),
    "what a broker did not take has passed": _noted(
        "A batch that a broker answered with an error has not passed.",
        replaced(StickyRefusals, "not_taken", nothing),
        15,
    ),
    "refusals elsewhere are not heard": Scheduled(
        "A gateway watches new ids and the ids that other gateways refused.",
        replaced(StickyRefusals, "refused_elsewhere", nothing),
        Breach.OVERTAKEN,
        acts=(_SENT, ("mode", None, False), ("lead", 0, 2), _SENT),
    ),
    "answers of our own do not wait for their turn": Scheduled(
        "Responses leave in the order of the requests.",
        replaced(InFlightRequests, "respond", _out_of_turn),
        Breach.OUT_OF_TURN,
        Theme.REFUSALS,
        1,
    ),
    "each connection has a quota of its own": _quota(
        "A quota belongs to the user, whatever connection, address or gateway a request uses.",
        around(Conversation, "__init__", _by_connection),
        Theme.REFUSALS,
        4,
    ),
    "real addresses pass": Scheduled(
        "No real broker address reaches a client.",
        replaced(ConnectionContext, "translate", _as_it_is),
        Breach.ADDRESS,
        Theme.REFUSALS,
        1,
    ),
    "any large request is passed on": _refusal_passed_on(
        _KEPT_WHOLE, replaced(Conversation, "may_pass", _without_looking), 8
    ),
    "passed on in spite of a refusal": _refusal_passed_on(
        _KEPT_WHOLE, replaced(Conversation, "may_pass", _known_anywhere), 11
    ),
    "it happens at its beginning": Scheduled(
        "A request counts as sent when its last byte has arrived.",
        _happens_at_its_beginning,
        Breach.NOT_GIVEN_BACK,
        Theme.PASSING,
        14,
    ),
    "inserted before charged": _quota(
        "A refused request spends no tokens, and a refused id is not remembered.",
        around(ProducerIdQuota, "decide", _inserted_first),
        Theme.REFUSALS,
        7,
    ),
    "admissions elsewhere are not charged": _quota(
        "An id admitted by another gateway is charged here once; a refresh there is free.",
        replaced(ProducerIdQuota, "admitted_elsewhere", never),
        Theme.FLEET,
        1,
    ),
    "nothing is restored": _quota(
        "A restored state remembers its ids and balances.", _unrestored, Theme.OUTAGES, 4
    ),
    "an admission is in a snapshot a while later": _quota(
        "An admission is on the topic within 200 ms, or in a snapshot within 5 s.",
        lambda patch: patch.setattr(manager, "SAVE_UNSENT_EVERY_S", 60.0),
        Theme.SNAPSHOTS,
        17,
    ),
    "a topic that is cut off makes no snapshot": _quota(
        "An admission is on the topic within 200 ms, or in a snapshot within 5 s.",
        replaced(EventLog, "lacks_events", _has_no_topic),
        Theme.SNAPSHOTS,
        29,
    ),
    "a snapshot leaves out users that have changed": _quota(
        "An admission is on the topic within 200 ms, or in a snapshot within 5 s.",
        replaced(LiveUser, "needs_saving", never),
        Theme.SNAPSHOTS,
        17,
    ),
    "an admission is in the topic a while later": _quota(
        "An admission is on the topic within 200 ms, or in a snapshot within 5 s.",
        lambda patch: patch.setattr(publisher, "BATCHES_APART_S", 5.0),
        Theme.FLEET,
        1,
    ),
    "a bucket with two more": _quota(
        "A bucket admits its capacity, its refill and one more.",
        around(TokenBucket, "wait_ms", _one_more),
        Theme.REFUSALS,
        4,
    ),
}

BY_TEST: Final[dict[str, Tested]] = {
    "a release lifts": Tested(
        "Releasing an id lifts no refusal.",
        around(ProducerIdQuota, "_refusal", _released_at_once),
        "tests/unit/quota/test_commands.py::"
        "test_a_release_lets_nothing_pass_before_what_may_lie_unread_elsewhere",
        "late.refused",
    ),
    "an error of the quota lifts": Tested(
        "An error in the quota forwards no batch ahead of a refused one.",
        around(Admission, "_refused_locally", _lifted_by_an_error),
        f"{_ADMISSION}test_when_the_state_fails_requests_pass_and_what_was_refused_stays_first",
        "world.refusal(session, batch(1, 6)).reason is Reason.STICKY",
        given={"inserts": True},
    ),
    "no ceiling of what fails open": Tested(
        "Requests forwarded undecided have a ceiling of ten times the user's rate, for each kind of id.",
        replaced(FailOpen, "_admits", always),
        "tests/unit/quota/test_fail_open.py::test_a_user_has_a_ceiling_of_its_own",
        '["passed"] * 20 + ["refused"] * 2',
    ),
    "who has no name has no quota": Tested(
        "Every authenticated client has a quota; users without a readable name share one per mechanism.",
        around(users, "resolve", _only_principals),
        f"{_ADMISSION}test_who_cannot_be_identified_has_a_quota",
        'world.refusal(world.connect(unidentified("OAUTHBEARER")),',
    ),
    "only the refused id has an entry": Tested(
        "A request is refused as a whole: each of its batches gets an entry.",
        around(Admission, "_record_refusal", _only_its_own),
        f"{_ADMISSION}test_a_remembered_id_in_a_refused_request_gets_its_entry_too",
        "world.refusal(session, batch(1, 6)).reason is Reason.STICKY",
    ),
    "new ids are not watched": Tested(
        "A gateway watches new ids and the ids that other gateways refused.",
        replaced(StickyRefusals, "admitted", nothing),
        f"{_ADMISSION}test_a_young_id_above_0_on_an_unknown_partition_may_have_been_refused_elsewhere",
        "refused = world.refusal(elsewhere, batch(1, 3, partition=1))",
    ),
    "a watch is forgotten for its notes": Tested(
        "A batch on a partition whose history was evicted is refused once more.",
        replaced(StickyRefusals, "_count_notes", _watch_forgotten),
        "tests/unit/quota/test_sticky_notes.py::test_what_is_forgotten_is_refused_once_more_and_never_passed",
        "looks(7) == [Look.SAME, Look.FIRST_SIGHT, Look.FIRST_SIGHT]",
    ),
    "no deadline but the mute": Tested(
        "A new connection does not shed the throttle.",
        replaced(StickyRefusals, "throttled", nothing),
        f"{_ADMISSION}test_a_new_connection_does_not_shed_the_throttle",
        "(refused.reason, refused.throttle_time_ms) == (Reason.DEADLINE, 6_000)",
    ),
    "any id is inherited from": Tested(
        "The id handed out at the end of a transaction inherits its predecessor's admission.",
        replaced(ProducerIdQuota, "inherit", _inherits_from_anybody),
        f"{_ADMISSION}test_an_id_handed_out_at_the_end_of_a_transaction_is_not_charged",
        '(snapshot.tokens, snapshot.admitted) == (100, {"observe": 1,',
    ),
    "a grace lets blocked users in": Tested(
        "A rate of 0 blocks new ids, also under grace.",
        around(Grace, "admits", _blocked_ones_too),
        "tests/unit/quota/test_grace.py::test_who_is_blocked_is_blocked_under_grace",
        "answer.refused",
        given={"rate": 0, "cluster_rate_milli": None, "bound": Bound.USER},
    ),
    "what passed meanwhile is forgotten": Tested(
        "Nothing is refused until the state is restored; ids that passed before are charged then.",
        replaced(ProducerIdQuota, "_hand_over_id", nothing),
        "tests/unit/quota/test_passed_while_restoring.py::test_what_the_restored_state_does_not_hold_is_charged_as_observed",
        'state.status("alice", 0).tokens == -1  # two tokens for six ids',
    ),
    "a broker's answer to acks=0 is waited for": Tested(
        "A request with acks=0 has no response, and its refusal closes the connection.",
        around(RepeatedProduce, "walk", _answered_anyway),
        f"{_CONVERSATION}test_acks_0_takes_no_place_in_flight_and_its_refusal_closes",
        "admitted.talk.is_quiet",
    ),
    "a refused acks=0 is answered": Tested(
        "A request with acks=0 has no response, and its refusal closes the connection.",
        around(produce, "_stop", _refusal_answered),
        f"{_CONVERSATION}test_acks_0_takes_no_place_in_flight_and_its_refusal_closes",
        "refused.send(produce(7, acks=0)) is CLOSE",
    ),
    "a reset in the middle of a frame": Tested(
        "A broker sees the end of the stream and never a reset.",
        around(BrokerSide, "_leave_broker", _reset),
        f"{_PASSING}test_the_broker_sees_the_end_of_the_stream_and_no_reset",
        "not pair.broker.aborted",
    ),
    "each opaque token is somebody else": Tested(
        "Every authenticated client has a quota; users without a readable name share one per mechanism.",
        replaced(authentication, "unidentified", _each_his_own()),
        "tests/unit/gateway/proxy/test_sasl_users.py::test_an_opaque_token_belongs_to_all_such",
        'login(anonymous(), "OAUTHBEARER", OPAQUE) ==',
    ),
    "tokens in a row": Tested(
        "A second SaslAuthenticate before the response to the first closes the connection.",
        around(SaslExchange, "record_client_token", _token_after_token),
        "tests/unit/protocol/test_sasl.py::test_a_second_token_before_the_answer_ends_the_connection",
        'with pytest.raises(MalformedFrame, match="second SaslAuthenticate"):',
    ),
    "nobody waits for a login under way": Tested(
        "Requests behind an unanswered login wait for it.",
        replaced(Conversation, "in_flight", _nobody_waits),
        f"{_CONVERSATION}test_a_produce_waits_until_the_broker_has_said_who_it_is",
        "script.send(produce(7, correlation_id=3)) is TAKEN",
    ),
    "nobody waits until it is known whether there is a login": Tested(
        "Only ApiVersions and SASL pass before a login that is required or may be.",
        around(Conversation, "_before_login", _passes_until_known),
        f"{_CONVERSATION}test_until_it_is_known_requests_wait",
        "script.send(metadata(1)) is TAKEN",
    ),
    "no mute after a refusal": _muted(
        "No request passes a mute; all of them go on in order when it ends.",
        f"{_CONVERSATION}test_nothing_passes_a_mute_and_all_of_it_goes_on_in_order",
        "[script.send(frame) for frame in held] == [TAKEN] * 3",
    ),
    "no mute by bytes without an answer": _muted(
        "A mute by bytes holds even if no response can announce it.",
        f"{_BYTES}test_without_an_answer_the_mute_holds_all_the_same",
        "pair.broker.sent() == frame",
    ),
    "no mute by bytes": _muted(
        "Bytes are never refused: a byte rate forwards the request and delays the next one.",
        f"{_BYTES}test_a_produce_above_the_rate_passes_then_mutes_and_its_answer_says_so",
        'pair.broker.sent() == over, "what is above the rate is forwarded, and',
    ),
    "anybody produces to a gateway topic": Tested(
        "No client produces to a topic of the gateway, however the request spells it.",
        _no_topic_is_forbidden,
        "tests/unit/gateway/proxy/test_gateway_topics.py::test_nothing_is_produced_to_it",
        "talk.send(produce(version, *topics, records=records)) is TAKEN",
        given={"version": 9, "records": None, "position": 0},
    ),
}

EQUIVALENT: Final[dict[str, str]] = {
    "entry_ends_at_epoch": "an epoch begins at 0: that is at or below all batches refused before, and lifts them",
}
"""Rules of the table of refusals without which the same batches pass, a refusal of 100 ms earlier or later."""
