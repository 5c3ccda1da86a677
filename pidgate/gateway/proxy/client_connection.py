"""One client connection: its session, its two sockets, its timer, its limits and its end.

It performs the actions of the session. It must not know the bytes: client_channel.py and broker_channel.py do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pidgate.gateway.cluster.nodes import Address
from pidgate.gateway.logs import Event, log_mistake, logger, writes_debug
from pidgate.gateway.proxy.actions import (
    IDENTIFIED,
    LOGIN_OVER,
    Action,
    AlterQuotas,
    AskBroker,
    End,
    FindOwner,
    LogClient,
    LogGatewayTopic,
    LogRefusal,
    OwnQuestion,
    TellUser,
    ToBroker,
    ToClient,
    WaitForAccount,
    WakeAt,
)
from pidgate.gateway.proxy.broker_link import BrokerLink
from pidgate.gateway.proxy.buffers import BEFORE_LOGIN, BudgetShare, Purpose
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.connection_age import AgeLimits, ConnectionAge
from pidgate.gateway.proxy.connection_quotas import network_of
from pidgate.gateway.proxy.connection_state import LIFE, Life, LifeEvent
from pidgate.gateway.proxy.frame_reservation import FrameReservation
from pidgate.gateway.proxy.read_ahead import IN_FLIGHT_BYTES, ReadAhead
from pidgate.gateway.proxy.reading import SCARCE_READ_BYTES, Pause, Reader
from pidgate.gateway.proxy.session import Session
from pidgate.gateway.proxy.waits import Why
from pidgate.gateway.quotas.administration import Kept
from pidgate.gateway.quotas.kafka_api import QuotaExchange
from pidgate.protocol.messages import Question
from pidgate.protocol.proxy_header import Origin
from pidgate.quota.decisions import Client
from pidgate.quota.entities import ANONYMOUS, User

log = logger()

ORDINARY_CAUSES: Final = ("client", "broker", "moved", "drain", "session", "idle", "unreachable")
"""Close causes that are routine, or that are logged elsewhere."""

CLOSES_NOW: Final = frozenset({"client", "broker", "upstream", "unreachable", "login", "error"})
"""Close causes that wait for no answers: a peer is gone, there is no broker yet, or answers cannot be trusted."""

ANSWERED_WITHIN_MS: Final = 10_000
"""Wait for the answers in flight of a connection that ends."""

GIVES_WAY_NOW: Final = ("limit", "login")
"""Close causes that close a connection without a login at once: unread answers do not keep it open."""

NO_ROOM_MUTED: Final = "its user has no memory left for requests behind a mute: limits.buffered_total"

NO_ROOM_UNREAD: Final = "it reads no answers, and its user has no memory left for them: limits.buffered_total"

UNREAD_FOR_MS: Final = 10_000
"""Time for a client to read answers while its user has no room. Clients time out a request after 30 s."""

TOO_MANY: Final = "its user has too many connections: limits.connections_per_user"

CONNECTED: Final = Life.CONNECTED

Dial = Callable[["ClientConnection", "Question | None"], "asyncio.Task[None] | None"]
"""Connects to the broker in the background; calls `broker_connected`, or closes the connection.

With a question it finds the broker's answer without a connection for this client, and calls `broker_answered`.
"""


class ClientConnection:
    """One accepted connection. Lives until both of its sockets are gone."""

    def __init__(self, context: ConnectionContext, dial: Dial, channel: Reader) -> None:
        """Set up the connection behind a client's channel."""
        self.context = context
        self.channel = channel
        self.socket = socket = channel.socket
        self.client = Client(
            user=ANONYMOUS, client_id="", address="", connection_id=context.next_connection_id()
        )
        self.session = Session(context.surroundings, self.client)
        self.recorder = context.recorder_of(self.client, self.session.context.login.sasl)
        self.session.context.recorder = self.recorder
        self.share = BudgetShare(context.budget, self)
        self.broker = BrokerLink(socket.gate, self.share, self)
        self.reservation = FrameReservation(context.budget, self.share, socket.received, socket.gate)
        self.read_ahead = ReadAhead(self.session, self.share, socket.gate)
        self.age = ConnectionAge(context.now_ms())
        self.server: Address | None = None
        """Address of the broker that is asked, being dialled or connected. None: no broker was needed yet."""
        self.origin: Origin | None = None
        """Both ends of the connection as named by a proxy. None: the socket's own."""
        self.address_is_known = True
        """False until a proxy's header has named the address."""
        self.certificate_user: User | None = None
        """The certificate's full user name, which `client` may have cut. None: no certificate was shown."""
        self._dial = dial
        self._asking: asyncio.Task[None] | None = None
        """Asks the broker a question before the login. None: none was asked, or its answer was known."""
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at_ms = 0
        self.session.context.account = context.shared.turns.join(BEFORE_LOGIN)
        if context.shared.lanes.is_on:
            self.session.context.lend_after = context.shared.lanes.lend_after
        self._life: Life = Life.ACCEPTED
        self._close_cause = ""
        self.unread_since_ms = 0
        """When the client stopped reading its answers, if Pause.NOT_READING."""
        self._answered_by_ms = 0
        """When a connection that ends waits no longer for answers; 0: it does not end."""

    def pays_memory_as(self) -> str:
        return BEFORE_LOGIN if self.awaits_login else self.client.user

    def describe(self) -> dict[str, Any]:
        """Return the fields that identify this connection in a log line."""
        client = self.client
        return {
            "connection_id": client.connection_id,
            "listener": self.context.listener_name,
            "node_id": self.context.node_id,
            "user": client.user,
            "client_id": client.client_id,
            "address": client.address,
        }

    # ---- the client ------------------------------------------------------------------------------------

    def comes_from(self, origin: Origin | None) -> None:
        """Set the client's address as named by a trusted proxy. None: the proxy's own connection."""
        self.address_is_known = True
        self.origin = origin
        if origin is not None:
            self.client.address = origin.source[0]
        self.context.addressed(self)

    def stand_for(self, context: ConnectionContext, dial: Dial) -> None:
        """Move to another node of the same listener, before the first request."""
        self.context, self._dial = context, dial
        self.session.context.at = context.surroundings
        if self.recorder is not None:
            self.recorder.node_id = context.node_id

    def certified(self, user: User, *, is_login: bool) -> None:
        """Set the user from the client's certificate. `is_login`: the certificate is the whole login."""
        self.certificate_user = user
        if self.context.shared.upstream_identity is not None:
            self.session.context.login.is_gateways = True
        self.act(self.session.certified(user, is_login=is_login))

    def client_ended(self) -> bool:
        """Handle the end of the client's input. Returns whether the socket stays open for answers.

        Requests in flight are still answered. Requests held behind a mute are dropped, except where one has
        no answer: its client waits for nothing else.
        """
        self._enter(LifeEvent.CLIENT_EOF)
        if self.session.holds_unanswerable:
            return True
        if self.session.awaits_answer:
            self._wake_never()
        else:
            self._drop_held()
        if self.session.is_quiet:
            self.close("client", "the client closed")
            return False
        return True

    def client_lost(self, error: Exception | None) -> None:
        """Release everything: the client's socket is closed."""
        self._enter(LifeEvent.LOST)
        if self._asking is not None:
            self._asking.cancel()
        self._drop_held()
        self.reservation.drop()
        self.read_ahead.drop_answers()
        self.context.shared.turns.leave(self.session.context.account)
        if not self._close_cause:
            self._close_cause = "reset" if error else "client"
        self.context.closed(self, self._close_cause)
        if not self.broker.leave():
            self.share.end()

    # ---- the broker ------------------------------------------------------------------------------------

    def dial_broker(self) -> asyncio.Task[None] | None:
        if self.is_gone:
            return None
        self._enter(LifeEvent.DIAL)
        self._keep_place()
        return None if self.is_gone else self._dial(self, None)

    def broker_answered(self, answer: bytes) -> None:
        """Continue the request that waited for the broker's answer to a question."""
        if not self.is_gone:
            self.act(self.session.broker_answered(answer))
            self.wake()

    def broker_connected(self, channel: Reader) -> None:
        """Forward the waiting requests and resume reading."""
        if self.is_gone:
            channel.close_when_written()
            return
        self._enter(LifeEvent.BROKER_CONNECTED)
        self.broker.connected(channel)

    def broker_lost(self, reason: str, error: Exception | None) -> None:
        """Close the client's socket, so that the client learns at once that its requests in flight are lost."""
        if self.socket.is_lost:
            self.share.end()
        elif self.is_gone:
            return
        elif self.session.is_quiet:
            self.close("broker", reason)
        else:
            self.context.counters.upstream_failures["reset" if error else "closed"] += 1
            in_flight = len(self.session.context.in_flight)
            self.close("upstream", f"{reason}, with {in_flight} requests in flight")

    def read_sparingly(self) -> None:
        """Read both sockets into small buffers: the memory budget is spent."""
        self.socket.read_large()
        if self.broker.channel is not None:
            self.broker.channel.socket.read_large()

    def is_plain(self, now_ms: int) -> bool:
        """Return whether nothing waits, nothing has to, and the next requests may pass without a decision."""
        context = self.session.context
        return (
            self._life is CONNECTED
            and self.session.is_open(now_ms)
            and not self.socket.gate.reasons
            and not context.awaits_size
            and context.alteration is None
            and (self.recorder is None or self.recorder.is_introduced)
        )

    # ---- the session's actions -------------------------------------------------------------------------

    def act(self, actions: list[Action]) -> None:
        """Perform the session's actions in order, then bound what waits."""
        now_ms = self.context.now_ms()
        for action in actions:
            if isinstance(action, ToClient):
                self.channel.write(action.answer)
            elif isinstance(action, ToBroker):
                self.broker.send(action.frame)
            elif isinstance(action, WakeAt):
                self._wake_at(action.when_ms)
            elif isinstance(action, WaitForAccount):
                self.context.shared.byte_waits.add(action.account, self.client.connection_id, self)
            elif isinstance(action, LogRefusal | LogClient | LogGatewayTopic):
                self._log(action, now_ms)
            elif isinstance(action, End):
                self.close(action.cause, action.reason)
            elif isinstance(action, AlterQuotas | TellUser | FindOwner | AskBroker):
                self._find_answer(action)
            elif action is IDENTIFIED:
                self._count_for_user()
            elif action is LOGIN_OVER:
                self._keep_place()
        self._bound_waiting(now_ms)

    def _find_answer(self, action: AlterQuotas | TellUser | FindOwner | AskBroker) -> None:
        """Begin the work that the first held request waits for."""
        shared = self.context.shared
        if isinstance(action, AlterQuotas):
            exchange = action.exchange
            done = partial(self._quotas_altered, exchange)
            self.context.administer(exchange.changes, exchange.only_check, done)
        elif isinstance(action, TellUser):
            shared.tell_user(action.user, partial(self._user_told, action.question))
        elif isinstance(action, FindOwner):
            lookup = shared.token_lookup
            if lookup is None or not lookup.find_owner(action.token_id, self._owner_found):
                self._owner_found()
        else:
            self._asking = self._dial(self, action.question)

    def _bound_waiting(self, now_ms: int) -> None:
        if not self.read_ahead.bound(now_ms) and self._life is CONNECTED:
            self.close("limit", NO_ROOM_MUTED)
        elif self.read_ahead.is_scarce:
            self.socket.read_large()

    def _log(self, action: LogRefusal | LogClient | LogGatewayTopic, now_ms: int) -> None:
        if isinstance(action, LogRefusal):
            self.context.refusal_log.note(action.refusal, self.describe, now_ms)
        elif isinstance(action, LogClient):
            self.context.client_log.note(action, self.describe, now_ms)
        else:
            self.context.gateway_topic_log.note(action.api_key, self.describe, now_ms)

    def answers_passed(self) -> None:
        """Continue requests that waited for answers, or close if only answers were waited for."""
        session = self.session
        if session.held and not (self._timer is not None or session.awaits_answer or session.awaits_account):
            self.wake()
        if self.socket.gate.reasons or self.share.total_bytes:
            self.read_ahead.bound_answers()
            if self.socket.is_parked and not self.socket.gate.reasons & Pause.MANY_IN_FLIGHT:
                self.socket.is_parked = False
                self.await_turn(self.channel, self.socket.next_turn)
        if self._life is not CONNECTED:
            self._finish_if_done()

    def await_turn(self, who: object, go_on: Callable[[], None]) -> None:
        """Call `go_on` when it is the turn of the connection's account, and of `who` in it."""
        context = self.session.context
        self.context.shared.turns.wait(context.account, network_of(self.client.address), who, go_on)

    def _pay_as(self, name: str) -> None:
        """Have another account pay for the connection's work from now on."""
        turns, context = self.context.shared.turns, self.session.context
        if context.account.name != name:
            turns.leave(context.account)
            context.account = turns.join(name)

    def _wake_at(self, when_ms: int) -> None:
        """Wake up then, or earlier, if an earlier time was set: that does no harm."""
        if self._timer is not None:
            if self._wakes_at_ms <= when_ms:
                return
            self._timer.cancel()
        self._wakes_at_ms = when_ms
        self._timer = self.context.loop.call_at(when_ms / 1000, self._mute_over)

    def _wake_never(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _mute_over(self) -> None:
        self._timer = None
        if self.context.shared.turns.has_time(self.session.context.account, self.context.now_ms()):
            self.wake()
        else:
            self.await_turn(self, self.wake)

    def wake(self) -> None:
        """Continue with held requests as far as possible now."""
        if self.is_gone or self.socket.gate.reasons & Pause.TOO_FAST:
            return
        try:
            self.act(self.session.wake(self.context.now_ms()))
            self._finish_if_done()
        except Exception:  # noqa: BLE001 - logged there
            self.failed("requests")

    def authentication_learnt(self) -> None:
        """Continue requests that waited until it was known whether a login is required."""
        self.act(self.session.authentication_learnt())
        self.wake()

    def _owner_found(self) -> None:
        if not self.is_gone:
            self.act(self.session.owner_found())
            self.wake()

    def _quotas_altered(
        self, exchange: QuotaExchange, problems: list[str | None] | None, kept: Kept | None
    ) -> None:
        if not self.is_gone:
            self.act(self.session.quotas_altered(exchange, problems, kept))
            self.wake()

    def _user_told(self, question: OwnQuestion, answer: str) -> None:
        question.answer = answer
        if not self.is_gone:
            self.wake()

    def _drop_held(self) -> None:
        """Drop the held requests and the mute."""
        self._wake_never()
        self.read_ahead.drop_held()

    # ---- limits ----------------------------------------------------------------------------------------

    @property
    def awaits_login(self) -> bool:
        """Return whether it has sent no request yet, or its login is missing or in progress."""
        login = self.session.context.login
        return self._life is Life.ACCEPTED or login.is_missing or login.sasl.is_under_way

    def awaits_broker(self) -> bool:
        """Return whether the broker has to act next: it is being dialled, or has not answered yet."""
        if self.socket.gate.reasons & Pause.NOT_READING:
            return False
        context = self.session.context
        return self._life is Life.CONNECTING or len(context.in_flight) > 0 or context.login.awaits_broker

    def _count_for_user(self) -> None:
        """Count the connection for its user, which may close it (too many) or delay it (too fast)."""
        if self.is_gone:
            return
        quotas, now_ms = self.context.shared.connection_quotas, self.context.now_ms()
        self._pay_as(self.client.user)
        delay_ms = quotas.logged_in(self, self.client.user, now_ms)
        if delay_ms is None:
            self.close("limit", TOO_MANY)
        elif delay_ms:
            self.session.context.note_wait(Why.CONNECTION_RATE, now_ms, now_ms + delay_ms)
            self.socket.gate.pause(Pause.TOO_FAST)
            self.context.loop.call_later(delay_ms / 1000, self._no_longer_too_fast)

    def _no_longer_too_fast(self) -> None:
        self.socket.gate.resume(Pause.TOO_FAST)
        self.wake()

    def _keep_place(self) -> None:
        """Stop yielding once a broker was dialled and no login is missing. ApiVersions alone does not count."""
        if self._life is not Life.ACCEPTED and not self.session.context.login.is_missing:
            quotas = self.context.shared.connection_quotas
            self._pay_as(self.client.user)
            # Where nobody logs in there is no other user to leave room for.
            is_user = self.session.context.login.named_user or quotas.limits.is_mixed
            if not quotas.keeps_its_place(self, self.client.user if is_user else None):
                self.close("limit", TOO_MANY)

    def check_age(self, now_ms: int, limits: AgeLimits) -> None:
        """Count small amounts of memory, keep the broker's side alive, close if a deadline has passed.

        Called about once a second.
        """
        self._count_small_amounts()
        self.socket.gate.note_pause(now_ms)
        if self.broker.channel is not None:
            self.broker.channel.socket.keep_alive()
        overdue = self.age.overdue(now_ms, limits, awaits_login=self.awaits_login)
        if self._answered_by_ms and now_ms >= self._answered_by_ms:
            self.close_now("drain", "its requests in flight were not answered in time")
        elif overdue is not None:
            self.close(*overdue)
        elif self._keeps_room_by_not_reading(now_ms):
            self.close_for_frame(NO_ROOM_UNREAD)
            self.close_now("limit", NO_ROOM_UNREAD)
            self.socket.abort()
            self.share.hold(Purpose.TO_CLIENT, 0)
        elif self.reservation.is_overdue(now_ms, limits.frame_ms):
            self.close_for_frame("its frame arrived too slowly, or others waited for its memory")

    def _keeps_room_by_not_reading(self, now_ms: int) -> bool:
        """Return whether the client has left answers unread for long, and its user holds more than others have left."""
        return (
            bool(self.socket.gate.reasons & Pause.NOT_READING)
            and now_ms - self.unread_since_ms >= UNREAD_FOR_MS
            and not self.share.is_within(Purpose.TO_CLIENT)
        )

    def _count_small_amounts(self) -> None:
        share, broker = self.share, self.broker.channel
        small_bytes = self.socket.unsent_bytes - share.held(Purpose.TO_CLIENT)
        small_bytes += len(self.session.context.in_flight) * IN_FLIGHT_BYTES - share.held(Purpose.IN_FLIGHT)
        if broker is not None:
            small_bytes += broker.socket.unsent_bytes - share.held(Purpose.TO_BROKER)
        if not self.reservation.is_held:
            small_bytes += self.socket.received.arrived_bytes - share.held(Purpose.WAITING)
        share.hold(Purpose.SMALL_AMOUNTS, small_bytes if small_bytes >= SCARCE_READ_BYTES else 0)

    def close_for_frame(self, reason: str) -> None:
        """Close, and drop an incomplete frame: the socket may stay open until written data has been sent."""
        self.close("limit", reason)
        self.socket.received.clear()
        self.reservation.drop()

    def follow_quotas(self, now_ms: int) -> None:
        """End a wait that changed quotas make pointless; called about once a second."""
        actions = self.session.follow_quotas(now_ms)
        if actions:
            self._wake_never()
            self.act(actions)

    # ---- the end ---------------------------------------------------------------------------------------

    @property
    def life(self) -> Life:
        return self._life

    @property
    def is_gone(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._life >= Life.CLOSING or not self.socket.is_open

    @property
    def reads_no_more(self) -> bool:
        """Return whether later requests are dropped: the connection ends, or has ended."""
        return self._life is Life.DRAINING or self.is_gone

    def close(self, cause: str, reason: str) -> None:
        """Read no more, wait for answers in flight for ANSWERED_WITHIN_MS at most, then close both sides.

        A request that was forwarded would otherwise be sent again by its client: without idempotence, twice in the log.
        """
        if cause in CLOSES_NOW:
            self.close_now(cause, reason)
            return
        self.socket.gate.recall()
        if self.reads_no_more:
            return
        self._drop_held()
        if not self.session.awaits_answers:
            self.close_now(cause, reason)
            return
        self._enter(LifeEvent.DRAIN)
        self.socket.gate.pause(Pause.DRAINING)
        self._note_cause(cause, reason)
        if cause != "drain":  # that has the gateway's drain_timeout
            self._answered_by_ms = self.context.now_ms() + ANSWERED_WITHIN_MS

    def close_now(self, cause: str, reason: str) -> None:
        """Close both sides; answers already written are still sent."""
        if self.is_gone:
            return
        self.socket.gate.recall()
        is_strangers = self.awaits_login
        self._enter(LifeEvent.CLOSE)
        self._drop_held()  # now: a client that reads nothing keeps its socket for LINGER_S
        self._note_cause(cause, reason)
        if is_strangers and cause in GIVES_WAY_NOW:
            self.socket.abort()
        else:
            self.channel.close_when_written()

    def _note_cause(self, cause: str, reason: str) -> None:
        """Log why the connection ends; the first cause counts."""
        if self._close_cause:
            return
        self._close_cause = cause
        if cause not in ORDINARY_CAUSES:
            self.context.close_log.note(cause, reason, self.describe, self.context.now_ms())
        elif writes_debug():
            log.debug(Event.CONNECTION_CLOSED, cause=cause, reason=reason, **self.describe())

    def failed(self, part: str) -> None:
        """End this connection, and only this one, after a defect of the gateway in this part, which is logged."""
        log_mistake(part, **self.describe())
        self.close("error", "an unexpected error in the gateway")

    def _enter(self, event: LifeEvent) -> None:
        self._life = LIFE.get((self._life, event), self._life)

    def _finish_if_done(self) -> None:
        """Close a connection that waited only for requests in flight."""
        if self._life is Life.DRAINING:
            if not self.session.awaits_answers:
                self.close_now("drain", "everything in flight was answered")
        elif self._life is Life.HALF_CLOSED and self.session.is_quiet and not self.session.holds_unanswerable:
            self.close_now("client", "everything in flight was answered")
