"""The quota's state as those see it who ask it: in this process, or in another one that answers later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pidgate.quota.entities import User
from pidgate.quota.producer_ids import Answer, GaveUp, Question, decision_of
from pidgate.quota.settings import Quotas
from pidgate.quota.verdicts import Reason


class QuotaState(Protocol):
    """What `Admission` needs of it. `ProducerIdQuota` is one; another asks a process that holds one."""

    def decide(self, question: Question, now_ms: int) -> Answer | None:
        """None: it was handed to whoever knows, and the answer will come (see `Ask`)."""

    def insert_uncharged(self, user: User, producer_id: int, now_ms: int) -> None:
        """The id counts as admitted, and no token is spent."""

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """The new id is admitted as the old one was, uncharged; False when the old one is not remembered."""

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None: ...

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Forgets what is over; returns who gave up waiting since the last sweep."""

    def users(self) -> list[User]:
        """Those of whom something is known here."""

    def tokens(self, user: User, now_ms: int) -> float | None: ...
    def live_ids(self, user: User, now_ms: int) -> int: ...
    def waiting(self, user: User) -> int: ...
    def oldest_waiting_ms(self, user: User, now_ms: int) -> int: ...

    @property
    def filter_bytes(self) -> int: ...
    @property
    def overfull_inserts(self) -> int: ...


def failed_open(state: QuotaState, question: Question, now_ms: int) -> tuple[Answer, int]:
    """The answer when nobody gives one, and how many of its ids could not even be inserted: everything is admitted."""
    failures = 0
    for asked in question.ids:
        try:
            state.insert_uncharged(question.user, asked.producer_id, now_ms)
        except Exception:  # noqa: BLE001  (insert when possible)
            failures += 1
    decisions = (decision_of(question, asked, True, Reason.FAIL_OPEN, now_ms) for asked in question.ids)
    return Answer(False, tuple(decisions)), failures


@dataclass(slots=True)
class PendingDecision:
    """The request has to wait: its question was put to the state at `asked_ms`, and `answer` is still to come.

    With the answer in it, it is handed to `Admission.judge` together with the same request again.
    """

    question: Question
    asked_ms: int
    answer: Answer | None = None
