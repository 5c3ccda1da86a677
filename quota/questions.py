"""What the quota's state is asked about the ids of a request, and what it answers.

Plain values: a question holds all that is asked about, an answer all that was decided, so that the one who asks
and the one who answers may be two processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pidgate.quota.entities import User
from pidgate.quota.verdicts import Bound, Decision, Reason

NO_PRODUCER_ID = -1
"""Kafka's word for none."""


@dataclass(slots=True)
class AskedId:
    """One producer id of a request, and what the asking process knows of it.

    `came_back`: the same batch was refused before; `first_sight_above_0`: on some partition nothing is
    known of the id and it arrives above sequence 0; `deadline_ms`, `first_refused_ms`: of its latest
    throttle and its first refusal.
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
    """The ids of one request of one connection; without any: whether a broker may give its user a new one."""

    user: User
    address: str
    client_id: str
    transactional: bool
    request_partitions: int
    ids: Sequence[AskedId]


@dataclass(slots=True)
class Answer:
    """Nothing refused: the request may go. Otherwise `decisions` holds the refusals, and no token was
    spent.

    Of a question without ids it holds one decision, about NO_PRODUCER_ID, when there is something to say.
    """

    refused: bool
    decisions: tuple[Decision, ...]
    bound: Bound = Bound.USER


def new_id_question(user: User, address: str, client_id: str) -> Question:
    """InitProducerId without a transactional id: may a broker give this user a new id now?"""
    return Question(user, address, client_id, transactional=False, request_partitions=0, ids=())


def new_id_decision(
    question: Question, reason: Reason, throttle_time_ms: int, tokens: int | None, *, enforced: bool
) -> Decision:
    """A new id would be one too many: refused, or only counted."""
    return Decision(
        question.user,
        NO_PRODUCER_ID,
        epoch=-1,
        transactional=False,
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


@dataclass(slots=True)
class GaveUp:
    """An id left the queue without having been admitted."""

    user: User
    producer_id: int
    waited_ms: int
    attempts: int


def decision_of(question: Question, asked: AskedId, admitted: bool, reason: Reason, now_ms: int) -> Decision:
    """What was decided about one id of a question; tokens and throttle are filled in by whoever knows them."""
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
