"""Learn the owners of delegation tokens from brokers' answers, which pass unchanged. PURE."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from pidgate.gateway.proxy.apis.api import ApiContext, InFlightRequest
from pidgate.gateway.proxy.apis.authentication import CredentialApi
from pidgate.gateway.proxy.apis.responses import WHOLE, Response
from pidgate.protocol.delegation_tokens import TokenOwner, created_token, described_tokens
from pidgate.protocol.work import Steps, Walk

_PORTION: Final = 20
"""Tokens learnt in one step."""


class CreateTokenApi(CredentialApi):
    """CreateDelegationToken: its answer shows the new token and its owner."""

    passing = WHOLE

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | None:
        token = created_token(response.buf, response.start, response.end, request.api_version)
        if token is not None:
            context.at.token_owners.learn_tokens([token])
        return None


class DescribeTokensApi(CredentialApi):
    """DescribeDelegationToken: its answer shows the tokens visible to the client."""

    passing = WHOLE

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        tokens = described_tokens(response.buf, response.start, response.end, request.api_version)
        return Walk(_described(context, tokens))


def _described(context: ApiContext, described: Generator[None, None, list[TokenOwner]]) -> Steps:
    tokens = yield from described
    for at in range(0, len(tokens), _PORTION):
        context.at.token_owners.learn_tokens(tokens[at : at + _PORTION])
        yield
    return None
