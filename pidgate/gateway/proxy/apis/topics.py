"""APIs whose answers list topics or hold broker addresses, also in error texts. PURE."""

from __future__ import annotations

from pidgate.gateway.cluster.gateway_topics import add_refusals
from pidgate.gateway.cluster.seen_answers import Answer, hash_of
from pidgate.gateway.proxy.apis.api import Api, ApiContext, InFlightRequest
from pidgate.gateway.proxy.apis.responses import WHOLE, Response
from pidgate.protocol.addresses import rewriting
from pidgate.protocol.error_texts import hide_hosts
from pidgate.protocol.metadata import METADATA, splicing
from pidgate.protocol.work import Steps, Walk


class TopicListApi(Api):
    """An API whose answer lists topics: gateway topics are removed from it."""

    passing = WHOLE

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        buf, start, end = response.buf, response.start, response.end
        return Walk(
            context.at.gateway_topics.filtering(request.api_key, request.api_version, buf, start, end)
        )


class AddressesApi(Api):
    """An API whose answer contains broker addresses: they are rewritten."""

    passing = WHOLE

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        buf, start, end = response.buf, response.start, response.end
        return rewriting(request.api_key, request.api_version, buf, start, end, context.at.translate)


class ErrorTextsApi(Api):
    """An API whose answer has error texts: brokers' hosts are removed from them."""

    passing = WHOLE

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | None:
        buf, start, end = response.buf, response.start, response.end
        return hide_hosts(request.api_key, request.api_version, buf, start, end, context.at.hosts())


class MetadataApi(Api):
    """Metadata: handled as AddressesApi and TopicListApi. Gateway topics are removed from requests too."""

    passing = WHOLE

    def handle_response(
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
