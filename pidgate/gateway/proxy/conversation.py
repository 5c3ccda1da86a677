"""One client connection: order of answers, and the requests that wait. PURE.

Whole requests arrive in order through `request`. It returns whether the caller forwards the frame (FORWARD),
forwards another one (INSTEAD), does nothing because the request was answered here or is held (TAKEN), or
closes the connection (CLOSE). The request's API decides (apis/table.py). The broker's answers are matched by
position: `expect` returns the request of the next answer, and `answered` is called when that answer has
passed. The gateway's own answers leave through `out` in the order of their requests, behind everything still
in flight.

A channel is muted until `muted_until_ms` (KIP-219). Unlike in Kafka, several requests of a connection are
under way at the same time, so throttles may overlap and the latest deadline applies. During a mute frames are
held in order. A Produce that would be refused anyway is answered at once; otherwise each request of a
pipeline of five would cost its own mute. After the mute `release` continues with the held requests.

While a SASL request is in flight, all requests except ApiVersions and SASL are held: a client that does not
wait for its authentication could otherwise charge ids and bytes to ANONYMOUS. On a listener with
authentication nothing else passes before the first login, and nothing is judged as ANONYMOUS. With a byte
rate a Fetch waits for the size of the previous answer (`awaits_size`).

This module must not know sockets, tasks or the clock: time is an argument, and `muted_until_ms` is the
caller's next deadline.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.apis.api import (
    CLOSE,
    FORWARD,
    HOLD,
    INSTEAD,
    TAKEN,
    ApiContext,
    InFlightRequest,
    Request,
    Step,
)
from pidgate.gateway.proxy.apis.authentication import identify
from pidgate.gateway.proxy.apis.passing_produce import may_pass
from pidgate.gateway.proxy.apis.produce import PRODUCE_API
from pidgate.gateway.proxy.apis.responses import Buffer
from pidgate.gateway.proxy.apis.table import APIS, NOT_OFFERED
from pidgate.gateway.proxy.connection_state import (
    AUTHENTICATING,
    INTAKE,
    MUTED,
    OPEN,
    UNAUTHENTICATED,
    Intake,
    IntakeEvent,
)
from pidgate.gateway.proxy.in_flight_requests import InFlightRequests
from pidgate.names import bounded
from pidgate.protocol.produce import PRODUCE
from pidgate.protocol.versions import SPOKEN
from pidgate.protocol.work import ANSWERED_BYTES_FOR_ONE, JUDGED_PER_TURN, MOST_FRAMES_PER_TURN, READ_FOR
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota
from pidgate.quota.decisions import Client
from pidgate.quota.entities import User

HELD_LIMIT_BYTES: Final = 1024 * 1024
"""Read-ahead behind a mute: enough to notice a disconnect and to answer a pipeline of five at once. The frame
that exceeds it is still held whole; then reading pauses until the mute ends."""

HELD_OVERHEAD_BYTES: Final = 256
"""Memory of a held request in addition to its frame, which may be as short as 14 bytes."""


class Conversation(ApiContext):
    """State of one client connection, from both sides."""

    __slots__ = ("_intake", "held", "held_bytes", "out", "unanswered")

    def __init__(
        self,
        admission: Admission,
        client: Client,
        counters: Counters | None = None,
        gateway_topics: GatewayTopics | None = None,
        byte_quota: ByteQuota | None = None,
    ) -> None:
        super().__init__(admission, client, counters, gateway_topics, byte_quota)
        self.unanswered = InFlightRequests()
        self.out = self.unanswered.out
        """The gateway's own framed answers whose turn has come, to be sent and cleared."""
        self.held: list[Request] = []
        """Requests that wait, in order of arrival."""
        self.held_bytes = 0
        self._intake: Intake = OPEN

    # ---- from the client -------------------------------------------------------------------------------

    def request(self, buf: Buffer, start: int, end: int, now_ms: int) -> Step:
        """Process the next whole request, buf[start:end]. Its size prefix lies before `start`.

        Raises MalformedFrame when the client breaks the protocol, UnsupportedVersion for a version that was
        not offered.
        """
        if self.recorder is not None:
            self.recorder.requests += 1
        if self._intake is OPEN and self._repeats(buf, start, end, now_ms):
            return FORWARD
        self.judged += READ_FOR
        request = Request(buf, start, end, NOT_OFFERED)
        request.api = api = APIS.get(request.api_key << 16 | request.api_version & 0xFFFF, NOT_OFFERED)
        intake = self._intake
        if intake is not OPEN:
            intake = self.intake(now_ms)
        if intake is OPEN or (
            not api.needs_identity and (intake is AUTHENTICATING or intake is UNAUTHENTICATED)
        ):
            step = self._next_in_line(request, now_ms)
        elif intake is MUTED:
            step = api.while_muted(self, request, now_ms)
        elif intake is UNAUTHENTICATED:
            step = self._before_login(request)
        else:
            step = HOLD
        return self._hold(request, now_ms) if step is HOLD else step

    def may_pass(self, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
        """Return whether a request with this beginning may be forwarded while it arrives
        (passing_produce.py).
        """
        return self.intake(now_ms) is OPEN and may_pass(self, beginning, request_bytes, now_ms)

    def release(self, now_ms: int) -> tuple[list[Buffer], bool]:
        """Continue with held requests for one turn (protocol/work.py); call again while `held` can continue.

        Returns (frames to forward, in order; whether to close now).
        """
        forward: list[Buffer] = []
        held, done = self.held, 0
        if not held or self.awaits_alteration:
            return forward, False
        most_judged = self.judged + JUDGED_PER_TURN
        try:
            for request in held[:MOST_FRAMES_PER_TURN]:
                frame, step = request.buf, self._released(request, now_ms)
                if step is HOLD:
                    break
                if step is CLOSE:
                    return forward, True
                if step is FORWARD:
                    forward.append(frame)
                elif step is INSTEAD:
                    forward.append(self.instead)
                done += 1
                self.held_bytes -= len(frame) + HELD_OVERHEAD_BYTES
                if self.judged >= most_judged:
                    break
            return forward, False
        finally:
            self._took(done)

    def _took(self, count: int) -> None:
        """Remove the first `count` held requests."""
        del self.held[:count]
        if not self.held:
            self._nothing_held()

    def _released(self, request: Request, now_ms: int) -> Step:
        """Decide about the first held request. HOLD: it stays."""
        self.judged += READ_FOR
        if request.api.needs_identity:
            if self.unanswered.sasl_in_flight:
                return HOLD
            if self.login_missing:
                return self._before_login(request)
        if now_ms < self.muted_until_ms:
            return request.api.while_muted(self, request, now_ms)
        return self._next_in_line(request, now_ms)

    def require_login(self, authentication: Authentication) -> None:
        """Require a login, if the listener or its brokers do. Call before the first request."""
        self.authentication = authentication
        self.login_missing = authentication.required is not False
        if self.login_missing:
            self._enter(IntakeEvent.LOGIN_MISSING)

    def certified(self, user: User, *, is_login: bool) -> None:
        """Set the user from the client's certificate, before its first request. A SASL login overrides it."""
        self.client.identify(user)
        self.named_by_login = is_login
        if self.recorder is not None:
            self.recorder.certified = True
        if is_login:
            self._login_needless()
        self.identified()

    def authentication_learnt(self) -> bool:
        """Apply the brokers' authentication, now known. Returns whether held requests waited for it."""
        waited = self.login_missing and bool(self.held)
        if self.login_missing and not self.authentication.required:
            self._login_needless()
        return waited

    def owner_found(self) -> bool:
        """Apply the owner of the connection's token, now looked up.

        Returns whether held requests waited for it.
        """
        identity = self.sasl.identity
        if identity is None:
            return False
        waited, self.awaits_owner = self.awaits_owner, False
        identify(self, identity)
        if waited:
            self._login_needless()
        return waited and bool(self.held)

    def _login_needless(self) -> None:
        self.login_missing = False
        self._enter(IntakeEvent.LOGIN_NEEDLESS)
        self.login_over()

    def _before_login(self, request: Request) -> Step:
        """Decide about a request that needs a login while the login is missing."""
        if self.awaits_owner or self.authentication.required is None:
            return HOLD
        return self.close(
            "unauthenticated",
            f"{SPOKEN[request.api_key].name} before a login, which the brokers require (if they do not, write "
            "authentication: none for this listener)",
        )

    def drop_held(self) -> None:
        """Drop the held requests of a disconnected client."""
        self.alteration = None
        self.held.clear()
        self.held_bytes = 0
        self._nothing_held()

    def intake(self, now_ms: int) -> Intake:
        """Return how the next request is treated.

        Checks whether the mute has ended, as no event reports that.
        """
        if now_ms >= self.muted_until_ms:
            self._enter(IntakeEvent.MUTE_ENDED)
        return self._intake

    @property
    def awaits_alteration(self) -> bool:
        """Return whether the first held request waits for the end of `alteration`."""
        return self.alteration is not None and not self.alteration.is_over

    @property
    def awaits_answer(self) -> bool:
        """Return whether held requests wait for an answer rather than a deadline."""
        return bool(self.held) and (
            self.unanswered.sasl_in_flight > 0
            or self.awaits_owner
            or (self.login_missing and self.authentication.required is None)
            or self.awaits_alteration
            or (self.awaits_size and self.held[0].api.waits_for_size)
        )

    @property
    def wants_no_more(self) -> bool:
        """Return whether the read-ahead is full: reading pauses until the mute ends."""
        return self.held_bytes >= HELD_LIMIT_BYTES

    # ---- from the broker -------------------------------------------------------------------------------

    def expect(self, correlation_id: int) -> InFlightRequest:
        """Return the request of the broker's next answer. Raises MalformedFrame: see InFlightRequests."""
        return self.unanswered.expect(correlation_id)

    def next_alone(self) -> InFlightRequest | None:
        """Return the request of the broker's next answer, unless an own answer waits directly behind it."""
        return self.unanswered.next_alone()

    def answered(self) -> None:
        """Remove the request whose answer has passed; the gateway's own answers behind it are next."""
        self.unanswered.answered()
        if self._intake is not OPEN and not self.unanswered.sasl_in_flight:
            self._enter(IntakeEvent.SASL_ANSWERED)
            if self.login_missing:
                self._enter(IntakeEvent.LOGIN_MISSING)

    @property
    def is_quiet(self) -> bool:
        """Return whether nothing is in flight, so that the connection can be closed without losing an answer."""
        return not len(self.unanswered) and self.alteration is None

    @property
    def in_flight_count(self) -> int:
        """Answers that the client waits for, the broker's and the gateway's own."""
        return len(self.unanswered)

    # ---- from the handlers of APIs ---------------------------------------------------------------------

    def in_flight(self, request: InFlightRequest) -> None:
        if self.unanswered.add(request):
            self.wants_attention = True
        if request.api.authenticates:
            self._enter(IntakeEvent.SASL_SENT)

    def respond(self, answer: bytes) -> Step:
        self.wants_attention = True
        self.judged += len(answer) // ANSWERED_BYTES_FOR_ONE
        self.unanswered.respond(answer)
        return TAKEN

    def mute(self, until_ms: int) -> None:
        self.muted_until_ms = max(self.muted_until_ms, until_ms)
        self._enter(IntakeEvent.MUTE)

    # ---- inside ----------------------------------------------------------------------------------------

    def _repeats(self, frame: Buffer, start: int, end: int, now_ms: int) -> bool:
        """Handle a Produce like the previous one, of a known id, on a connection where nothing waits.

        The hot path. Has the full effect of `_next_in_line`, or none.
        """
        if self.byte_quota.is_on:
            return False
        repeated, recorder = self.repeated, self.recorder
        if not repeated.recognise_request(frame, start, end) or not self.admission.knows(
            self.client,
            repeated.producer_id,
            repeated.epoch,
            repeated.topics,
            repeated.partitions,
            repeated.transactional,
            now_ms,
        ):
            return False
        if recorder is not None:
            if not recorder.is_introduced:
                return False
            recorder.repeated(repeated, end - start, now_ms)
        self.counters.requests[PRODUCE] += 1
        if repeated.acks:
            producer_id = repeated.producer_id
            if self.unanswered.add(
                InFlightRequest(PRODUCE_API, PRODUCE, repeated.version, repeated.correlation_id, producer_id)
            ):
                self.wants_attention = True
        return True

    def _next_in_line(self, request: Request, now_ms: int) -> Step:
        api = request.api
        if self.awaits_size and api.waits_for_size:
            return HOLD
        if api is not NOT_OFFERED:
            if self.alteration is None:
                self.counters.requests[request.api_key] += 1
            if not self.client.client_id:
                self.client.client_id = bounded(request.head.client_id or "")
            recorder = self.recorder
            if recorder is not None and api.introduces and not recorder.is_introduced:
                recorder.introduced()
        return api.request(self, request, now_ms)

    def _hold(self, request: Request, now_ms: int) -> Step:
        self.wants_attention = True
        request.api.held(self, request, now_ms)
        self.held_bytes += request.keep() + HELD_OVERHEAD_BYTES
        self.held.append(request)
        self._enter(IntakeEvent.HOLD)
        return TAKEN

    def _enter(self, event: IntakeEvent) -> None:
        self._intake = INTAKE.get((self._intake, event), self._intake)

    def _nothing_held(self) -> None:
        self._enter(IntakeEvent.RELEASED)
        if self.unanswered.sasl_in_flight:
            self._enter(IntakeEvent.SASL_SENT)
        elif self.login_missing:
            self._enter(IntakeEvent.LOGIN_MISSING)
        if self.muted_until_ms:  # the mute may have ended: the next request checks
            self._enter(IntakeEvent.MUTE)
