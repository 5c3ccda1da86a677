"""Rules of connections, each broken in one way, and a test of them that fails then."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import pytest

from pidgate.gateway.proxy import frame_reservation
from pidgate.gateway.proxy.apis import authentication, produce
from pidgate.gateway.proxy.apis.api import HOLD
from pidgate.gateway.proxy.broker_channel import BrokerChannel
from pidgate.gateway.proxy.broker_side import BrokerSide
from pidgate.gateway.proxy.buffers import BudgetShare, Half, Purpose
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.gateway.proxy.frame_reservation import FrameReservation
from pidgate.gateway.proxy.read_ahead import ReadAhead
from pidgate.gateway.proxy.reading import Reader
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.protocol.sasl import SaslExchange
from tests.simulator.breaking import Break, always, around, never, nothing, replaced
from tests.unit.rules.breaking import UnitMutant

_CHANNEL: Final = "tests/unit/gateway/proxy/test_client_channel.py::"
_CONVERSATION: Final = "tests/unit/gateway/proxy/test_conversation.py::"
_PASSING: Final = "tests/unit/gateway/proxy/test_passing_on.py::"
_WAITING: Final = "tests/unit/gateway/proxy/test_waiting_memory.py::"
_BYTES: Final = "tests/unit/gateway/proxy/test_bytes_on_a_connection.py::"

# ---- answers, identity ---------------------------------------------------------------------------------


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


# ---- connections that end ------------------------------------------------------------------------------


def _reset(before: Any) -> Any:
    def leave_broker(self: BrokerSide) -> None:
        transport = getattr(self.broker, "_transport", None)
        if transport is not None:
            transport.abort()
        before(self)

    return leave_broker


def _all_close(before: Any) -> Any:
    def failed(self: ClientConnection, error: Exception) -> None:
        before(self, error)
        for channel in list(self.context.shared.channels):
            channel.close("error", "another one's fault")

    return failed


# ---- memory --------------------------------------------------------------------------------------------


def _reads_on(self: FrameReservation, amount_bytes: int) -> bool:
    self._reserve(amount_bytes)
    return True


def _whole_at_once(large_bytes: int, _arrived_bytes: int) -> int:
    return large_bytes


def _nobody_ahead(self: Half) -> bool:
    for owner in self._waiting:
        if self.has_room(owner, self._first_of(owner)[1].more_bytes):
            self._resume(owner)
            return True
    return False


def _answers_outlive_their_client(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reader, "is_lost", False)
    patch.setattr(BrokerChannel, "_drop_answer", nothing)


def _announces_what_it_likes(before: Any) -> Any:
    def may_hold(self: BudgetShare, who: object, purpose: Purpose, amount_bytes: int) -> bool:
        return purpose is Purpose.PASSED_ON or bool(before(self, who, purpose, amount_bytes))

    return may_hold


# ---- gateway topics -------------------------------------------------------------------


def _held_if_refused(_: Any, __: Any, ___: Any, ____: int) -> Any:
    return HOLD


def _no_topic_is_forbidden(patch: pytest.MonkeyPatch) -> None:
    before = RepeatedProduce.__init__

    def __init__(self: RepeatedProduce, *_: Any) -> None:
        before(self)

    patch.setattr(RepeatedProduce, "__init__", __init__)


def _muted(rule: str, test: str, at: str) -> UnitMutant:
    return UnitMutant(rule, replaced(Conversation, "mute", nothing), test, at)


def _closing(name: str, make: Callable[[Any], Any]) -> Break:
    return around(ClientConnection, name, make)


PROXY_MUTANTS: Final[dict[str, UnitMutant]] = {
    "a broker's answer to acks=0 is waited for": UnitMutant(
        "Order: acks=0 has no answer",
        around(RepeatedProduce, "walk", _answered_anyway),
        f"{_CONVERSATION}test_acks_0_takes_no_place_in_flight_and_its_refusal_closes",
        "admitted.talk.is_quiet",
    ),
    "a refused acks=0 is answered": UnitMutant(
        "Refusals: A refused acks=0 closes",
        around(produce, "_stop", _refusal_answered),
        f"{_CONVERSATION}test_acks_0_takes_no_place_in_flight_and_its_refusal_closes",
        "refused.send(produce(7, acks=0)) is CLOSE",
    ),
    "a reset in the middle of a frame": UnitMutant(
        "Whole frames: the end of the stream, never a reset",
        around(BrokerSide, "_leave_broker", _reset),
        f"{_PASSING}test_the_broker_sees_the_end_of_the_stream_and_no_reset",
        "not pair.broker.aborted",
    ),
    "each opaque token is somebody else": UnitMutant(
        "Identity first: one entity per mechanism",
        replaced(authentication, "unidentified", _each_his_own()),
        "tests/unit/gateway/proxy/test_sasl_users.py::test_an_opaque_token_belongs_to_all_such",
        'login(anonymous(), "OAUTHBEARER", OPAQUE) ==',
    ),
    "tokens in a row": UnitMutant(
        "Identity first: A second SaslAuthenticate before the answer to the first",
        around(SaslExchange, "record_client_token", _token_after_token),
        "tests/unit/protocol/test_sasl.py::test_a_second_token_before_the_answer_ends_the_connection",
        'with pytest.raises(MalformedFrame, match="second SaslAuthenticate"):',
    ),
    "nobody waits for a login under way": UnitMutant(
        "Identity first: Everything behind an unanswered SASL request is held",
        replaced(Conversation, "in_flight", _nobody_waits),
        f"{_CONVERSATION}test_a_produce_waits_until_the_broker_has_said_who_it_is",
        "script.send(produce(7, correlation_id=3)) is TAKEN",
    ),
    "nobody waits until it is known whether there is a login": UnitMutant(
        "Identity first: and while it is unknown whether there is any",
        around(Conversation, "_before_login", _passes_until_known),
        f"{_CONVERSATION}test_until_it_is_known_requests_wait",
        "script.send(metadata(1)) is TAKEN",
    ),
    "reading goes on without room": UnitMutant(
        "Memory: what finds no room is not read",
        replaced(FrameReservation, "_reserve_or_wait", _reads_on),
        f"{_CHANNEL}test_half_frames_hold_no_more_than_the_budget",
        "scene.budget.used_bytes < 4 * MiB + 2 * 250_000 + len(pairs) *",
    ),
    "a length takes memory": UnitMutant(
        "Memory: A frame takes memory as it arrives",
        replaced(frame_reservation, "first_large_bytes", _whole_at_once),
        f"{_CHANNEL}test_a_length_alone_costs_nothing",
        "scene.budget.used_bytes == 4 * FIRST_LARGE_BYTES",
    ),
    "nobody goes ahead": UnitMutant(
        "Memory: one at a time goes ahead",
        replaced(Half, "_resume_one", _nobody_ahead),
        "tests/unit/gateway/proxy/test_buffers.py::test_one_waiter_goes_ahead_and_the_others_wait_for_it",
        'waiters.resumed == ["first"]',
    ),
    "read-aheads without a share": UnitMutant(
        "Mutes: It has its user's share and no more",
        replaced(ReadAhead, "_has_room", always),
        f"{_WAITING}test_behind_the_mutes_of_a_user_no_more_is_read_than_its_share",
        "scene.budget.large.used_bytes <= 8 * MiB + len(pairs) * (",
    ),
    "own answers without a bound": UnitMutant(
        "Memory: own answers behind a request in flight",
        replaced(ReadAhead, "bound_answers", nothing),
        f"{_WAITING}test_own_answers_that_wait_are_counted_and_bounded",
        "OWN_ANSWERS_LIMIT_BYTES <= waiting_bytes < OWN_ANSWERS_LIMIT_BYTES + 200_000",
    ),
    "an answer is walked on for a client that is gone": UnitMutant(
        "Memory: given back",
        _answers_outlive_their_client,
        f"{_WAITING}test_an_answer_whose_client_leaves_during_its_walk_is_given_back",
        "scene.budget.used_bytes == 0",
    ),
    "any length is announced": UnitMutant(
        "Memory: Bytes announced to brokers",
        around(BudgetShare, "may_hold", _announces_what_it_likes),
        f"{_PASSING}test_so_is_one_without_room_for_its_length",
        "begun(scene, frame)[1] == 0",
    ),
    "who breaks the protocol stays": UnitMutant(
        "Blame: A connection that breaks the protocol is closed",
        replaced(ClientConnection, "_failed", nothing),
        f"{_CHANNEL}test_who_speaks_another_protocol_is_closed",
        "pair.client.is_closing()",
        given={"sent": b"\xff\xff\xff\xff", "says": "not Kafka's protocol"},
    ),
    "all pay for one": UnitMutant(
        "Blame: no other connection notices",
        _closing("_failed", _all_close),
        f"{_CHANNEL}test_who_speaks_another_protocol_is_closed",
        "not other.client.is_closing()",
        given={"sent": b"\xff\xff\xff\xff", "says": "not Kafka's protocol"},
    ),
    "more ids than eight": UnitMutant(
        "Refusals: More than eight ids close the connection",
        replaced(produce, "names_too_many_ids", never),
        "tests/unit/gateway/proxy/test_ids_per_request.py::test_behind_a_mute_too",
        "conversation.request(frame, SIZE_PREFIX_BYTES, len(frame), 0) is CLOSE",
    ),
    "no mute after a refusal": _muted(
        "Mutes: Nothing passes a mute",
        f"{_CONVERSATION}test_nothing_passes_a_mute_and_all_of_it_goes_on_in_order",
        "[script.send(frame) for frame in held] == [TAKEN] * 3",
    ),
    "a mute for each of a pipeline": UnitMutant(
        "Mutes: What is refused anyway is answered behind a mute",
        replaced(produce.ProduceApi, "while_muted", _held_if_refused),
        f"{_CONVERSATION}test_a_pipeline_behind_its_refused_first_batch_costs_one_mute",
        "script.sent_by_us() == [0, 1, 2, 3, 4]",
    ),
    "a read-ahead without an end": UnitMutant(
        "Mutes: The read-ahead is bounded",
        lambda patch: patch.setattr(Conversation, "wants_no_more", False),
        f"{_CONVERSATION}test_read_ahead_is_bounded",
        "script.talk.wants_no_more",
    ),
    "no mute by bytes without an answer": _muted(
        "Mutes: A mute by bytes is kept on the connection",
        f"{_BYTES}test_without_an_answer_the_mute_holds_all_the_same",
        "pair.broker.sent() == frame",
    ),
    "no mute by bytes": _muted(
        "Bytes are never refused: A byte rate delays the next request",
        f"{_BYTES}test_a_produce_above_the_rate_passes_then_mutes_and_its_answer_says_so",
        'pair.broker.sent() == over, "what is above the rate is forwarded, and',
    ),
    "anybody produces to a gateway topic": UnitMutant(
        "Nothing is read twice in two ways: nothing is produced to one",
        _no_topic_is_forbidden,
        "tests/unit/gateway/proxy/test_gateway_topics.py::test_nothing_is_produced_to_it",
        "talk.send(produce(version, *topics, records=records)) is TAKEN",
        given={"version": 9, "records": None, "position": 0},
    ),
}
