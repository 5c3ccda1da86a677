"""Requests that may name a gateway topic, and answers that list topics. PURE."""

from __future__ import annotations

from pidgate.gateway.cluster.gateway_topics import add_refusals
from pidgate.gateway.cluster.seen_answers import Answer, hash_of
from pidgate.gateway.proxy.apis.api import Api, ApiContext, InFlightRequest, Request, Step
from pidgate.gateway.proxy.apis.responses import WHOLE, Response
from pidgate.protocol.addresses import rewriting
from pidgate.protocol.metadata import METADATA, splicing
from pidgate.protocol.work import NAMED_FOR_BYTE, Steps, Walk


class GuardedApi(Api):
    """An API whose requests are refused when they name a gateway topic."""

    def request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        if request.api_key in context.guarded:
            step = refused(context, request)
            if step is not None:
                return step
        return context.forward(request)


def refused(context: ApiContext, request: Request) -> Step | None:
    """Refuse a request that names a gateway topic. None: it names none."""
    topics, buf = context.at.gateway_topics, request.buf
    if not topics.may_name(buf, request.start, request.end):
        return None
    context.judged += NAMED_FOR_BYTE * (request.end - request.start)
    named = topics.check_request(buf, request.head)
    if named is None:
        return None
    if named.instead is None:
        return context.refuse_gateway_topic(request.api_key, named.answer)
    context.count_gateway_topic(request.api_key)
    request.note = named.refusals
    return context.forward_instead(request, named.instead)


class _WholeApi(GuardedApi):
    """An API whose answers are buffered whole."""

    def __init__(self) -> None:
        super().__init__(WHOLE)


class TopicListApi(_WholeApi):
    """An API whose answer lists topics: gateway topics are removed from it."""

    def response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        buf, start, end = response.buf, response.start, response.end
        return Walk(
            context.at.gateway_topics.filtering(request.api_key, request.api_version, buf, start, end)
        )


class AddressesApi(_WholeApi):
    """An API whose answer contains broker addresses: they are rewritten."""

    def response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        buf, start, end = response.buf, response.start, response.end
        return rewriting(request.api_key, request.api_version, buf, start, end, context.at.translate)


class MetadataApi(_WholeApi):
    """Metadata: handled as AddressesApi and TopicListApi. Gateway topics are removed from requests too."""

    def response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        view = memoryview(response.buf)[response.start : response.end]
        return Walk(_metadata(context, request, view if response.may_be_kept else bytes(view)))


def _metadata(context: ApiContext, request: InFlightRequest, answer: Answer) -> Steps:
    version = request.api_version
    hashed = yield from hash_of(answer)
    rewritten = yield from splicing(answer, 0, len(answer), version, context.at.translate)
    if isinstance(request.note, tuple):
        rewritten = add_refusals(rewritten, version, request.note)
    else:
        left = yield from context.at.gateway_topics.filtering(METADATA, version, rewritten, 4, len(rewritten))
        rewritten = rewritten if left is None else left
    context.at.learn_topics(answer, version, hashed)
    if context.recorder is not None:
        context.recorder.metadata_passes(answer, version, hashed)
    return rewritten
