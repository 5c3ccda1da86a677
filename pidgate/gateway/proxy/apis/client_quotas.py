"""DescribeClientQuotas and AlterClientQuotas for quotas kept by the gateway itself. PURE.

An AlterClientQuotas with the gateway's own keys is held until the broker has validated it and the change was
made. `ApiContext.alteration` tracks its steps, and each step that ends names the next one as an action.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.actions import AlterQuotas
from pidgate.gateway.proxy.apis.api import (
    HOLD,
    SIZE_PREFIX_BYTES,
    Api,
    ApiContext,
    InFlightRequest,
    Request,
    Step,
)
from pidgate.gateway.proxy.apis.responses import WHOLE, Response
from pidgate.gateway.quotas.kafka_api import QuotaExchange, described
from pidgate.protocol.client_quotas import read_user_filter
from pidgate.protocol.work import QUOTAS_FOR_BYTE, Walk


class DescribeQuotasApi(Api):
    """Add the gateway's quotas to the broker's answer."""

    passing = WHOLE
    introduces = False

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        context.account.spent += QUOTAS_FOR_BYTE * (request.end - request.start)
        request.note = read_user_filter(request.buf, request.head)
        return context.forward(request)

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        buf, start, end = response.buf, response.start, response.end
        return described(buf, start, end, request.api_version, request.note, context.admission.quotas)


class AlterQuotasApi(Api):
    """Forward a request without the gateway's own keys; hold any other until it is decided."""

    introduces = False

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        context.account.spent += QUOTAS_FOR_BYTE * (request.end - request.start)
        exchange = context.alteration
        if exchange is None:
            keeps_bytes = context.admission.quotas.bytes.at_gateway
            exchange = QuotaExchange.begin(
                request.buf, request.head, context.client.user, keeps_bytes=keeps_bytes
            )
            if exchange is None:
                return context.forward(request)
            context.alteration = exchange
            continue_alteration(context)
        if not exchange.is_over:
            return HOLD
        context.alteration = None
        return context.respond(exchange.answer())


class _AlterQuestion(Api):
    """The gateway's own request in place of the client's. Its answer does not go to the client."""

    passing = WHOLE

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | None:
        buf, start, end = response.buf, response.start, response.end
        exchange = request.note
        assert isinstance(exchange, QuotaExchange)
        exchange.answered(buf, start, end)
        continue_alteration(context)
        return b""


_QUESTION: Final = _AlterQuestion()


def continue_alteration(context: ApiContext) -> None:
    """Take the next step of `alteration`, after the broker's answer or after its changes were made."""
    exchange = context.alteration
    if exchange is None:
        return  # the client has gone
    frame = exchange.next_frame()
    if frame is not None:
        question = Request(frame, SIZE_PREFIX_BYTES, len(frame), _QUESTION)
        question.note = exchange
        context.forward_instead(question, frame)
    elif exchange.changes:
        context.actions.append(AlterQuotas(exchange))
