"""The state machine of one client connection: which request is next, and which waits. PURE.

`Session.receive` gets each whole request in order and returns actions (actions.py); the empty list, as on the
hot path, means: forward the frame unchanged. The request's API decides (apis/table.py). The broker's answers
are matched by position, and `answer_passed` is called when one has passed. The gateway's own answers leave in
the order of their requests, behind everything still in flight.

A channel is muted until a deadline (KIP-219). During a mute frames are held in order. A Produce that would be
refused anyway is answered at once; otherwise each request of a pipeline of five would cost its own mute.
After the mute `wake` continues with the held requests.

While a SASL request is in flight, all requests except ApiVersions and SASL are held: a client that does not
wait for its authentication could otherwise charge ids and bytes to ANONYMOUS. On a listener with
authentication nothing else passes before the first login, and nothing is judged as ANONYMOUS. With a byte
rate a Fetch waits for the size of the previous answer (`ApiContext.awaits_size`).

This module must not know sockets, tasks or the clock: time is an argument. A request that breaks the protocol
is an action too (End). Only a defect of the gateway raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import Final

from pidgate.gateway.proxy.actions import (
    IDENTIFIED,
    PASS_FRAME,
    WAITING,
    Action,
    ToBroker,
    ToClient,
    WaitForAccount,
    WakeAt,
)
from pidgate.gateway.proxy.apis.api import (
    CLOSE,
    FORWARD,
    HOLD,
    ApiContext,
    InFlightRequest,
    Request,
    Step,
    Surroundings,
)
from pidgate.gateway.proxy.apis.authentication import finish_login, identify
from pidgate.gateway.proxy.apis.client_quotas import continue_alteration
from pidgate.gateway.proxy.apis.passing_produce import count_passing, has_passed, may_pass
from pidgate.gateway.proxy.apis.produce import count_bytes, has_no_answer
from pidgate.gateway.proxy.apis.responses import Buffer
from pidgate.gateway.proxy.apis.table import APIS, NOT_OFFERED
from pidgate.gateway.quotas.administration import Kept
from pidgate.gateway.quotas.kafka_api import QuotaExchange
from pidgate.names import bounded
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.messages import API_VERSIONS
from pidgate.protocol.produce import PRODUCE
from pidgate.protocol.versions import SPOKEN
from pidgate.protocol.work import READ_FOR, REPEATED_FOR
from pidgate.quota.byte_quota import ByteBucket, Kind
from pidgate.quota.decisions import Client
from pidgate.quota.entities import User

HELD_OVERHEAD_BYTES: Final = 256
"""Memory of a held request in addition to its frame, which may be as short as 14 bytes."""

NOTHING_HELD: Final[list[Request]] = []
"""Most connections never hold a request. Never written to."""

CHANGE_FAILED: Final = "the gateway could not change its quotas; its log says why"


class Session:
    """One client connection. `context` is its state as seen by the handlers of APIs."""

    __slots__ = ("context", "held", "held_bytes")

    def __init__(self, at: Surroundings, client: Client) -> None:
        self.context = ApiContext(at, client)
        self.held = NOTHING_HELD
        """Requests that wait, in order of arrival."""
        self.held_bytes = 0

    # ---- requests --------------------------------------------------------------------------------------

    def receive(self, buf: Buffer, start: int, end: int, now_ms: int) -> list[Action]:
        """Process the next whole request, buf[start:end]. Its size prefix lies before `start`.

        Returns the actions in order; none: forward the frame unchanged. Do not change the list.
        """
        context = self.context
        if context.recorder is not None:
            context.recorder.requests += 1
        if self.is_open(now_ms) and self._repeats(buf, start, end, now_ms):
            context.streak += 1
            step = FORWARD
        else:
            step = self._receive(buf, start, end, now_ms)
        actions = context.actions
        if step is FORWARD:
            if not actions:
                return actions
            actions.insert(0, PASS_FRAME)
        assert actions, "every other step has an action"
        return context.take_actions()

    def is_open(self, now_ms: int) -> bool:
        """Return whether nothing waits, and nothing has to."""
        context = self.context
        return (
            not self.held
            and now_ms >= context.muted_until_ms
            and not context.login.is_missing
            and not context.login.sasl_in_flight
        )

    def may_stream(self, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
        """Return whether a request with this beginning may be forwarded while it arrives
        (passing_produce.py).
        """
        return self.is_open(now_ms) and may_pass(self.context, beginning, request_bytes, now_ms)

    def count_streamed(self, nbytes: int, now_ms: int) -> None:
        """Count the next bytes of a request that is forwarded while it arrives."""
        count_passing(self.context, nbytes, now_ms)

    def has_streamed(self, request_bytes: int, now_ms: int) -> list[Action]:
        """Record the request that was forwarded while it arrived, after its last byte."""
        has_passed(self.context, request_bytes, now_ms)
        return self.context.take_actions()

    def wake(self, now_ms: int) -> list[Action]:
        """Continue with held requests for one turn (turns.py), and return the actions."""
        context, held, done = self.context, self.held, 0
        account = context.account
        try:
            for request in [] if self.awaits_alteration else held:
                frame = request.buf
                context.account.spent += READ_FOR
                step = self._decide_or_end(request, now_ms)
                if step is HOLD:
                    break
                done += 1
                self.held_bytes -= len(frame) + HELD_OVERHEAD_BYTES
                if step is FORWARD:
                    context.actions.append(ToBroker(frame))
                elif step is CLOSE:
                    break
                if account.is_over:
                    break
        finally:
            del held[:done]
            if done:
                context.counters.held_times.observe((now_ms - context.held_since_ms) / 1_000)
        if now_ms < context.muted_until_ms or (held and not self.awaits_answer and not self.awaits_account):
            context.actions.append(WakeAt(max(now_ms, context.muted_until_ms)))
        return context.take_actions()

    def follow_quotas(self, now_ms: int) -> list[Action]:
        """End the wait of a client whose quotas are no longer those under which it began. `wake` decides anew."""
        context = self.context
        if context.are_quotas_changed:
            context.muted_until_ms = min(context.muted_until_ms, now_ms)
            context.actions.append(WakeAt(now_ms))
        return context.take_actions()

    def drop_held(self) -> None:
        """Drop the held requests of a disconnected client."""
        awaited, self.context.awaited_account = self.context.awaited_account, None
        self._leave_account(awaited)
        self.context.alteration = None
        self.held = NOTHING_HELD
        self.held_bytes = 0

    @property
    def awaits_alteration(self) -> bool:
        """Return whether the first held request waits for the end of its exchange about quotas."""
        alteration = self.context.alteration
        return alteration is not None and not alteration.is_over

    @property
    def awaits_answer(self) -> bool:
        """Return whether held requests wait for an answer rather than a deadline."""
        context = self.context
        login = context.login
        return bool(self.held) and (
            login.sasl_in_flight > 0
            or login.awaits_owner
            or login.awaits_broker
            or (login.is_missing and context.at.authentication.required is None)
            or self.awaits_alteration
            or (context.awaits_size and self.held[0].api.waits_for_size)
        )

    @property
    def awaits_account(self) -> bool:
        """Return whether the first held request waits for a byte account (byte_waits.py)."""
        return bool(self.held) and self.context.awaited_account is not None

    @property
    def holds_unanswerable(self) -> bool:
        """Return whether a held request has no answer: its client may have gone because it counts as sent."""
        return any(has_no_answer(request) for request in self.held)

    # ---- the login -------------------------------------------------------------------------------------

    def certified(self, user: User, *, is_login: bool) -> list[Action]:
        """Set the user from the client's certificate, before its first request. A SASL login overrides it."""
        context = self.context
        context.client.identify(user)
        context.login.named_user = is_login
        if context.recorder is not None:
            context.recorder.certified = True
        if is_login:
            finish_login(context)
        context.actions.append(IDENTIFIED)
        return context.take_actions()

    def authentication_learnt(self) -> list[Action]:
        """Apply the brokers' authentication, now known. `wake` continues with the requests that waited."""
        if not self.context.at.authentication.required:
            finish_login(self.context)
        return self.context.take_actions()

    def broker_answered(self, answer: bytes) -> list[Action]:
        """Take the broker's answer that the first held request waits for. `wake` continues."""
        if self.context.login.asked is not None:
            self.context.login.found = answer
        return self.context.take_actions()

    def owner_found(self) -> list[Action]:
        """Apply the owner of the client's token, looked up with or without success. `wake` continues."""
        context = self.context
        identity = context.login.sasl.identity
        if identity is not None:
            waited, context.login.awaits_owner = context.login.awaits_owner, False
            identify(context, identity)
            if waited:
                finish_login(context)
        return context.take_actions()

    # ---- changes of quotas -----------------------------------------------------------------------------

    def quotas_altered(
        self, exchange: QuotaExchange, problems: Sequence[str | None] | None, kept: Kept | None
    ) -> list[Action]:
        """Continue an AlterClientQuotas whose changes were checked or made. `wake` answers it in the end.

        `problems` None: the outcome is unknown.
        """
        if problems is None:
            exchange.not_made(CHANGE_FAILED)
        else:
            exchange.changed(problems, kept)
        if self.context.alteration is exchange:
            continue_alteration(self.context)
        return self.context.take_actions()

    # ---- answers ---------------------------------------------------------------------------------------

    def answer_passed(self) -> list[Action]:
        """Remove the request whose answer has passed, and return what follows it."""
        context = self.context
        for answer in context.in_flight.remove_answered():
            context.actions.append(ToClient(answer))
        return context.take_actions()

    @property
    def awaits_answers(self) -> bool:
        """Return whether an answer is outstanding that a connection waits for before it ends."""
        return self.context.alteration is not None or self.context.in_flight.has_prompt_answers

    @property
    def is_quiet(self) -> bool:
        """Return whether nothing is in flight, so that the connection can be closed without losing an answer."""
        context = self.context
        return not len(context.in_flight) and context.alteration is None and not context.login.awaits_broker

    # ---- inside ----------------------------------------------------------------------------------------

    def _repeats(self, frame: Buffer, start: int, end: int, now_ms: int) -> bool:
        """Handle a Produce like the previous one, of a known id, on a connection where nothing waits.

        The hot path. Has the full effect of `_decide`, or none.
        """
        context = self.context
        repeated, recorder = context.repeated, context.recorder
        if not repeated.recognise_request(frame, start, end) or not context.knows_repeated(now_ms):
            return False
        if context.account_in_debt(Kind.PRODUCE, now_ms) is not None:
            return False
        if recorder is not None:
            recorder.repeated(repeated, end - start, now_ms)
        context.counters.requests[PRODUCE] += 1
        context.account.spent += REPEATED_FOR + repeated.batches
        api = count_bytes(context, end - start, now_ms)
        if repeated.acks:
            producer_id = repeated.producer_id
            context.forward(
                InFlightRequest(api, PRODUCE, repeated.version, repeated.correlation_id, producer_id)
            )
        return True

    def _receive(self, buf: Buffer, start: int, end: int, now_ms: int) -> Step:
        context = self.context
        context.account.spent += READ_FOR
        try:
            request = Request(buf, start, end, NOT_OFFERED)
        except KafkaProtocolError as error:
            return self._end(error)
        request.api = APIS.get(request.api_key << 16 | request.api_version & 0xFFFF, NOT_OFFERED)
        step = HOLD if self.held else self._decide_or_end(request, now_ms)
        if step is HOLD:
            self._hold(request, now_ms)
        context.streak = context.streak + 1 if step is FORWARD and request.api.is_repeatable else 0
        return step

    def _decide_or_end(self, request: Request, now_ms: int) -> Step:
        context = self.context
        awaited, context.awaited_account = context.awaited_account, None
        try:
            return self._decide(request, now_ms)
        except KafkaProtocolError as error:
            return self._end(error)
        finally:
            self._leave_account(awaited)

    def _end(self, error: KafkaProtocolError) -> Step:
        self.context.counters.frames_malformed += 1
        return self.context.close("protocol", str(error))

    def _decide(self, request: Request, now_ms: int) -> Step:
        """Decide about the first request that waits, or one that arrives where none waits.

        Raises KafkaProtocolError.
        """
        context, api = self.context, request.api
        if api.needs_identity:
            if context.login.sasl_in_flight:
                return HOLD
            if context.login.is_missing:
                return self._decide_before_login(request)
        if now_ms < context.muted_until_ms:
            return api.handle_while_muted(context, request, now_ms)
        if context.awaits_size and api.waits_for_size:
            return HOLD
        if api is not NOT_OFFERED and not context.client.client_id:
            context.client.client_id = intern(bounded(request.head.client_id or ""))
            if context.faults is None and request.api_key != API_VERSIONS:
                context.note_software("", "")
        if api.paid_by is not None:
            account = context.account_in_debt(api.paid_by, now_ms)
            if account is not None:
                return self._decide_in_debt(request, account, now_ms)
        if api is not NOT_OFFERED:
            if context.alteration is None and context.login.asked is None:
                context.counters.requests[request.api_key] += 1
            recorder = context.recorder
            if recorder is not None and api.introduces and not recorder.is_introduced:
                recorder.introduced()
        return api.handle_request(context, request, now_ms)

    def _decide_before_login(self, request: Request) -> Step:
        """Decide about a request that needs a login while the login is missing."""
        if self.context.login.awaits_owner or self.context.at.authentication.required is None:
            return HOLD
        return self.context.close(
            "unauthenticated",
            f"{SPOKEN[request.api_key].name} before a login, which the brokers require (if they do not, write "
            "authentication: none for this listener)",
        )

    def _decide_in_debt(self, request: Request, account: ByteBucket, now_ms: int) -> Step:
        step = request.api.handle_in_debt(self.context, request, now_ms)
        if step is HOLD:
            self.context.awaited_account = account
            self.context.waits_under = self.context.admission.quotas
            self.context.actions.append(WaitForAccount(account))
        return step

    def _leave_account(self, account: ByteBucket | None) -> None:
        """Give up the place in the queue of an account, unless the first held request still waits for it."""
        context = self.context
        if account is not None and account is not context.awaited_account:
            account.waiting.pop(context.client.connection_id, None)

    def _hold(self, request: Request, now_ms: int) -> None:
        """Let a request wait. It has a deadline at which `wake` is called, or an answer that it waits for."""
        context = self.context
        request.api.note_held(context, request, now_ms)
        self.held_bytes += request.copy_frame() + HELD_OVERHEAD_BYTES
        if self.held:
            self.held.append(request)
        else:
            self.held = [request]
            context.held_since_ms = now_ms
        waits = self.awaits_answer or self.awaits_account
        context.actions.append(WAITING if waits else WakeAt(context.muted_until_ms))
