"""What was refused, as the holder of the state knows it when several processes own the connections.

Each process has its own exact table (sticky.py), which says what may not pass. This one only keeps a decision the
same through whichever process an id comes back: its throttle goes on, and the batch that was refused is recognised.
Losing an entry costs the id its place in the queue, never a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pidgate.quota.entities import User
from pidgate.quota.state import Answer, AskedId, Question
from pidgate.quota.sticky import WATCH_MS
from pidgate.quota.verdicts import Decision, Reason

MOST_REFUSED = 200_000
"""Ids of all users; the longest unseen is forgotten first."""


@dataclass(slots=True)
class _Refused:
    first_ms: int
    latest_ms: int
    deadline_ms: int = 0
    batches: dict[tuple[int, bytes, int], int] = field(default_factory=dict)


class SharedRefusals:
    """In the order of the latest refusal, so that the front is what ends first."""

    def __init__(self) -> None:
        self._refused: dict[tuple[User, int], _Refused] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def decide(
        self, decide: Callable[[Question, int], Answer], question: Question, now_ms: int
    ) -> tuple[Answer, list[int]]:
        """The state's answer to the completed question, and the ids it refuses: other processes have to know."""
        self._complete(question, now_ms)
        answer = decide(question, now_ms)
        return answer, self._note_answer(question, answer, now_ms)

    def _complete(self, question: Question, now_ms: int) -> None:
        """Add to the question what the process that asks may not know."""
        for asked in question.ids:
            known = self._refused.get((question.user, asked.producer_id))
            if known is not None and now_ms - known.latest_ms < WATCH_MS:
                _complete(asked, known)

    def _note_answer(self, question: Question, answer: Answer, now_ms: int) -> list[int]:
        if not answer.refused:
            for asked in question.ids:
                self._refused.pop((question.user, asked.producer_id), None)
            return []
        decided = {decision.producer_id: decision for decision in answer.decisions}
        for asked in question.ids:
            self._note(question.user, asked, decided.get(asked.producer_id), now_ms)
        return [asked.producer_id for asked in question.ids]

    def _note(self, user: User, asked: AskedId, decision: Decision | None, now_ms: int) -> None:
        key = (user, asked.producer_id)
        record = self._refused.pop(key, None) or _Refused(now_ms, now_ms)
        self._refused[key] = record
        record.latest_ms = now_ms
        record.batches[asked.epoch, asked.topic, asked.partition] = asked.base_sequence
        # Coming back too early keeps the deadline, as in Admission.
        if decision is not None and decision.reason not in (Reason.ESTABLISHED, Reason.DEADLINE):
            record.deadline_ms = max(record.deadline_ms, now_ms + decision.throttle_time_ms)
        if len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    def sweep(self, now_ms: int) -> None:
        """Forgets what was refused five minutes ago."""
        while self._refused:
            key = next(iter(self._refused))
            if now_ms - self._refused[key].latest_ms < WATCH_MS:
                return
            del self._refused[key]


def _complete(asked: AskedId, known: _Refused) -> None:
    asked.deadline_ms = max(asked.deadline_ms, known.deadline_ms)
    if asked.first_refused_ms is None or known.first_ms < asked.first_refused_ms:
        asked.first_refused_ms = known.first_ms
    refused_at = known.batches.get((asked.epoch, asked.topic, asked.partition))
    asked.came_back |= refused_at == asked.base_sequence
