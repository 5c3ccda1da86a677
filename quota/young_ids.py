"""Ids that begin to use a partition: for a while, their first batch may wait in some process for its answer. PURE.

A request that waits in one worker for the state owner's answer is overtaken when its partition's leader moves: the
client sends what comes next through another worker. Where the batch that waits is the first of its partition, a broker
takes the later one for the first, and the one that waits can never follow. So the state owner notes who asked about a
first batch, and every answer names the ids that are young: their partitions are looked at one by one, by every worker
that asks about them, and no cache answers for them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from pidgate.quota.entities import User
from pidgate.quota.state import Answer, Question
from pidgate.quota.sticky import WATCH_MS

MOST_YOUNG: Final = 200_000
"""Of all users, about 30 MB; each was paid for. The one that was noted first is forgotten first."""


class YoungIds:
    """Table of the state owner: which worker asked when about an id's first batch of a partition."""

    def __init__(self) -> None:
        self._asked_ms: OrderedDict[tuple[User, int], dict[int, int]] = OrderedDict()

    def name(self, question: Question, answer: Answer, worker: int, now_ms: int) -> None:
        """Put into the answer which of the question's ids are young, those that begin with it included.

        A request that has passed already waits nowhere; a refused one is watched for its refusal.
        """
        if question.passed or answer.refused:
            return
        for asked in question.ids:
            if asked.begins_partition:
                self.note(question.user, asked.producer_id, worker, now_ms)
        if self._asked_ms:
            answer.young = tuple(
                asked.producer_id
                for asked in question.ids
                if (question.user, asked.producer_id) in self._asked_ms
            )

    def note(self, user: User, producer_id: int, worker: int, now_ms: int) -> None:
        """Note an id that begins to use a partition, or that a worker watches: this state owner may be a new one."""
        key = (user, producer_id)
        self._asked_ms.setdefault(key, {})[worker] = now_ms
        self._asked_ms.move_to_end(key)
        if len(self._asked_ms) > MOST_YOUNG:
            self._asked_ms.popitem(last=False)

    def worker_lost(self, worker: int) -> None:
        """Forget what this worker asked: nothing waits in it any more."""
        for key, workers in list(self._asked_ms.items()):
            if workers.pop(worker, None) is not None and not workers:
                del self._asked_ms[key]

    def sweep(self, now_ms: int) -> None:
        """Forget those noted WATCH_MS ago."""
        asked_ms = self._asked_ms
        while asked_ms and now_ms - max(next(iter(asked_ms.values())).values()) >= WATCH_MS:
            asked_ms.popitem(last=False)
