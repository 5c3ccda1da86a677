"""Whether the topic can be used, told once per change: the log is for people, retries are not.

Also the end of a session with aiokafka, bounded: what it waits for may never come.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from pidgate.gateway.logs import Event, logger
from pidgate.gateway.topics.causes import Cause, Doing

log = logger()

SAY_AGAIN_S: Final = 60.0
FIRST_RETRY_S: Final = 0.2
LONGEST_RETRY_S: Final = 5.0


class Availability:
    """What is known of one direction (writing, reading), and how long to wait before the next attempt."""

    def __init__(
        self,
        topic: str,
        doing: Doing,
        unavailable: Event = Event.EVENTS_TOPIC_UNAVAILABLE,
        available: Event = Event.EVENTS_TOPIC_AVAILABLE,
    ) -> None:
        self._topic = topic
        self._unavailable = unavailable
        self._available = available
        self._doing = doing
        self._failed_at_s: float | None = None
        self._said: Cause | None = None
        self._said_at_s = 0.0
        self._retry_s = FIRST_RETRY_S

    @property
    def last_failure(self) -> str:
        """The cause in words; empty while all is well."""
        return self._said.cause if self._said is not None else ""

    def failed(self, cause: Cause, *, buffered: int = 0, dropped: int = 0) -> float:
        """Seconds to wait before trying again. Logs a cause when it is new, and once a minute."""
        now_s = time.monotonic()
        retry_s, self._retry_s = self._retry_s, min(self._retry_s * 2, LONGEST_RETRY_S)
        if self._failed_at_s is None:
            self._failed_at_s = now_s
        is_known = self._said is not None and self._said.remedy == cause.remedy
        self._said = cause
        if not is_known or now_s - self._said_at_s >= SAY_AGAIN_S:
            self._said_at_s = now_s
            log.warning(
                self._unavailable,
                topic=self._topic,
                doing=self._doing,
                cause=cause.cause,
                remedy=cause.remedy,
                retry_ms=round(retry_s * 1000),
                buffered=buffered,
                dropped=dropped,
            )
        return retry_s

    def works(self, *, buffered: int = 0, dropped: int = 0) -> None:
        """Something was written or read."""
        if self._failed_at_s is None:
            return
        waited_ms = round((time.monotonic() - self._failed_at_s) * 1000)
        self._failed_at_s, self._said, self._retry_s = None, None, FIRST_RETRY_S
        log.info(
            self._available,
            topic=self._topic,
            doing=self._doing,
            waited_ms=waited_ms,
            buffered=buffered,
            dropped=dropped,
        )


async def stopped(client: Any, within_s: float) -> None:
    """Stop an aiokafka producer or consumer, waiting no longer than that."""
    stopping = asyncio.ensure_future(client.stop())
    try:
        done, _ = await asyncio.wait([stopping], timeout=within_s)
    except asyncio.CancelledError:
        stopping.cancel()
        raise
    if not done:
        stopping.cancel()
    elif not stopping.cancelled():
        # Looked at, so that nothing complains later: a client that failed to stop has stopped.
        stopping.exception()
