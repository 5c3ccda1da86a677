"""DescribeClientQuotas and AlterClientQuotas for quotas kept by the gateway itself. PURE.

An AlterClientQuotas with the gateway's own keys is held until the broker has validated it and the change was
made. `ApiContext.alteration` tracks its steps, and each step that ends names the next one as an action.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.actions import AlterQuotas, OwnQuestion, TellUser
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
from pidgate.protocol.client_quotas import GATEWAY, OWN, GatewayFilter, describe_refused, read_filter
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.work import QUOTAS_FOR_BYTE, Walk


class DescribeQuotasApi(Api):
    """Add the gateway's quotas to the broker's answer; answer a client's question about its own user here."""

    passing = WHOLE
    introduces = False

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        question = context.alteration
        if isinstance(question, OwnQuestion):
            return _answer_own(context, request, question)
        context.account.spent += QUOTAS_FOR_BYTE * (request.end - request.start)
        wanted = request.note = read_filter(request.buf, request.head)
        if not isinstance(wanted, GatewayFilter):
            return context.forward(request)
        if not wanted.is_own:
            return _respond(context, request, ErrorCode.INVALID_REQUEST, _OWN_ALONE)
        context.alteration = question = OwnQuestion()
        context.actions.append(TellUser(context.client.user, question))
        return HOLD

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        buf, start, end = response.buf, response.start, response.end
        return described(buf, start, end, request.api_version, request.note, context.admission.quotas)


_OWN_ALONE: Final = f"a gateway tells a client of its own user alone: {GATEWAY}={OWN}"


def _answer_own(context: ApiContext, request: Request, question: OwnQuestion) -> Step:
    if question.answer is None:
        return HOLD
    context.alteration = None
    if not question.answer:
        return _respond(context, request, ErrorCode.UNKNOWN_SERVER_ERROR, "the gateway's log has the cause")
    return _respond(context, request, ErrorCode.NONE, question.answer)


def _respond(context: ApiContext, request: Request, error_code: int, message: str) -> Step:
    correlation_id = request.correlation_id.to_bytes(4, "big", signed=True)
    return context.respond(describe_refused(correlation_id, 0, request.api_version, error_code, message))


class AlterQuotasApi(Api):
    """Forward a request without the gateway's own keys; hold any other until it is decided."""

    introduces = False

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        context.account.spent += QUOTAS_FOR_BYTE * (request.end - request.start)
        exchange = context.alteration
        if not isinstance(exchange, QuotaExchange):
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
    if not isinstance(exchange, QuotaExchange):
        return  # the client has gone
    frame = exchange.next_frame()
    if frame is not None:
        question = Request(frame, SIZE_PREFIX_BYTES, len(frame), _QUESTION)
        question.note = exchange
        context.forward_instead(question, frame)
    elif exchange.changes:
        context.actions.append(AlterQuotas(exchange))
