"""Rules of the gateway and of its quotas, each broken in one way: order, addresses, memory, failures, restarts."""

from __future__ import annotations

from typing import Any, Final

import pytest

from pidgate.gateway.proxy import client_channel
from pidgate.gateway.proxy.apis.passing_produce import has_passed
from pidgate.gateway.proxy.buffers import BudgetShare, Purpose
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.connection_state import OPEN
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.gateway.proxy.in_flight_requests import InFlightRequests
from pidgate.gateway.state import manager, publisher
from pidgate.gateway.state.event_log import EventLog
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Answer, Question, Session
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import LiveUser
from tests.simulator.breaking import (
    Breach,
    Break,
    Mutant,
    around,
    never,
    nothing,
    nothing_later,
    replaced,
)
from tests.simulator.themes import Theme

# ---- order, identity, addresses ------------------------------------------------------------------------


def _out_of_turn(self: InFlightRequests, answer: bytes) -> None:
    self.out.append(answer)


def _by_connection(before: Any) -> Any:
    def __init__(self: Conversation, admission: Admission, session: Session, *args: Any, **more: Any) -> None:
        session.user = f"{session.user}/{session.connection_id}"
        before(self, admission, session, *args, **more)

    return __init__


def _as_it_is(_: object, node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


# ---- whole frames --------------------------------------------------------------------------------------


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


# ---- memory --------------------------------------------------------------------------------------------


def _never_given_back(before: Any) -> Any:
    def hold(self: BudgetShare, purpose: Purpose, amount_bytes: int) -> None:
        if amount_bytes:
            before(self, purpose, amount_bytes)

    return hold


# ---- the state -----------------------------------------------------------------------------------------


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


def _enforced_at_once(before: Any) -> Any:
    def __init__(self: QuotaStateManager, *args: Any, **more: Any) -> None:
        before(self, *args, **more)
        self.state.is_restored = True

    return __init__


def _refusal_passed_on(rule: str, breaks: Break, seed: int) -> Mutant:
    return Mutant(rule, breaks, Breach.OVERTAKEN, Theme.PASSING, seed)


def _quota(rule: str, breaks: Break, theme: Theme, seed: int) -> Mutant:
    return Mutant(rule, breaks, Breach.QUOTA, theme, seed)


_KEPT_WHOLE: Final = "Whole frames: Whatever may be refused or held is kept whole"

GATEWAY_MUTANTS: Final[dict[str, Mutant]] = {
    "answers of our own do not wait for their turn": Mutant(
        "Order: in the order of the requests",
        replaced(InFlightRequests, "respond", _out_of_turn),
        Breach.OUT_OF_TURN,
        Theme.REFUSALS,
        1,
    ),
    "each connection has a quota of its own": _quota(
        "The quota is the user's: whatever connection, address or gateway",
        around(Conversation, "__init__", _by_connection),
        Theme.REFUSALS,
        4,
    ),
    "real addresses pass": Mutant(
        "Addresses: No real broker address reaches a client",
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
    "it happens at its beginning": Mutant(
        "Whole frames: A request has happened at its last byte",
        _happens_at_its_beginning,
        Breach.NOT_GIVEN_BACK,
        Theme.PASSING,
        14,
    ),
    "memory is not given back": Mutant(
        "Memory: given back",
        around(BudgetShare, "hold", _never_given_back),
        Breach.MISCOUNTED,
        Theme.REFUSALS,
        1,
    ),
    "inserted before charged": _quota(
        "What an id costs: Inserted when it is admitted",
        around(ProducerIdQuota, "decide", _inserted_first),
        Theme.REFUSALS,
        7,
    ),
    "admissions elsewhere are not charged": _quota(
        "One state: an admission elsewhere is charged here",
        replaced(ProducerIdQuota, "admitted_elsewhere", never),
        Theme.FLEET,
        1,
    ),
    "nothing is restored": _quota(
        "Restarts and fleets: A restored state remembers and owes what it did", _unrestored, Theme.OUTAGES, 4
    ),
    "an admission is in a snapshot a while later": _quota(
        "Snapshots: What the topic lacks is in a snapshot within 5 s",
        lambda patch: patch.setattr(manager, "SAVE_UNSENT_EVERY_S", 60.0),
        Theme.SNAPSHOTS,
        17,
    ),
    "a topic that is cut off makes no snapshot": _quota(
        "Snapshots: What the topic lacks is in a snapshot within 5 s",
        replaced(EventLog, "lacks_events", _has_no_topic),
        Theme.SNAPSHOTS,
        29,
    ),
    "a snapshot leaves out users that have changed": _quota(
        "Snapshots: of users that have changed",
        replaced(LiveUser, "needs_saving", never),
        Theme.SNAPSHOTS,
        17,
    ),
    "an admission is in the topic a while later": _quota(
        "Events are in nobody's way: Every decision that admits is an event before its effect is needed",
        lambda patch: patch.setattr(publisher, "BATCHES_APART_S", 5.0),
        Theme.FLEET,
        1,
    ),
    "a bucket with two more": _quota(
        "What an id costs: A bucket has its capacity, its refill, and one more",
        around(TokenBucket, "wait_ms", _one_more),
        Theme.REFUSALS,
        4,
    ),
    "enforced at once": Mutant(
        "Restored, then enforced: Until the state is whole nothing is refused",
        around(QuotaStateManager, "__init__", _enforced_at_once),
        Breach.EARLY,
        Theme.OUTAGES,
        4,
    ),
}
