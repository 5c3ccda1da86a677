"""Fetch and ShareFetch: answers stream through, and count against a byte rate when they begin. PURE.

The request's max_bytes is lowered to the rate's allowance for one whole window, as Kafka does. Above the rate
the channel is muted (KIP-13, KIP-219). The next Fetch is forwarded once the head of the previous answer shows
its size; otherwise a whole pipeline would be in flight before its first answer is counted.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.apis.api import SIZE_PREFIX_BYTES, Api, ApiContext, InFlightRequest, Request, Step
from pidgate.gateway.proxy.apis.responses import COUNTED, ENDPOINTS_LAST, UNREAD, Passing, Response
from pidgate.protocol.throttle import fetch_throttle_in, lowered_fetch, raise_to
from pidgate.quota.byte_quota import ClientSensors


class FetchApi(Api):
    """Fetch in versions before its answers end in addresses (KIP-951): answers pass unread."""

    def __init__(self, passing: Passing, counted: Api) -> None:
        super().__init__(passing)
        self.waits_for_size = True
        self._counted = counted

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        step = context.refuse_if_guarded(request)
        if step is not None:
            return step
        if context.byte_quota.is_on:
            sensors = context.sensors(now_ms)[1]
            if sensors is not None:
                request.api, request.note = self._counted, sensors
                if sensors.throttles:
                    context.awaits_size = True
                    lowered = lowered_fetch(request.buf, request.head, sensors.window_bytes)
                    if lowered is not None:
                        return context.forward_instead(request, lowered)
        return context.forward(request)


class CountedFetch(Api):
    """A Fetch in flight of a client with a byte rate."""

    def __init__(self, passing: Passing) -> None:
        super().__init__(COUNTED)
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
                raise_to(buf, at, context.mute_left_ms(now_ms))
        return self._passing


FETCH_API: Final = FetchApi(UNREAD, CountedFetch(UNREAD))
FETCH_WITH_ENDPOINTS: Final = FetchApi(ENDPOINTS_LAST, CountedFetch(ENDPOINTS_LAST))
