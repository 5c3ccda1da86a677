"""The state owner of a model's workers: questions on their way to it, and what it sends on its way back.

The workers' admissions and the state are the code under test; what is between them is two queues. Questions are
decided in the order in which they were asked; what each worker is sent arrives in order, whenever the schedule says,
but never later than HOLD_MS: for longer no worker waits.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from pidgate.quota.admission import Admission
from pidgate.quota.entities import User
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Quotas
from pidgate.quota.state import Answer, PendingDecision, Question, complete

HOLD_MS: Final = 5_000
"""The longest that a request waits for its answer."""


class Kind(Enum):
    """What a worker is sent."""

    ANSWER = auto()
    REFUSED = auto()
    QUOTAS = auto()


@dataclass(slots=True)
class Message:
    """Something for one worker, sent at `at_ms`."""

    kind: Kind
    body: Any
    at_ms: int


@dataclass(slots=True)
class Asked:
    """A question on its way. `asker`: the channel whose request waits, for the world to find again."""

    worker: int
    pending: PendingDecision
    asker: Any


class StateElsewhere:
    """A worker's QuotaState: questions are put by who finds one pending; ids that pass arrive at once."""

    def __init__(self, owner: StateOwner) -> None:
        self._owner = owner

    def decide(self, question: Question, now_ms: int) -> Answer | None:
        return None

    def insert_uncharged(
        self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        self._owner.state.insert_uncharged(user, producer_id, now_ms, transactional=transactional)

    def insert_transactional_id(self, user: User, hashed: int, now_ms: int) -> None:
        self._owner.state.insert_transactional_id(user, hashed, now_ms)

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        return self._owner.state.inherit(user, old_producer_id, new_producer_id, now_ms)


@dataclass(slots=True)
class StateOwner:
    """The one state, and what is under way between it and its workers."""

    state: ProducerIdQuota
    asked: deque[Asked] = field(default_factory=deque)
    sent: list[deque[Message]] = field(default_factory=list)

    def attach(self, admission: Admission, worker: int, quotas: Quotas, now_ms: int) -> None:
        """A worker begins: it asks here from now on, and is sent what it has to know."""
        admission.access.state, admission.access.local = StateElsewhere(self), None
        while len(self.sent) <= worker:
            self.sent.append(deque())
        self.asked = deque(asked for asked in self.asked if asked.worker != worker)
        self.sent[worker].clear()
        self._send(worker, Kind.QUOTAS, quotas, now_ms)
        for user, producer_id in self.state.table.refusals.to_watch(now_ms):
            self._send(worker, Kind.REFUSED, (user, producer_id), now_ms)
        for user, records in admission.sticky.watched.items():
            for producer_id, record in records.items():
                if record.first_refused_ms is not None:
                    self._watched(worker, user, producer_id, now_ms)

    def _watched(self, worker: int, user: User, producer_id: int, now_ms: int) -> None:
        refusals = self.state.table.refusals
        if not refusals.is_watched(user, producer_id, now_ms):
            refusals.watched(user, producer_id, now_ms)
            for other in range(len(self.sent)):
                if other != worker:
                    self._send(other, Kind.REFUSED, (user, producer_id), now_ms)

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Here at once, in the workers when it has arrived."""
        self.state.set_quotas(quotas, now_ms)
        for worker in range(len(self.sent)):
            self._send(worker, Kind.QUOTAS, quotas, now_ms)

    def decide(self, now_ms: int) -> None:
        """Answer the question that was asked first."""
        asked = self.asked.popleft()
        answer = self.answer(asked.worker, asked.pending, now_ms)
        self._send(asked.worker, Kind.ANSWER, (asked, answer), now_ms)

    def answer(self, worker: int, pending: PendingDecision, now_ms: int) -> Answer:
        """Decide, and send word of what is refused to the other workers, as `Workers` does."""
        question = pending.question
        complete(question, self.state.table.refusals, now_ms)
        answer = self.state.decide(question, now_ms)
        if answer.refused:
            for other in range(len(self.sent)):
                for one in question.ids if other != worker else ():
                    self._send(other, Kind.REFUSED, (question.user, one.producer_id), now_ms)
        return answer

    def due_ms(self) -> int | None:
        """When something has been under way for HOLD_MS."""
        began = [asked.pending.asked_ms for asked in self.asked]
        began += [message.at_ms for sent in self.sent for message in sent]
        return min(began) + HOLD_MS if began else None

    def _send(self, worker: int, kind: Kind, body: Any, now_ms: int) -> None:
        self.sent[worker].append(Message(kind, body, now_ms))
