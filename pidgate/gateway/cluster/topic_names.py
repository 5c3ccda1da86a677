"""Topic names and topic ids that stand for the same topic, learnt from Metadata answers as they pass.

Produce v13 names a topic by id, older versions by name. A refusal must hold for both, so the quota learns which
belong together. A large answer takes milliseconds to walk: it is kept and walked a slice at a time, between
other turns of the event loop, and an answer that was walked before is not walked again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.cluster.seen_answers import Answer, SeenAnswers
from pidgate.gateway.logs import log_mistake
from pidgate.protocol import metadata
from pidgate.protocol.errors import KafkaProtocolError

SLICE_S: Final = 0.001
WAITING_LIMIT: Final = 64
"""Answers that wait to be walked; beyond that one is left out. The pair is learnt from a later one, and until
then the rule for a first sight above sequence 0 covers it."""
MOST_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Of answers behind the first, which may be as long as it is."""


class TopicNames:
    """Background walk of Metadata answers, which calls `learn(name, topic_id)` for each topic.

    Both in the form they have in a Produce batch: the id is a zero byte and its 16 bytes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, learn: Callable[[bytes, bytes], None]) -> None:
        self._loop = loop
        self._learn = learn
        self._waiting: deque[tuple[Iterator[tuple[str, bytes]], int]] = deque()
        """With the bytes of the answer that is walked."""
        self._waiting_bytes = 0
        self._seen = SeenAnswers()

    def offer(self, answer: Answer, version: int, hashed: int) -> None:
        """Take a Metadata answer with its hash_of; it is kept when there is something to learn."""
        if version < metadata.FIRST_WITH_TOPIC_IDS or not self._has_room(len(answer)):
            return
        if not self._seen.is_new(hashed):
            return
        if not self._waiting:
            self._loop.call_soon(self._walk)
        self._waiting.append((metadata.topic_ids(answer, 0, len(answer), version), len(answer)))
        self._waiting_bytes += len(answer)

    def _has_room(self, answer_bytes: int) -> bool:
        return not self._waiting or (
            len(self._waiting) < WAITING_LIMIT and self._waiting_bytes + answer_bytes <= MOST_WAITING_BYTES
        )

    def _walk(self) -> None:
        until = monotonic_s() + SLICE_S
        pairs, answer_bytes = self._waiting[0]
        is_over = True
        try:
            while monotonic_s() < until:  # after each topic: it may have ten thousand partitions
                name, topic_id = next(pairs)
                self._learn(name.encode(), b"\x00" + topic_id)
            is_over = False
        except (StopIteration, KafkaProtocolError):
            pass  # walked, or damaged: the client will say so to its own user
        except Exception:  # noqa: BLE001 - logged
            # It is over all the same, or no answer after this one would ever be walked.
            log_mistake("topic names", reason="a Metadata answer's topics could not be learnt")
        if is_over:
            self._waiting.popleft()
            self._waiting_bytes -= answer_bytes
        if self._waiting:
            self._loop.call_soon(self._walk)
