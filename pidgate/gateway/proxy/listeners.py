"""The listening sockets: one bootstrap port per listener, and one port per broker.

A broker's port is opened the moment the broker is learnt, and synchronously: the kernel takes connections from
`listen()` on, so a client that reads the address in the answer which is about to leave always finds it open.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from pidgate.gateway.cluster.nodes import NodePorts
from pidgate.gateway.config.listening import CannotListen, listening_on
from pidgate.gateway.config.principal_rules import NoRuleApplies
from pidgate.gateway.config.settings import ListenerSettings
from pidgate.gateway.errors import CannotStart
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.proxy.accepting import BACKLOG, Port
from pidgate.gateway.proxy.behind_proxies import AcceptedBehindProxy, ProxyAddresses
from pidgate.gateway.proxy.client_channel import ClientChannel
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.proxy.connection import ConnectionContext, Shared
from pidgate.gateway.proxy.keepalive import keep_alive
from pidgate.gateway.proxy.tls_connections import AcceptedTls
from pidgate.gateway.proxy.upstream import Upstream
from pidgate.gateway.tls.live import LiveContext
from pidgate.gateway.tls.principals import CertificateUsers

log = logger()

AT_BOOTSTRAP: Final = 8
"""Connections that the bootstrap port accepts in a turn, because a returning fleet uses it. It has as many duplicates
of its socket."""

Bind = Callable[[str, int, bool], socket.socket]
"""Like `listening_socket`: (host, port, shares_port). Raises OSError, CannotStart."""


def listening_socket(host: str, port: int, shares_port: bool) -> socket.socket:
    """Return a socket that listens. Raises OSError."""
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, proto)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        keep_alive(bound)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


class Listener:
    """One entry of `listeners`: its sockets and what it shows its clients.

    `shares_ports`: other gateways may listen on the same ports, and the kernel distributes connections (reuse_port).
    `tls`: TLS towards clients; None: no TLS.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        shared: Shared,
        bind: Bind,
        *,
        shares_ports: bool = False,
        tls: LiveContext | None = None,
        tls_handshake_ms: int = 10_000,
    ) -> None:
        self._settings = settings
        self._bind = bind
        self._tls = tls
        self._handshake_ms = tls_handshake_ms
        of_listener = settings.tls
        self._users: CertificateUsers | None = None
        """None: no client is asked for a certificate."""
        if of_listener is not None and of_listener.identifies:
            self._users = CertificateUsers(of_listener.ssl_principal_mapping_rules)
        self._shares_ports = shares_ports
        self._shared = shared
        self._open_for: set[int | None] = set()
        self._ports = NodePorts(settings, self._open_for)
        self._accepting: list[Port] = []
        self._missing: dict[int, int] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def open(self) -> None:
        """Listen on the bootstrap port and on every port that the configuration names.

        Raises CannotListen, CannotStart.
        """
        settings = self._settings
        await self._serve(settings.only_node, self._bound(settings.bind_port, "bind"))
        self._open_for.add(settings.only_node)
        for node_id in settings.node_ids:
            port = self._ports.port_of(node_id)
            if port is not None:
                await self._serve(node_id, self._bound(port, "node_ports"))
                self._open_for.add(node_id)

    def node_learnt(self, node_id: int) -> None:
        """Open the port of a new broker, if it has one that is not open yet."""
        port = self._ports.port_of(node_id)
        remedy = ""
        if port is None:
            if self._settings.only_node is None and self._settings.sni is None:
                remedy = "add the node id to node_ports.node_ids, or choose a lower node_ports.first"
        else:
            remedy = self._open_node_port(node_id, port)
        if remedy:
            log.error(Event.NODE_WITHOUT_PORT, node_id=node_id, listener=self._settings.name, remedy=remedy)

    def open_missing(self) -> None:
        """Try again the ports that could not be opened when their brokers were learnt; called once a second."""
        for node_id, port in list(self._missing.items()):
            self._open_node_port(node_id, port)

    def _open_node_port(self, node_id: int, port: int) -> str:
        """Open the port of a node. Returns why it could not be opened; empty when it is open."""
        if node_id in self._open_for or self._is_closed:
            return ""
        try:
            bound = self._bound(port, "node_ports")
        except (CannotListen, CannotStart) as error:
            self._missing[node_id] = port
            return str(error)
        self._missing.pop(node_id, None)
        self._open_for.add(node_id)
        task = self._shared.loop.create_task(self._serve(node_id, bound))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return ""

    def close(self) -> None:
        """Accept no more connections; those that are open stay."""
        self._is_closed = True
        for port in self._accepting:
            port.close()

    def _bound(self, port: int, setting: str) -> socket.socket:
        host = self._settings.bind_host
        with listening_on(f"listeners.{setting}", (host, port)):
            return self._bind(host, port, self._shares_ports)

    def _context_of(self, node_id: int | None) -> ConnectionContext:
        settings, identity = self._settings, self._shared.upstream_identity
        requires_login = settings.requires_login
        if requires_login is None and identity is not None and identity.is_of_everybody:
            requires_login = False  # the gateway logs in for all clients
        claim = settings.sasl_oauthbearer_sub_claim_name
        return ConnectionContext(self._shared, self._ports, node_id, requires_login, claim)

    def _named(self, server_name: str, connection: ClientConnection) -> None:
        """Route the connection to the node that its client named; any other name leads to a bootstrap server."""
        node_id = self._ports.node_named(server_name)
        if node_id is not None:
            context = self._context_of(node_id)
            connection.stand_for(context, Upstream(context).dial)

    def _certified(self, certificate: bytes, connection: ClientConnection) -> None:
        """Set the connection's user to that of its client's certificate."""
        assert self._users is not None
        try:
            user = self._users.user(certificate)
        except NoRuleApplies as error:
            rules = "tls.ssl_principal_mapping_rules"
            connection.close(
                "unauthenticated", f"no rule of {rules} matches its certificate: {error} (see DEFAULT)"
            )
            return
        # A certificate does not replace a login at the brokers, unless the gateway logs in for the client.
        is_login = self._settings.requires_login is True or self._shared.upstream_identity is not None
        connection.certified(user, is_login=is_login)

    async def _serve(self, node_id: int | None, bound: socket.socket) -> None:
        context = self._context_of(node_id)
        dial = Upstream(context).dial
        proxies = ProxyAddresses(self._settings.proxy_protocol_from)
        is_behind_proxies = bool(self._settings.proxy_protocol_from)
        address = ":".join(map(str, bound.getsockname()[:2]))
        tls = self._tls
        named = self._named if self._settings.sni is not None else None
        certified = self._certified if self._users is not None else None

        def accepted() -> asyncio.BaseProtocol:
            channel = ClientChannel(context, dial)
            protocol: asyncio.BaseProtocol = channel.as_protocol()
            if tls is not None:
                handshake = AcceptedTls(channel, tls.context, self._handshake_ms, named, certified)
                protocol = handshake.as_protocol()
            return AcceptedBehindProxy(channel, protocol, proxies) if is_behind_proxies else protocol

        is_bootstrap = node_id == self._settings.only_node
        port = Port(self._shared.loop, bound, accepted, AT_BOOTSTRAP if is_bootstrap else 1)
        await self._shared.accepting.add(port)
        self._accepting.append(port)
        if self._is_closed:
            port.close()
        log.info(
            Event.LISTENING,
            listener=self._settings.name,
            bind=address,
            tls=tls is not None,
            node_id=node_id,
            advertised=None
            if node_id is None
            else ":".join(map(str, self._ports.advertised_address(node_id))),
        )
