"""A client connection's identity, life cycle and end.

It must not know the bytes: client_channel.py does.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

from pidgate.gateway.cluster.nodes import Address
from pidgate.gateway.logs import Event, log_mistake, logger
from pidgate.gateway.proxy.apis.produce import has_no_answer
from pidgate.gateway.proxy.buffers import BEFORE_LOGIN, BudgetShare
from pidgate.gateway.proxy.connection import AgeLimits, ConnectionContext
from pidgate.gateway.proxy.connection_state import LIFE, Life, LifeEvent
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.gateway.proxy.frame_reservation import FrameReservation
from pidgate.gateway.proxy.read_ahead import ReadAhead
from pidgate.gateway.proxy.reading import Pause, Reader
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.proxy_header import Origin
from pidgate.quota.decisions import Client
from pidgate.quota.entities import User

log = logger()

ORDINARY_CAUSES: Final = ("client", "broker", "moved", "drain", "idle", "unreachable")
"""Close causes that are routine, or that are logged elsewhere."""

GIVES_WAY_NOW: Final = ("limit", "login")
"""Close causes that close a connection without a login at once: unread answers do not keep it open."""

ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's principal of a client that did not authenticate."""

CONNECTED: Final = Life.CONNECTED


class ClientConnection(Reader):
    """One accepted connection. Lives until both of its sockets are gone."""

    def __init__(self, context: ConnectionContext) -> None:
        super().__init__(context.budget, context.loop)
        self.context = context
        self._now_ms = context.now_ms
        self._counters = context.counters
        self.connection_id = context.next_connection_id()
        self.client = Client(user=ANONYMOUS, client_id="", address="", connection_id=self.connection_id)
        self.conversation = Conversation(
            context.admission, self.client, context.counters, context.gateway_topics, context.byte_quota
        )
        self.recorder = context.recorder_of(self.client, self.conversation.sasl)
        self.conversation.recorder = self.recorder
        self.conversation.identified = self._identified
        self.conversation.login_over = self._keep_place
        self.conversation.translate = context.translate
        self.conversation.may_mean_node = self._may_mean_node
        self.conversation.learn_topics = context.topic_names.queue_answer
        self.conversation.token_owners = context.shared.token_owners
        self.conversation.find_owner = self._find_owner
        self.conversation.sasl.principal_claim = context.principal_claim
        self.conversation.require_login(context.authentication)
        self.server: Address | None = None
        """Address of the broker's socket, connected or being connected. None: no broker is dialled."""
        self.share = BudgetShare(context.budget, self._memory_owner)
        self._reservation = FrameReservation(context.budget, self.share, self._received, self._gate)
        self._read_ahead = ReadAhead(self.conversation, self.share, self._gate)
        self.origin: Origin | None = None
        """Both ends of the connection as named by a proxy. None: the socket's own."""
        self.address_is_known = True
        """False until a proxy's header has named the address."""
        self.was_heard = True
        """Bytes arrived from either side since the last check."""
        self.means_node = False
        """The client sent the NodeId of ApiVersions (KIP-1242): no other broker may be substituted for this
        port's node."""
        self._heard_ms = 0
        self._opened_ms = context.now_ms()
        self.certificate_user: User | None = None
        """The certificate's full user name, which `client` may have cut. None: no certificate was shown."""
        self._session_ends_ms = 0
        """Expiry of the gateway's own session at the broker; 0: none."""
        self._life: Life = Life.ACCEPTED
        self._close_cause = ""

    def describe(self) -> dict[str, Any]:
        """Return the fields that identify this connection in a log line."""
        client = self.client
        return {
            "connection_id": self.connection_id,
            "listener": self.context.listener_name,
            "node_id": self.context.node_id,
            "user": client.user,
            "client_id": client.client_id,
            "address": client.address,
        }

    @property
    def is_gone(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._life >= Life.CLOSING or self._transport is None or self._transport.is_closing()

    def awaits_origin(self) -> None:
        """Count for no address and read nothing until `comes_from` is called."""
        self.address_is_known = False
        self.reads_nothing_yet()

    def comes_from(self, origin: Origin | None) -> None:
        """Set the client's address as named by a trusted proxy. None: the proxy's own connection."""
        self.address_is_known = True
        self.origin = origin
        if origin is not None:
            self.client.address = origin.source[0]
        self.context.addressed(self.client.address, self.close)

    def endpoints(self) -> Origin | None:
        """Return the client's address and the address it connected to. None: unknown."""
        if self.origin is not None or self._transport is None:
            return self.origin
        ends = (self._transport.get_extra_info(name) for name in ("peername", "sockname"))
        source, destination = (None if end is None else (end[0], end[1]) for end in ends)
        return None if source is None or destination is None else Origin(source, destination)

    def logged_in(self, session_lifetime_ms: int) -> None:
        """Schedule the connection's end before the gateway's broker session expires (KIP-368); 0: never.

        The client reconnects and is logged in again. Re-authenticating on the open connection would delay its
        requests.
        """
        if session_lifetime_ms:
            self._session_ends_ms = self._now_ms() + session_lifetime_ms * 3 // 4

    def drain(self) -> None:
        """Read no more requests and close as soon as nothing is in flight. A mute is not waited for."""
        self._enter(LifeEvent.DRAIN)
        self._gate.pause(Pause.DRAINING)
        self.drop_held()
        if self.conversation.is_quiet:
            self._finish("drain", "the gateway drains")

    def _may_mean_node(self) -> bool:
        # With SNI the context is the bootstrap port's until the client has named its node: see
        # ClientChannel.stand_for.
        self.means_node = self.context.node_is_known()
        return self.means_node

    def _find_owner(self, token_id: str) -> bool:
        lookup = self.context.shared.token_lookup
        return lookup is not None and lookup.find_owner(token_id, self.owner_found)

    def owner_found(self) -> None:
        """Continue requests that waited for a broker's answer about the token's owner."""
        if not self.is_gone and self.conversation.owner_found():
            self._release()

    def authentication_learnt(self) -> None:
        """Continue requests that waited until it was known whether a login is required."""
        if self.conversation.authentication_learnt():
            self._release()

    @abstractmethod
    def _release(self) -> None:
        """Continue with held requests."""

    @abstractmethod
    def drop_held(self) -> None:
        """Drop the held requests and the mute."""

    def close(self, cause: str, reason: str) -> None:
        """Close both sides; answers already written are still sent."""
        if not self.is_gone:
            self._finish(cause, reason)

    def _memory_owner(self) -> str:
        """Return the owner of the memory used by this connection."""
        return BEFORE_LOGIN if self.awaits_login else self.client.user

    @property
    def awaits_login(self) -> bool:
        """Return whether it has sent no request yet, or its login is missing or in progress."""
        conversation = self.conversation
        return self._life is Life.ACCEPTED or conversation.login_missing or conversation.sasl.is_under_way

    @property
    def must_outlive_client(self) -> bool:
        """Return whether it holds a request that has no answer."""
        return any(has_no_answer(request) for request in self.conversation.held)

    def certified(self, user: User, *, is_login: bool) -> None:
        """Set the user from the client's certificate. `is_login`: the certificate is the whole login."""
        self.certificate_user = user
        self.conversation.certified(user, is_login=is_login)

    def _identified(self) -> None:
        """Count the connection for its user, which may close it (too many) or delay it (too fast)."""
        delay_ms = self.context.shared.connection_quotas.logged_in(self, self.client.user, self._now_ms())
        if delay_ms is None:
            self._gate.pause(Pause.TOO_FAST)
            # Deferred: the broker's answer being processed must be sent first.
            self._loop.call_soon(self.close, "limit", "its user has too many: limits.connections_per_user")
        elif delay_ms:
            self._gate.pause(Pause.TOO_FAST)
            self._loop.call_later(delay_ms / 1000, self._no_longer_too_fast)

    def _no_longer_too_fast(self) -> None:
        self._gate.resume(Pause.TOO_FAST)
        self._release()

    def _keep_place(self) -> None:
        """Stop yielding once a broker was dialled and no login is missing. ApiVersions alone does not count."""
        if self._life is not Life.ACCEPTED and not self.conversation.login_missing:
            self.context.shared.connection_quotas.keeps_its_place(self)

    def give_way(self) -> None:
        """Close for a newer connection: all are taken, and this one has sent no request or has not logged in."""
        self.close(
            "limit", "closed for a newer connection: it was silent or not logged in (limits.connections)"
        )

    def check_age(self, now_ms: int, limits: AgeLimits) -> None:
        """Close the connection if it is silent for too long or its frame is overdue; called about once a
        second.
        """
        if self.was_heard:
            self.was_heard = False
            self._heard_ms = now_ms
        elif self._heard_ms < now_ms - limits.idle_ms:
            self.close("idle", "nothing was sent or received for limits.idle")
            return
        if self._session_ends_ms and now_ms > self._session_ends_ms:
            self._session_ends_ms = 0
            self.drain()
            return
        if self.awaits_login and now_ms - self._opened_ms > limits.login_ms:
            self.close("login", "it did not log in in time")
            return
        if self._reservation.is_overdue(now_ms, limits.frame_ms):
            self.close("limit", "its frame arrived too slowly, or others waited for its memory")
            self._drop_frame()

    def _no_room(self) -> None:
        """Close: there is no room for its frame, nor for waiting, in the memory for connections before login."""
        self.close("limit", "the memory for connections before login is full: limits.buffered_total")
        self._drop_frame()

    def _drop_frame(self) -> None:
        """Drop an incomplete frame now: the socket may stay open until written data has been sent."""
        self._received.clear()
        self._reservation.drop()

    def _enter(self, event: LifeEvent) -> None:
        self._life = LIFE.get((self._life, event), self._life)

    def _failed(self, error: Exception) -> None:
        """End this connection, and only this one, after a protocol error or a defect of the gateway."""
        if isinstance(error, KafkaProtocolError):
            self._counters.frames_malformed += 1
            self.close("protocol", str(error))
        else:
            log_mistake("requests", **self.describe())
            self.close("error", "an unexpected error in the gateway")

    def _finish_if_done(self) -> None:
        """Close a connection that waited only for requests in flight."""
        life = self._life
        if life is not CONNECTED and self.conversation.is_quiet:
            if life is Life.HALF_CLOSED and not self.must_outlive_client:
                self._finish("client", "everything in flight was answered")
            elif life is Life.DRAINING:
                self._finish("drain", "everything in flight was answered")

    def _finish(self, cause: str, reason: str) -> None:
        is_strangers = self.awaits_login
        self._enter(LifeEvent.CLOSE)
        if not self._close_cause:
            self._close_cause = cause
            if cause in ORDINARY_CAUSES:
                log.debug(Event.CONNECTION_CLOSED, cause=cause, reason=reason, **self.describe())
            else:
                self.context.close_log.note(cause, reason, self.describe, self.context.now_ms())
        if is_strangers and cause in GIVES_WAY_NOW and self._transport is not None:
            self._transport.abort()
        else:
            self.close_when_written()
