"""Questions about producer ids, their answers, and the interfaces of the state that answers them. PURE.

A question holds everything that is asked about, and an answer everything that was decided, so that both can be sent
between processes. Must not know how anything is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pidgate.quota.entities import User
from pidgate.quota.refused_ids import RefusedIds
from pidgate.quota.settings import Quotas
from pidgate.quota.users import GaveUp, UserStatus, UserTable
from pidgate.quota.verdicts import Bound, Decision, Reason

BUSY_THROTTLE_MS = 1_000
"""Until a client whose request was refused unanswered comes back."""

NO_PRODUCER_ID = -1
"""RecordBatch.NO_PRODUCER_ID."""


@dataclass(slots=True)
class AskedId:
    """One producer id of a request, and what the asking process knows of it.

    `came_back`: the same batch was refused before; `first_sight_above_0`: it arrives above sequence 0 on a partition
    where the process knows nothing of the id; `deadline_ms`: end of its latest throttle; `first_refused_ms`: time of
    its first refusal.
    """

    producer_id: int
    epoch: int
    base_sequence: int
    topic: bytes
    partition: int
    came_back: bool = False
    first_sight_above_0: bool = False
    deadline_ms: int = 0
    first_refused_ms: int | None = None


@dataclass(slots=True)
class Question:
    """The ids of one request; without ids, an InitProducerId that would give the user a new one, or one that names a
    transactional id: then 64 bits of its hash are given.

    `passed`: the request went on without waiting, since nothing of its user is refused: it is counted only.
    """

    user: User
    address: str
    client_id: str
    transactional: bool
    request_partitions: int
    ids: Sequence[AskedId]
    transactional_id: int | None = None
    passed: bool = False


@dataclass(slots=True)
class Answer:
    """Not refused: forward the request. Refused: `decisions` holds the refusals, and no token was spent.

    For a question without ids: at most one decision, about NO_PRODUCER_ID.
    """

    refused: bool
    decisions: tuple[Decision, ...]
    bound: Bound = Bound.USER


@dataclass(slots=True)
class PendingDecision:
    """A question put at `asked_ms` to a state in another process, and its answer once there is one.

    The request waits; then it is judged again, with this. What the answer admits is counted and recorded once, whatever
    has become of the request (Admission.counted); `of_transaction`: what its events name the transaction by.
    """

    question: Question
    asked_ms: int
    answer: Answer | None = None
    of_transaction: str | None = None
    is_counted: bool = False


class PassedId(NamedTuple):
    """An id that passed while no state decided about it: a producer id and its use, or a transactional id's hash."""

    user: User
    number: int
    transactional: bool
    is_transactional_id: bool = False
    predecessor: int | None = None
    """Of an id that EndTxn gave: it is inserted if this one is remembered."""

    def insert_into(self, state: QuotaState, now_ms: int) -> None:
        """Have the state remember it, uncharged."""
        if self.predecessor is not None:
            state.inherit(self.user, self.predecessor, self.number, now_ms)
        elif self.is_transactional_id:
            state.insert_transactional_id(self.user, self.number, now_ms)
        else:
            state.insert_uncharged(self.user, self.number, now_ms, transactional=self.transactional)


class QuotaState(Protocol):
    """Interface of a deciding state: LocalState in this process, StateOwnerLink (gateway/process/link.py) asks another
    one.
    """

    def decide(self, question: Question, now_ms: int) -> Answer | None:
        """Return the answer; None when it will come later (see PendingDecision)."""

    def insert_uncharged(
        self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Admit the id for that use without spending a token."""

    def insert_transactional_id(self, user: User, hashed: int, now_ms: int) -> None:
        """Remember a transactional id, by 64 bits of its hash, without spending a token."""

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """Admit the new id of a transaction uncharged; return False when the old one is not remembered as such."""


class LocalState(QuotaState, Protocol):
    """A state in this process, and what it knows of users. `table` is None while they are being restored."""

    @property
    def table(self) -> UserTable | None: ...

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None: ...

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Forget what has expired; return the ids that gave up waiting since the last sweep."""

    def users(self) -> list[User]: ...
    def status(self, user: User, now_ms: int) -> UserStatus: ...


def new_id_question(
    user: User, address: str, client_id: str, transactional_id: int | None = None
) -> Question:
    """Ask whether a broker may give this user a new id, or one for this transactional id (InitProducerId)."""
    of_transaction = transactional_id is not None
    return Question(user, address, client_id, of_transaction, 0, (), transactional_id)


def new_id_decision(
    question: Question, reason: Reason, throttle_time_ms: int, tokens: int | None, *, enforced: bool
) -> Decision:
    """Return the decision that a new id would be one too many: refused, or only counted."""
    return Decision(
        question.user,
        NO_PRODUCER_ID,
        epoch=-1,
        transactional=question.transactional,
        topic=b"",
        partition=-1,
        base_sequence=-1,
        request_partitions=0,
        admitted=not enforced,
        reason=reason,
        tokens_before=tokens,
        tokens_after=tokens,
        throttle_time_ms=throttle_time_ms if enforced else 0,
        would_refuse=not enforced,
    )


def decision_of(question: Question, asked: AskedId, admitted: bool, reason: Reason, now_ms: int) -> Decision:
    """Return the decision about one id of a question, still without tokens and throttle."""
    first_ms = asked.first_refused_ms
    return Decision(
        question.user,
        asked.producer_id,
        asked.epoch,
        question.transactional,
        asked.topic,
        asked.partition,
        asked.base_sequence,
        question.request_partitions,
        admitted,
        reason,
        waited_ms=None if first_ms is None else now_ms - first_ms,
    )


def complete(question: Question, refusals: RefusedIds, now_ms: int) -> None:
    """Add to the question what earlier refusals through other processes left: the asking one may not know them."""
    for asked in question.ids:
        known = refusals.waiting(question.user, asked.producer_id, now_ms)
        if known is None or known.first_refused_ms is None:
            continue
        asked.deadline_ms = max(asked.deadline_ms, known.deadline_ms)
        if asked.first_refused_ms is None or known.first_refused_ms < asked.first_refused_ms:
            asked.first_refused_ms = known.first_refused_ms
        refused_at = known.batches.get((asked.epoch, asked.topic, asked.partition))
        asked.came_back |= refused_at == asked.base_sequence


def busy(question: Question, now_ms: int) -> Answer:
    """Refuse for a moment, as the state is too busy to answer: its client asks again."""
    decisions = [decision_of(question, asked, False, Reason.BUSY, now_ms) for asked in question.ids]
    for decision in decisions:
        decision.throttle_time_ms = BUSY_THROTTLE_MS
    if not decisions:
        decisions = [new_id_decision(question, Reason.BUSY, BUSY_THROTTLE_MS, None, enforced=True)]
    return Answer(True, tuple(decisions))


def failed_open(state: QuotaState, question: Question, now_ms: int) -> tuple[Answer, int]:
    """Admit what is asked about because nobody answers; return the answer, and how many ids could not be inserted."""
    failures = 0
    for passed in _ids_of(question):
        try:
            passed.insert_into(state, now_ms)
        except Exception:  # noqa: BLE001  (insert when possible)
            failures += 1
    if not question.ids:
        decision = new_id_decision(question, Reason.FAIL_OPEN, 0, None, enforced=False)
        decision.would_refuse = False
        return Answer(False, (decision,)), failures
    decisions = (decision_of(question, asked, True, Reason.FAIL_OPEN, now_ms) for asked in question.ids)
    return Answer(False, tuple(decisions)), failures


def _ids_of(question: Question) -> list[PassedId]:
    """Return what is to be remembered of a question that passes; an InitProducerId alone leaves nothing."""
    user, transactional = question.user, question.transactional
    if question.transactional_id is not None:
        return [PassedId(user, question.transactional_id, transactional, is_transactional_id=True)]
    return [PassedId(user, asked.producer_id, transactional) for asked in question.ids]
