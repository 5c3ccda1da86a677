"""Access of an admission to the quota's state: who waits for its answer, and what holds when it gives none. PURE.

The state is in this process, or in another one; then answers come later (see PendingDecision).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidgate.quota.entities import User, enforces, refuses_at_init
from pidgate.quota.fail_open import FailOpen
from pidgate.quota.settings import Quotas
from pidgate.quota.state import (
    Answer,
    AskedId,
    LocalState,
    PendingDecision,
    Question,
    QuotaState,
    new_id_question,
)
from pidgate.quota.users import GaveUp, UserStatus
from pidgate.quota.verdicts import Session

WAITS_ON_MS: Final = 10_000
"""After a change of quotas all requests wait for their answers for so long, those too of which none is refused any
more: another worker may hold earlier ones. Longer than any of them is held.
"""


class StateAccess:
    """Access to the state, by questions.

    `local`: the state, if it is in this process. `fail_open` answers where the state does not.
    """

    def __init__(
        self,
        quotas: Quotas,
        state: QuotaState,
        local: LocalState | None,
        now_ms: int,
        on_failure: Callable[[Exception], None] | None,
    ) -> None:
        self.state = state
        self.local = local
        self.fail_open = FailOpen()
        self._on_failure = on_failure
        self._quotas = quotas
        self._wait_until_ms = now_ms + WAITS_ON_MS

    def ask(self, question: Question, now_ms: int) -> PendingDecision:
        """Put a question, and return it with its answer if that is there already."""
        return PendingDecision(question, now_ms, self._answer(question, now_ms))

    def question(
        self, session: Session, ids: list[AskedId], partitions: int, transactional: bool, now_ms: int
    ) -> Question:
        """Return the question about the ids of a Produce request."""
        passed = not self._waits(session.user, transactional, now_ms)
        return Question(
            session.user, session.address, session.client_id, transactional, partitions, ids, passed=passed
        )

    def new_id_question(self, session: Session, transactional_id: int | None) -> Question:
        """Return the question about an InitProducerId. One that is not refused in any case waits for no answer."""
        question = new_id_question(session.user, session.address, session.client_id, transactional_id)
        question.passed = self.local is None and not refuses_at_init(
            self._quotas, session.user, transactional=question.transactional
        )
        return question

    def _waits(self, user: User, transactional: bool, now_ms: int) -> bool:
        """Return whether a Produce has to wait for an answer that comes later.

        One of which nothing is refused goes on at once: it would wait for nothing, and what comes after it may
        overtake it through another worker meanwhile.
        """
        return (
            self.local is not None
            or now_ms < self._wait_until_ms
            or enforces(self._quotas, user, transactional=transactional)
        )

    def _answer(self, question: Question, now_ms: int) -> Answer | None:
        try:
            return self.state.decide(question, now_ms)
        except Exception as problem:  # noqa: BLE001  (the gateway is never the reason that Kafka is down)
            if self._on_failure is not None:
                self._on_failure(problem)
            return self.failed_open(question, now_ms)

    def failed_open(self, question: Question, now_ms: int) -> Answer:
        """Return the answer because the state gives none."""
        return self.fail_open.answer(self._quotas, self.state, question, now_ms)

    def use_state(self, state: LocalState) -> None:
        """Ask this state from now on."""
        self.state = self.local = state

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Apply new quotas."""
        self._quotas = quotas
        self._wait_until_ms = now_ms + WAITS_ON_MS
        if self.local is not None:
            self.local.set_quotas(quotas, now_ms)

    # Of the state in this process; of another one nothing is known here.

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Forget what has expired; return the ids that gave up waiting."""
        return self.local.sweep(now_ms) if self.local is not None else []

    def users(self) -> list[User]:
        """Return the users of whom something is known."""
        return [] if self.local is None else self.local.users()

    def status(self, user: User, now_ms: int) -> UserStatus:
        """Return the user's tokens, queue and remembered ids."""
        return UserStatus() if self.local is None else self.local.status(user, now_ms)
