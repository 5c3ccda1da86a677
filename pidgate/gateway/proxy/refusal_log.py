"""Log lines about refused ids by user and about closed connections by cause, limited to one a second each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pidgate.gateway.logs import Event, LogLimit, logger
from pidgate.gateway.proxy.actions import LogClient
from pidgate.protocol.versions import SPOKEN
from pidgate.quota.decisions import KEEPS_ORDER, NO_PRODUCER_ID, Reason, Refuse

log = logger()

DAY_MS: Final = 86_400_000

BEHIND_ANOTHER: Final = frozenset({Reason.STICKY, Reason.DEADLINE})
"""Consequences of a refusal already logged: counted, never logged themselves."""


class RefusalLog:
    """Logs one line a second per user about refusals, with the number suppressed since the last line.

    A refusal that keeps batches in order has lines of its own, which are no warnings.
    """

    def __init__(self) -> None:
        self._lines = LogLimit()
        self._in_order = LogLimit()

    def note(self, refusal: Refuse, describe: Callable[[], Mapping[str, object]], now_ms: int) -> None:
        """Log a refusal, or count it. `describe` returns the connection's log fields."""
        lines = self._in_order if refusal.reason in KEEPS_ORDER else self._lines
        if refusal.reason in BEHIND_ANOTHER:
            lines.leave_out(refusal.user)
        elif (left_out := lines.take(refusal.user, now_ms)) is not None:
            self._log(refusal, left_out, describe())

    def _log(self, refusal: Refuse, left_out: int, client: Mapping[str, object]) -> None:
        about: dict[str, object] = {
            "reason": refusal.reason,
            "throttle_time_ms": refusal.throttle_time_ms,
            "suppressed_count": left_out,
            **client,
        }
        if refusal.producer_id == NO_PRODUCER_ID:
            log.warning(Event.INIT_PRODUCER_ID_REFUSED, **about)
        elif refusal.reason in KEEPS_ORDER:
            log.info(Event.BATCH_KEPT_IN_ORDER, producer_id=refusal.producer_id, **about)
        else:
            log.warning(Event.PRODUCER_ID_REFUSED, producer_id=refusal.producer_id, **about)


class ClientLog:
    """Logs the faults of client libraries (client_faults.py), each version of a library once a day."""

    def __init__(self) -> None:
        self._lines = LogLimit(DAY_MS)

    def note(self, client: LogClient, describe: Callable[[], Mapping[str, object]], now_ms: int) -> None:
        """Log a client, unless its version was logged today. Any version may be claimed."""
        left_out = self._lines.take(f"{client.name} {client.version}", now_ms)
        if left_out is None:
            return
        for fault in client.faults:
            log.warning(
                Event.CLIENT_WITH_FAULT,
                software=client.name,
                version=client.version,
                fault=fault.key,
                breaks=fault.breaks,
                remedy=fault.remedy,
                suppressed_count=left_out,
                **describe(),
            )


class GatewayTopicLog:
    """Logs one line a second about requests that named a gateway topic."""

    def __init__(self) -> None:
        self._lines = LogLimit()

    def note(self, api_key: int, describe: Callable[[], Mapping[str, object]], now_ms: int) -> None:
        """Log a request of this API, or count it."""
        left_out = self._lines.take(None, now_ms)
        if left_out is not None:
            log.warning(
                Event.GATEWAY_TOPIC_REFUSED,
                api=SPOKEN[api_key].name,
                suppressed_count=left_out,
                **describe(),
            )


class CloseLog:
    """Logs one line a second per cause about connections closed by the gateway; counters have the totals."""

    def __init__(self) -> None:
        self._lines = LogLimit()

    def note(
        self, cause: str, reason: str, describe: Callable[[], Mapping[str, object]], now_ms: int
    ) -> None:
        left_out = self._lines.take(cause, now_ms)
        if left_out is not None:
            log.warning(
                Event.CONNECTION_CLOSED,
                cause=cause,
                reason=reason,
                suppressed_count=left_out,
                **describe(),
            )
