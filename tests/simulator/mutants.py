"""Rules of the documents that guard against loss or evasion, each broken in one way, and the schedule that notices it.

`MUTANTS` by name: which Invariant of docs/architecture.md the rule belongs to, how it is broken, and a schedule that
fails then. `NOT_HERE`: why an Invariant has no mutant here, and what holds it instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.gateway.proxy.in_flight_requests import InFlightRequests
from pidgate.quota.admission import Admission
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.state import Answer, Question
from pidgate.quota.sticky import StickyRefusals
from pidgate.quota.verdicts import Session
from tests.simulator.drawing import drawn, restless
from tests.simulator.schedule import Schedule, Shape

Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule, broken. `rule`: the paragraph that states it."""

    rule: str
    breaks: Break
    schedule: Schedule


def _replaced(owner: type, name: str, by: Callable[..., Any]) -> Break:
    return lambda patch: patch.setattr(owner, name, by)


def _inserted_first(patch: pytest.MonkeyPatch) -> None:
    before = ProducerIdQuota.decide

    def decide(self: ProducerIdQuota, question: Question, now_ms: int) -> Answer:
        answer = before(self, question, now_ms)
        if answer.refused:
            for asked in question.ids:
                self.insert_uncharged(question.user, asked.producer_id, now_ms)
        return answer

    patch.setattr(ProducerIdQuota, "decide", decide)


def _out_of_turn(self: InFlightRequests, answer: bytes) -> None:
    self.out.append(answer)


def _by_connection(patch: pytest.MonkeyPatch) -> None:
    before = Conversation.__init__

    def __init__(self: Conversation, admission: Admission, session: Session, *args: Any, **more: Any) -> None:
        session.user = f"{session.user}/{session.connection_id}"
        before(self, admission, session, *args, **more)

    patch.setattr(Conversation, "__init__", __init__)


def _never(*_: object, **__: object) -> bool:
    return False


def _as_it_is(_: object, node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


MUTANTS: Final[dict[str, Mutant]] = {
    "answers of our own do not wait for their turn": Mutant(
        "Order", _replaced(InFlightRequests, "respond", _out_of_turn), drawn(38, Shape.ONE)
    ),
    "each connection has a quota of its own": Mutant("Identity first", _by_connection, drawn(3, Shape.ONE)),
    "any later batch lifts a refusal": Mutant(
        "Sticky first", _replaced(StickyRefusals, "is_above", _never), restless(1)
    ),
    "real addresses pass": Mutant(
        "Addresses", _replaced(ConnectionContext, "translate", _as_it_is), drawn(1, Shape.ONE)
    ),
    "a refused id is remembered": Mutant("One state", _inserted_first, drawn(3, Shape.ONE)),
}

NOT_HERE: Final[dict[str, str]] = {
    "Bytes": "every frame of the clients here is understood; tests/fuzz and tests/unit/protocol hold it",
    "Versions": "the clients here ask for what they are offered; tests/unit/protocol/test_versions.py",
    "Memory": "no schedule fills a buffer; tests/hostile/test_large_frames.py does",
    "Work per turn": "virtual time counts no work; tests/unit/protocol counts steps",
    "Blame": "a breach of the protocol is an attack: tests/hostile",
    "Fail open": "no seed has found its ceiling missing; tests/unit/quota/test_fail_open.py",
    "One store": "tests/unit/gateway/model has its mutants",
    "Bytes are never refused": "byte rates delay, and nothing is lost by that here",
    "Events are in nobody's way": "a topic that is cut is a step of the schedules, and everybody has to be served",
    "Restored, then enforced": "tests/unit/quota/test_restoring.py and test_interim.py",
}
"""Of the rules of Sticky first, those that no seed has found broken stand in tests/unit/gateway/model/mutants.py."""
