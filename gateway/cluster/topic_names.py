"""Topic names and topic ids that stand for the same topic, learnt from Metadata answers as they pass.

Produce v13 names a topic by id, older versions by name. A refusal must hold for both, so the quota learns which
belong together. A large answer takes milliseconds to walk: it is copied and walked a slice at a time, between
other turns of the event loop, and an answer that was walked before is not walked again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from pidgate.gateway.logs import log_mistake
from pidgate.gateway.seen_answers import SeenAnswers
from pidgate.protocol import metadata
from pidgate.protocol.errors import KafkaProtocolError

SLICE_S: Final = 0.001
TOPICS_PER_LOOK: Final = 16
WAITING_LIMIT: Final = 64
"""Answers that wait to be walked; beyond that one is left out. The pair is learnt from a later one, and until
then the rule for a first sight above sequence 0 covers it."""


class TopicNames:
    """Walks Metadata answers in the background and calls `learn(name, topic_id)` for each topic.

    Both in the form they have in a Produce batch: the id is a zero byte and its 16 bytes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, learn: Callable[[bytes, bytes], None]) -> None:
        self._loop = loop
        self._learn = learn
        self._waiting: deque[Iterator[tuple[str, bytes]]] = deque()
        self._seen = SeenAnswers()

    def offer(self, answer: memoryview, version: int) -> None:
        """Take a Metadata answer (without its size prefix); it is copied when there is something to learn."""
        if version < metadata.FIRST_WITH_TOPIC_IDS or len(self._waiting) >= WAITING_LIMIT:
            return
        if not self._seen.is_new(answer):
            return
        copy = bytes(answer)
        if not self._waiting:
            self._loop.call_soon(self._walk)
        self._waiting.append(metadata.topic_ids(copy, 0, len(copy), version))

    def _walk(self) -> None:
        until = time.monotonic() + SLICE_S
        pairs = self._waiting[0]
        try:
            while time.monotonic() < until:
                for _ in range(TOPICS_PER_LOOK):
                    name, topic_id = next(pairs)
                    self._learn(name.encode(), b"\x00" + topic_id)
        except (StopIteration, KafkaProtocolError):
            self._waiting.popleft()  # walked, or damaged: the client will say so to its own user
        except Exception:  # noqa: BLE001 - logged
            self._waiting.popleft()  # or no answer after this one would ever be walked
            log_mistake("topic names", reason="a Metadata answer's topics could not be learnt")
        if self._waiting:
            self._loop.call_soon(self._walk)
