"""ApiVersions and SASL: offered versions and the client's identity. PURE."""

from __future__ import annotations

from pidgate.gateway.proxy.actions import IDENTIFIED, LOGIN_OVER, FindOwner
from pidgate.gateway.proxy.apis.api import HOLD, Api, ApiContext, InFlightRequest, Request, Step
from pidgate.gateway.proxy.apis.responses import WHOLE, Response
from pidgate.names import bounded
from pidgate.protocol import messages
from pidgate.protocol.credential_refusals import refuse_credentials
from pidgate.protocol.errors import ErrorCode, MalformedFrame, UnsupportedVersion
from pidgate.protocol.logins import MECHANISMS
from pidgate.protocol.sasl import Identity
from pidgate.quota.entities import User, is_unidentified, unidentified


class ApiVersionsApi(Api):
    """Offered versions: the broker's range, cut to the versions that the gateway can read."""

    passing = WHOLE
    needs_identity = False
    introduces = False

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        if context.login.asked is not None:
            return self._answer_here(context, request)
        software = messages.client_software(request.buf, request.head)
        name, version = software or ("", "")
        context.note_software(bounded(name), bounded(version))
        # Another broker may be substituted for the node in NodeId.
        is_substituted = False
        if request.api_version >= messages.FIRST_WITH_MEANT_NODE and messages.names_node(
            request.buf, request.head
        ):
            context.means_node = context.at.node_is_known()
            is_substituted = not context.means_node
        login = context.login
        if login.is_answered_here:
            if login.versions_told is not None and not messages.question_error(login.versions_told[1]):
                raise MalformedFrame("a second ApiVersions before the login, for which brokers close, too")
            return context.ask_broker(
                messages.api_versions_question(request.buf, request.head, passes_target=not is_substituted)
            )
        if is_substituted:
            return context.forward_instead(request, messages.without_meant_node(request.buf, request.head))
        return context.forward(request)

    def _answer_here(self, context: ApiContext, request: Request) -> Step:
        told = context.take_broker_answer()
        if told is None:
            return HOLD
        context.login.versions_told = told
        _, answer = told
        return context.respond(
            messages.api_versions_from(answer, request.correlation_id, request.api_version)
        )

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | None:
        buf, start, end = response.buf, response.start, response.end
        return messages.cap_api_versions(buf, start, end, request.api_version)


class NotOffered(Api):
    """A version that was never offered. Two APIs have an error answer that every client understands."""

    needs_identity = False

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Answer it, or end the connection. Raises UnsupportedVersion."""
        api_key, api_version, correlation_id = request.api_key, request.api_version, request.correlation_id
        if api_key == messages.API_VERSIONS:
            return context.respond(messages.too_new_api_versions(correlation_id))
        if api_key == messages.SASL_HANDSHAKE and api_version == 0:
            # v0 continues with raw tokens without Kafka headers, in which frame boundaries cannot be found
            # again.
            return context.respond(messages.sasl_handshake_refused(correlation_id, api_version))
        raise UnsupportedVersion(api_key, api_version)


class CredentialApi(Api):
    """An API about the connection's login, or about credentials of the user that is logged in at the broker.

    Where the gateway logged in, that user is the gateway's own or the one in the client's certificate: the
    client could rename itself, or take a token or a password of the gateway's user.
    """

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        if context.login.is_gateways:
            return context.respond(refuse_credentials(request.buf, request.head))
        return self.handle_own(context, request, now_ms)

    def handle_own(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Decide about a request of a client that logs in by itself."""
        return super().handle_request(context, request, now_ms)


class SaslHandshakeApi(CredentialApi):
    """SaslHandshake: names the mechanism. The broker's answer shows whether it is accepted."""

    passing = WHOLE
    needs_identity = False
    introduces = False

    def handle_own(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        login, mechanism = context.login, messages.sasl_mechanism(request.buf, request.head)
        if login.is_answered_here:
            return self._answer_here(context, request, mechanism)
        login.sasl.begin_exchange(mechanism)
        login.sasl_in_flight += 1
        return context.forward(request)

    def _answer_here(self, context: ApiContext, request: Request, mechanism: str) -> Step:
        if context.login.mechanism_told:
            raise MalformedFrame("a second SaslHandshake before the login, for which brokers close, too")
        if context.login.asked is None:
            return context.ask_broker(MECHANISMS)
        told = context.take_broker_answer()
        if told is None:
            return HOLD
        answer, error_code = messages.sasl_handshake_from(told[1], request.correlation_id, mechanism)
        if not error_code:
            context.login.sasl.begin_exchange(mechanism)
            context.login.mechanism_told = mechanism
        step = context.respond(answer)
        if error_code != ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return step
        offered = ", ".join(messages.sasl_handshake_answer(told[1], 0, len(told[1]), 1).mechanisms)
        return context.close(
            "unauthenticated",
            f"the brokers do not offer its mechanism, {bounded(mechanism)}: set its sasl.mechanism to one of {offered}",
        )

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | None:
        context.login.sasl_in_flight -= 1
        return None


class SaslAuthenticateApi(CredentialApi):
    """SaslAuthenticate: carries the user's name. The broker's answer shows whether the login succeeded."""

    passing = WHOLE
    needs_identity = False
    introduces = False

    def handle_own(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        context.login.sasl.record_client_token(messages.sasl_token(request.buf, request.head))
        context.login.is_at_broker = True
        context.login.sasl_in_flight += 1
        return context.forward(request)

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | None:
        login = context.login
        login.sasl_in_flight -= 1
        buf, start, end = response.buf, response.start, response.end
        error_code, token = messages.sasl_answer(buf, start, end, request.api_version)
        # A token that arrives during the owner lookup counts as a first login too: no user has been set yet.
        is_first = login.sasl.identity is None or login.awaits_owner
        identity = login.sasl.record_broker_answer(error_code, token)
        if identity is None:
            return None
        owner_is_unknown = _owner_is_unknown(context, identity.token_id)
        if owner_is_unknown:
            context.actions.append(FindOwner(identity.token_id))
        login.awaits_owner = owner_is_unknown and is_first
        if login.awaits_owner:
            login.is_missing = True
        else:
            finish_login(context)
            identify(context, identity)
        return None


def _owner_is_unknown(context: ApiContext, token_id: str) -> bool:
    """Return whether the login was by a delegation token whose owner has to be looked up."""
    return token_id != "" and context.at.token_owners.owner_of(token_id) is None


def finish_login(context: ApiContext) -> None:
    """End the wait for a login, if there is one."""
    if context.login.is_missing:
        context.login.is_missing = False
        context.login.asked = None
        context.actions.append(LOGIN_OVER)


def identify(context: ApiContext, identity: Identity) -> None:
    """Set the connection's user after a login accepted by the broker."""
    before = context.client.user
    context.client.identify(_user(context, identity))
    context.login.named_user = True
    if context.client.user != before:
        context.actions.append(IDENTIFIED)
        if context.recorder is not None:
            context.recorder.identified()


def _user(context: ApiContext, identity: Identity) -> User:
    """Return the user of a connection after a login accepted by the broker.

    After re-authentication (KIP-368) the principal must be the same, or the broker closes the connection. If
    the new name cannot be read, the connection therefore keeps its previous principal: a client cannot switch
    quotas by the form of its messages. ANONYMOUS, and the name in a certificate that is no login, are not
    kept.
    """
    user = identity.user
    if user is None and identity.token_id:
        user = context.at.token_owners.owner_of(identity.token_id)
    if user is not None:
        return user
    before = context.client.user
    is_kept = context.login.named_user and not is_unidentified(before)
    return before if is_kept else unidentified(identity.mechanism)
