"""A client's connection as such: its identity, its life and its end.

It must not know what is in the bytes: client_channel.py does.
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
from pidgate.quota.decisions import Session
from pidgate.quota.entities import User

log = logger()

ORDINARY_CAUSES: Final = ("client", "broker", "moved", "drain", "idle", "unreachable")
"""Connections end in these ways every day, or the cause has its line in the log already."""

GIVES_WAY_NOW: Final = ("limit", "login")
"""Causes for which a connection without a login leaves at once: whoever does not take his answers keeps no place."""

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
        self.session = Session(user=ANONYMOUS, client_id="", address="", connection_id=self.connection_id)
        self.conversation = Conversation(
            context.admission, self.session, context.counters, context.gateway_topics, context.byte_quota
        )
        self.recorder = context.recorder_of(self.session, self.conversation.sasl)
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
        """The address to which the broker's socket is connected, or is about to be; None: no broker is dialled."""
        self.share = BudgetShare(context.budget, self._memory_owner)
        self._reservation = FrameReservation(context.budget, self.share, self._received, self._gate)
        self._read_ahead = ReadAhead(self.conversation, self.share, self._gate)
        self.origin: Origin | None = None
        """Both ends as a proxy before this gateway names them; None: those of the socket."""
        self.address_is_known = True
        """False while a proxy's header has to name it."""
        self.was_heard = True
        """Bytes came from either side since somebody looked."""
        self.means_node = False
        """The NodeId of its ApiVersions passes on (KIP-1242): no other broker may stand in for this port's node."""
        self._heard_ms = 0
        self._opened_ms = context.now_ms()
        self.certificate_user: User | None = None
        """The whole name of its certificate's user, which the session may have cut. None: it has shown none."""
        self._session_ends_ms = 0
        """Until when the gateway's login at the broker may be used; 0: for ever."""
        self._life: Life = Life.ACCEPTED
        self._close_cause = ""

    def describe(self) -> dict[str, Any]:
        """Return whose connection this is, for a log line."""
        session = self.session
        return {
            "connection_id": self.connection_id,
            "listener": self.context.listener_name,
            "node_id": self.context.node_id,
            "user": session.user,
            "client_id": session.client_id,
            "address": session.address,
        }

    @property
    def is_gone(self) -> bool:
        """Closed or closing: nothing more comes of it."""
        return self._life >= Life.CLOSING or self._transport is None or self._transport.is_closing()

    def awaits_origin(self) -> None:
        """Count for no address, and read nothing, before `comes_from`."""
        self.address_is_known = False
        self.reads_nothing_yet()

    def comes_from(self, origin: Origin | None) -> None:
        """Take the client's address from a proxy that is believed; None: it is the proxy's own."""
        self.address_is_known = True
        self.origin = origin
        if origin is not None:
            self.session.address = origin.source[0]
        self.context.addressed(self.session.address, self.close)

    def endpoints(self) -> Origin | None:
        """Return the client's end of its connection, and the one that it connected to; None: they are unknown."""
        if self.origin is not None or self._transport is None:
            return self.origin
        ends = (self._transport.get_extra_info(name) for name in ("peername", "sockname"))
        source, destination = (None if end is None else (end[0], end[1]) for end in ends)
        return None if source is None or destination is None else Origin(source, destination)

    def logged_in(self, session_lifetime_ms: int) -> None:
        """Have the connection end in good time before the session of the gateway's login does (KIP-368), 0: never.

        The client comes again, and is logged in anew: a login between its requests would be in their way.
        """
        if session_lifetime_ms:
            self._session_ends_ms = self._now_ms() + session_lifetime_ms * 3 // 4

    def drain(self) -> None:
        """Take no more requests; close as soon as nothing is in flight. Does not wait for a mute."""
        self._enter(LifeEvent.DRAIN)
        self._gate.pause(Pause.DRAINING)
        self.drop_held()
        if self.conversation.is_quiet:
            self._finish("drain", "the gateway drains")

    def _may_mean_node(self) -> bool:
        # With sni the context is the bootstrap's until the client has named its node: see ClientChannel.stand_for.
        self.means_node = self.context.node_is_known()
        return self.means_node

    def _find_owner(self, token_id: str) -> bool:
        lookup = self.context.shared.token_lookup
        return lookup is not None and lookup.find_owner(token_id, self.owner_found)

    def owner_found(self) -> None:
        """Go on with what waited until a broker was asked for the owner of its token."""
        if not self.is_gone and self.conversation.owner_found():
            self._release()

    def authentication_learnt(self) -> None:
        """Go on with what waited until it was known whether a login is required."""
        if self.conversation.authentication_learnt():
            self._release()

    @abstractmethod
    def _release(self) -> None:
        """Go on with the requests that wait."""

    @abstractmethod
    def drop_held(self) -> None:
        """Forget the requests that wait, and the mute."""

    def close(self, cause: str, reason: str) -> None:
        """Close both sides; answers already written still leave."""
        if not self.is_gone:
            self._finish(cause, reason)

    def _memory_owner(self) -> str:
        """Return whose share of the memory this connection takes."""
        return BEFORE_LOGIN if self.awaits_login else self.session.user

    @property
    def awaits_login(self) -> bool:
        """True while it has asked nothing, or its login is missing or has begun."""
        conversation = self.conversation
        return self._life is Life.ACCEPTED or conversation.login_missing or conversation.sasl.is_under_way

    @property
    def must_outlive_client(self) -> bool:
        """True while something is held that has no answer."""
        return any(has_no_answer(request) for request in self.conversation.held)

    def certified(self, user: User, *, is_login: bool) -> None:
        """Take the client for this user, by its certificate; `is_login`: that is all the login there is."""
        self.certificate_user = user
        self.conversation.certified(user, is_login=is_login)

    def _identified(self) -> None:
        """Count the connection as its user's: it may be one too many, or come too soon after the others."""
        delay_ms = self.context.shared.connection_quotas.logged_in(self, self.session.user, self._now_ms())
        if delay_ms is None:
            self._gate.pause(Pause.TOO_FAST)
            # Not now: the broker's answer that is being looked at has to leave first.
            self._loop.call_soon(self.close, "limit", "its user has too many: limits.connections_per_user")
        elif delay_ms:
            self._gate.pause(Pause.TOO_FAST)
            self._loop.call_later(delay_ms / 1000, self._no_longer_too_fast)

    def _no_longer_too_fast(self) -> None:
        self._gate.resume(Pause.TOO_FAST)
        self._release()

    def _keep_place(self) -> None:
        """Give way no more, once a broker was asked for and no login is missing: ApiVersions alone buys no place."""
        if self._life is not Life.ACCEPTED and not self.conversation.login_missing:
            self.context.shared.connection_quotas.keeps_its_place(self)

    def give_way(self) -> None:
        """Close: all connections are taken, and this one has asked nothing yet, or has not logged in."""
        self.close("limit", "it was silent or not logged in, and others wait: limits.connections")

    def check_age(self, now_ms: int, limits: AgeLimits) -> None:
        """Close what has been silent for too long, or whose frame does not come; called about once a second."""
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
        """Close: what came of its frame has no room in what strangers may hold together, not even to wait."""
        self.close(
            "limit", "it has not logged in, and others like it hold what limits.buffered_total leaves them"
        )
        self._drop_frame()

    def _drop_frame(self) -> None:
        """Forget the beginning of a frame now: the socket may stay until its client has taken what was written."""
        self._received.clear()
        self._reservation.drop()

    def _enter(self, event: LifeEvent) -> None:
        self._life = LIFE.get((self._life, event), self._life)

    def _failed(self, error: Exception) -> None:
        """The client broke the protocol, or we are wrong: either way this connection ends, and only this one."""
        if isinstance(error, KafkaProtocolError):
            self._counters.frames_malformed += 1
            self.close("protocol", str(error))
        else:
            log_mistake("requests", **self.describe())
            self.close("error", "an unexpected error in the gateway")

    def _finish_if_done(self) -> None:
        """Close when the connection waited only for what was in flight."""
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
