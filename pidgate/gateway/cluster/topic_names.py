"""Topic names and their topic ids, learnt from Metadata responses in passing.

Produce v13 identifies a topic by id, older versions by name. A refusal must hold for both, so the quota
learns the pairs. Walking a large response takes milliseconds: it is queued and walked in slices between turns
of the event loop. A repeated response is skipped.
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
"""Limit for queued responses; more are dropped.

The pair is learnt from a later response, and until then the rule for first sights above sequence 0 applies.
"""
MOST_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Limit for queued responses after the first, which may be this long itself."""


class TopicNames:
    """Background walk of Metadata responses; calls `learn(name, topic_id)` for each topic.

    Both are in the form of a Produce batch: the id is a zero byte and its 16 bytes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, learn: Callable[[bytes, bytes], None]) -> None:
        self._loop = loop
        self._learn = learn
        self._waiting: deque[tuple[Iterator[tuple[str, bytes]], int]] = deque()
        """Each with the size of its response."""
        self._waiting_bytes = 0
        self._seen = SeenAnswers()

    def queue_answer(self, answer: Answer, version: int, hashed: int) -> None:
        """Queue a Metadata response with its hash_of if it may contain new pairs."""
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
            while monotonic_s() < until:  # after each topic: one may have ten thousand partitions
                name, topic_id = next(pairs)
                self._learn(name.encode(), b"\x00" + topic_id)
            is_over = False
        except (StopIteration, KafkaProtocolError):
            pass  # finished, or malformed: the client reports it to its user
        except Exception:  # noqa: BLE001 - logged
            # Continue regardless, or later responses would never be walked.
            log_mistake("topic names", reason="a Metadata answer's topics could not be learnt")
        if is_over:
            self._waiting.popleft()
            self._waiting_bytes -= answer_bytes
        if self._waiting:
            self._loop.call_soon(self._walk)
