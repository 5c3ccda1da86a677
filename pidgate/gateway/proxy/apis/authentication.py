"""ApiVersions and SASL: the versions that are offered, and the identity of the client. PURE."""

from __future__ import annotations

from pidgate.gateway.proxy.apis.api import Api, ApiContext, InFlightRequest, Request, Step
from pidgate.gateway.proxy.apis.responses import WHOLE, Response
from pidgate.names import bounded
from pidgate.protocol import messages
from pidgate.protocol.errors import UnsupportedVersion
from pidgate.protocol.sasl import Identity
from pidgate.quota.entities import User, is_unidentified, unidentified


class ApiVersionsApi(Api):
    """The versions that are offered: the broker's range, cut to what the gateway can read."""

    def __init__(self) -> None:
        super().__init__(WHOLE)
        self.needs_identity = False
        self.introduces = False

    def request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        software = messages.client_software(request.buf, request.head)
        if context.recorder is not None and software is not None:
            name, version = software
            context.recorder.software = bounded(name), bounded(version)
        if (
            request.api_version >= messages.FIRST_WITH_MEANT_NODE
            and messages.names_node(request.buf, request.head)
            and not context.may_mean_node()
        ):
            # Another broker may stand in for the one that is meant.
            frame = messages.without_meant_node(request.buf, request.head)
            return context.forward_instead(request, frame)
        return context.forward(request)

    def response(self, context: ApiContext, request: InFlightRequest, response: Response) -> bytes | None:
        buf, start, end = response.buf, response.start, response.end
        return messages.cap_api_versions(buf, start, end, request.api_version)


class NotOffered(Api):
    """A version that was never offered. Two of them have an answer that every client understands."""

    def __init__(self) -> None:
        super().__init__()
        self.needs_identity = False

    def request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Answer it, or end the connection. Raises UnsupportedVersion."""
        api_key, api_version, correlation_id = request.api_key, request.api_version, request.correlation_id
        if api_key == messages.API_VERSIONS:
            return context.respond(messages.too_new_api_versions(correlation_id))
        if api_key == messages.SASL_HANDSHAKE and api_version == 0:
            # v0 goes on in raw tokens without Kafka's headers, in which nobody could find the frames again.
            return context.respond(messages.sasl_handshake_refused(correlation_id, api_version))
        raise UnsupportedVersion(api_key, api_version)


class SaslHandshakeApi(Api):
    """SaslHandshake: names the mechanism; the broker's answers say whether it is accepted."""

    def __init__(self) -> None:
        super().__init__(WHOLE)
        self.needs_identity = False
        self.introduces = False
        self.authenticates = True

    def request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        context.sasl.begin_exchange(messages.sasl_mechanism(request.buf, request.head))
        return context.forward(request)


class SaslAuthenticateApi(SaslHandshakeApi):
    """SaslAuthenticate: brings the user's name; the broker's answer says whether it is true."""

    def request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        context.sasl.record_client_token(messages.sasl_token(request.buf, request.head))
        return context.forward(request)

    def response(self, context: ApiContext, request: InFlightRequest, response: Response) -> bytes | None:
        buf, start, end = response.buf, response.start, response.end
        error_code, token = messages.sasl_answer(buf, start, end, request.api_version)
        # One that comes while the owner is asked for is a first one, too: nobody has been named yet.
        is_first = context.sasl.identity is None or context.awaits_owner
        identity = context.sasl.record_broker_answer(error_code, token)
        if identity is not None:
            was_missing, waits = context.login_missing, _owner_is_sought(context, identity) and is_first
            context.login_missing = context.awaits_owner = waits
            if not waits:
                if was_missing:
                    context.login_over()
                identify(context, identity)
        return None


def _owner_is_sought(context: ApiContext, identity: Identity) -> bool:
    """Have a broker asked for the owner of its token, if nobody knows it. Returns whether one is asked."""
    token_id, find_owner = identity.token_id, context.find_owner
    if not token_id or find_owner is None or context.token_owners.owner_of(token_id) is not None:
        return False
    return find_owner(token_id)


def identify(context: ApiContext, identity: Identity) -> None:
    """Take the connection for the user of a login that a broker has let in."""
    before = context.session.user
    context.session.identify(_user(context, identity))
    context.named_by_login = True
    if context.session.user != before:
        context.identified()
        if context.recorder is not None:
            context.recorder.identified()


def _user(context: ApiContext, identity: Identity) -> User:
    """Return the user of a connection that a broker has let in.

    Who authenticates anew is who he was, or the broker closes (KIP-368): one whose name cannot be read this time keeps
    it, and nobody changes his quota by the form of his messages. ANONYMOUS, and a certificate that is no login, are no
    name to keep.
    """
    user = identity.user
    if user is None and identity.token_id:
        user = context.token_owners.owner_of(identity.token_id)
    if user is not None:
        return user
    before = context.session.user
    is_kept = context.named_by_login and not is_unidentified(before)
    return before if is_kept else unidentified(identity.mechanism)
