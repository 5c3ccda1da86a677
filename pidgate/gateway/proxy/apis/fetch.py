"""Fetch and ShareFetch: answers stream through, and count against a byte rate when they begin. PURE.

The request's max_bytes is lowered to the rate's allowance for one whole window, as Kafka does. Above the rate
the channel is muted (KIP-13, KIP-219). The next Fetch is forwarded once the head of the previous answer shows
its size; otherwise a whole pipeline would be in flight before its first answer is counted.

While the account is in debt, a whole Fetch (without a session, or the first of one) is answered empty, with the
throttle, as Kafka does (FetchContext.getThrottledResponse). One within a session, and a ShareFetch, is held until
its turn or for HELD_AT_MOST_MS: the broker would not know of an answer of ours, and the session's epoch would be
wrong. After that a Fetch is answered INVALID_FETCH_SESSION_EPOCH, so that its client begins a session with a
whole Fetch. A ShareFetch brings acknowledgements: it passes, lowered to one batch.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.actions import WakeAt
from pidgate.gateway.proxy.apis.api import (
    HOLD,
    SIZE_PREFIX_BYTES,
    Api,
    ApiContext,
    InFlightRequest,
    Request,
    Step,
)
from pidgate.gateway.proxy.apis.responses import COUNTED, ENDPOINTS_LAST, UNREAD, Passing, Response
from pidgate.gateway.proxy.waits import Why
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.throttle import empty_fetch_answer, fetch_throttle_in, lowered_fetch, raise_to
from pidgate.quota.byte_quota import ClientSensors, Kind

HELD_AT_MOST_MS: Final = 20_000
"""Below the 30 s after which clients give up a request."""


class FetchApi(Api):
    """Fetch in versions before its answers end in addresses (KIP-951): answers pass unread."""

    waits_for_size = True
    paid_by: Kind | None = Kind.FETCH
    is_repeatable = True

    def __init__(self, passing: Passing) -> None:
        self.passing = passing
        self._counted = CountedFetch(passing)

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        step = context.refuse_if_guarded(request)
        if step is not None:
            return step
        sensors = context.sensors(now_ms)[1] if context.byte_quota.is_on else None
        if sensors is None:
            return context.forward(request)
        return self._forward_counted(context, request, sensors, sensors.window_bytes)

    def handle_in_debt(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        step = context.refuse_if_guarded(request)
        if step is not None:
            return step
        sensors = context.sensors(now_ms)[1]
        assert sensors is not None, "somebody is in debt"
        if request.note is None:
            request.note = now_ms + HELD_AT_MOST_MS
        assert isinstance(request.note, int)
        is_late = now_ms >= request.note
        error = ErrorCode.INVALID_FETCH_SESSION_EPOCH if is_late else ErrorCode.NONE
        told_ms = sensors.told_ms(now_ms)
        answer = empty_fetch_answer(request.buf, request.head, context.told_ms(told_ms), error)
        if answer is not None:
            context.counters.requests[request.api_key] += 1
            context.mute_for(context.mute_for_ms(told_ms), Why.FETCHED_BYTES, now_ms)
            return context.respond(answer)
        if is_late:
            return self._forward_counted(context, request, sensors, 1)
        context.actions.append(WakeAt(request.note))
        return HOLD

    def _forward_counted(
        self, context: ApiContext, request: Request, sensors: ClientSensors, most_bytes: int
    ) -> Step:
        """Forward a Fetch of at most so many bytes, or of one batch, whose answer counts."""
        request.api, request.note = self._counted, sensors
        if sensors.throttles:
            context.awaits_size = True
            lowered = lowered_fetch(request.buf, request.head, most_bytes)
            if lowered is not None:
                return context.forward_instead(request, lowered)
        return context.forward(request)


class CountedFetch(Api):
    """A Fetch in flight of a client with a byte rate."""

    passing = COUNTED

    def __init__(self, passing: Passing) -> None:
        self._passing = passing

    def begin_response(self, context: ApiContext, request: InFlightRequest, response: Response) -> Passing:
        sensors = request.note
        assert isinstance(sensors, ClientSensors)
        context.awaits_size = False
        buf, start, now_ms = response.buf, response.start, response.now_ms
        size = int.from_bytes(buf[start - SIZE_PREFIX_BYTES : start], "big")
        if context.record_bytes(sensors, size, now_ms):
            at = fetch_throttle_in(buf, start, response.end, request.api_key, request.api_version)
            if at is not None:
                raise_to(buf, at, context.mute_left_to_tell_ms(now_ms))
        return self._passing


FETCH_API: Final = FetchApi(UNREAD)
FETCH_WITH_ENDPOINTS: Final = FetchApi(ENDPOINTS_LAST)
