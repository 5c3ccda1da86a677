"""One log line a second for refusals, of ids by user, and for closed connections, by cause: a storm of them must not
become a storm of lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from gateway.logs import Event, logger
from protocol.versions import SPOKEN
from quota.admission import Reason, Refuse
from quota.questions import NO_PRODUCER_ID

log = logger()

QUIET_MS: Final = 1_000
USERS_KEPT: Final = 10_000
"""Users whose last line is remembered; beyond that everybody may speak again at once."""

BEHIND_ANOTHER: Final = frozenset({Reason.STICKY, Reason.DEADLINE})
"""Consequences of a refusal that has been logged: counted, never a line of their own."""


class RefusalLog:
    """Says who was refused and why, and how many refusals were left out since the last line."""

    def __init__(self) -> None:
        self._quiet_until_ms: dict[str | None, int] = {}
        self._suppressed: dict[str | None, int] = {}

    def note(
        self, refusals: Iterable[Refuse], describe: Callable[[], Mapping[str, object]], now_ms: int
    ) -> None:
        """Log the refusals of one connection, or count them; `describe` says whose it is."""
        for refusal in refusals:
            user = refusal.user
            if refusal.reason in BEHIND_ANOTHER or now_ms < self._quiet_until_ms.get(user, 0):
                self._suppressed[user] = self._suppressed.get(user, 0) + 1
                continue
            if len(self._quiet_until_ms) >= USERS_KEPT:
                self._quiet_until_ms.clear()
                self._suppressed.clear()
            self._quiet_until_ms[user] = now_ms + QUIET_MS
            if refusal.producer_id == NO_PRODUCER_ID:
                self._note_init(refusal, describe)
                continue
            log.warning(
                Event.PRODUCER_ID_REFUSED,
                producer_id=refusal.producer_id,
                reason=refusal.reason,
                throttle_time_ms=refusal.throttle_time_ms,
                suppressed_count=self._suppressed.pop(user, 0),
                **describe(),
            )

    def _note_init(self, refusal: Refuse, describe: Callable[[], Mapping[str, object]]) -> None:
        log.warning(
            Event.INIT_PRODUCER_ID_REFUSED,
            reason=refusal.reason,
            throttle_time_ms=refusal.throttle_time_ms,
            suppressed_count=self._suppressed.pop(refusal.user, 0),
            **describe(),
        )


class OwnTopicLog:
    """One line a second about requests that named a topic of the gateway's own."""

    def __init__(self) -> None:
        self._quiet_until_ms = 0
        self._suppressed = 0

    def note(
        self, api_keys: Sequence[int], describe: Callable[[], Mapping[str, object]], now_ms: int
    ) -> None:
        """Log the first of one connection's requests, or count them."""
        self._suppressed += len(api_keys)
        if now_ms < self._quiet_until_ms:
            return
        self._quiet_until_ms = now_ms + QUIET_MS
        log.warning(
            Event.OWN_TOPIC_REFUSED,
            api=SPOKEN[api_keys[0]].name,
            suppressed_count=self._suppressed - 1,
            **describe(),
        )
        self._suppressed = 0


class CloseLog:
    """One line a second for each cause for which the gateway closes connections; the counters say how many."""

    def __init__(self) -> None:
        self._quiet_until_ms: dict[str, int] = {}
        self._suppressed: Counter[str] = Counter()

    def note(
        self, cause: str, reason: str, describe: Callable[[], Mapping[str, object]], now_ms: int
    ) -> None:
        """Log that one connection was closed, or count it."""
        if now_ms < self._quiet_until_ms.get(cause, now_ms):
            self._suppressed[cause] += 1
            return
        self._quiet_until_ms[cause] = now_ms + QUIET_MS
        suppressed_count = self._suppressed.pop(cause, 0)
        log.warning(
            Event.CONNECTION_CLOSED,
            cause=cause,
            reason=reason,
            suppressed_count=suppressed_count,
            **describe(),
        )
