"""Questions about producer ids, their answers, and the interface of the state that answers them. PURE.

Must not know how anything is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pidgate.quota.entities import User
from pidgate.quota.settings import Quotas
from pidgate.quota.users import GaveUp, UserStatus, UserTable
from pidgate.quota.verdicts import Bound, Decision, Reason

NO_PRODUCER_ID = -1
"""RecordBatch.NO_PRODUCER_ID."""


@dataclass(slots=True)
class AskedId:
    """One producer id of a request, and what the table of refused batches knows of it.

    `came_back`: the same batch was refused before; `first_sight_above_0`: it arrives above sequence 0 on a partition
    where nothing is known of the id; `deadline_ms`: end of its latest throttle; `first_refused_ms`: time of
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
    """

    user: User
    address: str
    client_id: str
    transactional: bool
    request_partitions: int
    ids: Sequence[AskedId]
    transactional_id: int | None = None


@dataclass(slots=True)
class Answer:
    """Not refused: forward the request. Refused: `decisions` holds the refusals, and no token was spent.

    For a question without ids: at most one decision, about NO_PRODUCER_ID.
    """

    refused: bool
    decisions: tuple[Decision, ...]
    bound: Bound = Bound.USER


class QuotaState(Protocol):
    """Interface of the state that decides. `table` is None while the users are being restored."""

    @property
    def table(self) -> UserTable | None: ...

    def decide(self, question: Question, now_ms: int) -> Answer: ...

    def insert_uncharged(
        self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Admit the id for that use without spending a token."""

    def insert_transactional_id(self, user: User, hashed: int, now_ms: int) -> None:
        """Remember a transactional id, by 64 bits of its hash, without spending a token."""

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """Admit the new id of a transaction uncharged; return False when the old one is not remembered as such."""

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
