"""Requests that may name a gateway topic, and answers that list topics. PURE."""

from __future__ import annotations

from pidgate.gateway.cluster.gateway_topics import add_refusals
from pidgate.gateway.proxy.apis.api import (
    WHOLE,
    Api,
    ApiContext,
    InFlightRequest,
    Request,
    Response,
    Step,
)
from pidgate.protocol.addresses import rewrite, rewriting
from pidgate.protocol.metadata import METADATA
from pidgate.protocol.work import Walk


class GuardedApi(Api):
    """Refused when it names a gateway topic."""

    def request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        if request.api_key in context.guarded:
            step = refused(context, request)
            if step is not None:
                return step
        return context.forward(request)


def refused(context: ApiContext, request: Request) -> Step | None:
    """Refuse a request that names a gateway topic; None: it names none."""
    named = context.gateway_topics.look(
        request.api_key, request.api_version, request.buf, request.start, request.end
    )
    if named is None:
        return None
    if named.instead is None:
        return context.refuse_gateway_topic(request.api_key, named.answer)
    context.count_gateway_topic(request.api_key)
    request.note = named.refusals
    return context.forward_instead(request, named.instead)


class TopicListApi(GuardedApi):
    """Gateway topics are cut out of its answer."""

    def __init__(self) -> None:
        super().__init__(WHOLE)

    def response(self, context: ApiContext, request: InFlightRequest, response: Response) -> bytes | None:
        buf, start, end = response.buf, response.start, response.end
        return context.gateway_topics.filter_response(request.api_key, request.api_version, buf, start, end)


class AddressesApi(GuardedApi):
    """Its answer shows addresses of brokers, which are rewritten."""

    def __init__(self) -> None:
        super().__init__(WHOLE)

    def response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        buf, start, end = response.buf, response.start, response.end
        return rewriting(request.api_key, request.api_version, buf, start, end, context.translate)


class MetadataApi(GuardedApi):
    """As AddressesApi and TopicListApi; a request that names gateway topics is forwarded without them."""

    def __init__(self) -> None:
        super().__init__(WHOLE)

    def response(self, context: ApiContext, request: InFlightRequest, response: Response) -> bytes | None:
        buf, start, end = response.buf, response.start, response.end
        version = request.api_version
        context.learn_topics(memoryview(buf)[start:end], version)
        if context.recorder is not None:
            context.recorder.metadata_passes(memoryview(buf)[start:end], version)
        answer = rewrite(METADATA, version, buf, start, end, context.translate)
        if isinstance(request.note, tuple):
            return add_refusals(answer, version, request.note)
        return context.gateway_topics.filter_response(METADATA, version, answer, 4, len(answer)) or answer
