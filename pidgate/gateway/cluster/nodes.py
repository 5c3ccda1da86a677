"""Cluster nodes: their real addresses, and the address that each listener advertises for them.

Real addresses are learnt from broker responses in passing. Advertised addresses consist of the listener's
`advertise` and a port. This module opens no sockets: `on_new_node` runs before the response with the new node
is forwarded, so that a client never connects to a closed port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from pidgate.gateway.cluster.resolving import Resolver
from pidgate.gateway.config.settings import ListenerSettings
from pidgate.gateway.logs import Event, logger

log = logger()

Address = tuple[str, int]

MOST_NODES: Final = 1_000
"""Nodes of a process. The largest clusters have some hundred; each node has a port, of two descriptors."""
LONGEST_HOST: Final = 255
"""Characters of a host name (RFC 1035)."""

MAX_PORT = 65535
MOST_NODE_DIGITS = 9
"""Digits of the largest node id, a positive 32 bit integer."""


class Nodes:
    """Node id -> real address, shared by all listeners of the process.

    At most `most` node ids are learnt. A broker's answer may hold any number of any nodes.
    """

    def __init__(
        self,
        bootstrap_servers: Sequence[Address],
        *,
        most: int = MOST_NODES,
        resolver: Resolver | None = None,
    ) -> None:
        self.bootstrap_servers = tuple(bootstrap_servers)
        self.resolver = resolver or Resolver()
        self._most = most
        self._ids: set[int] = set()
        """All nodes that were learnt. Their ports stay open, so they count."""
        self._is_full = False
        self._addresses: dict[int, Address] = {}
        self.last_addresses: dict[int, Address] = {}
        """The last address of each node, also of one whose address was forgotten."""
        self._turn = 0
        self.on_new_node: Callable[[int], None] = lambda _node_id: None
        self.on_address: Callable[[int], None] = lambda _node_id: None
        """Called when a node is new or has moved."""
        self.on_dropped: Callable[[], None] = lambda: None

    def learn_node(self, node_id: int, host: str, port: int) -> None:
        """Record from a broker's response that `node_id` is at host:port, unless it cannot be a broker."""
        known = self._addresses.get(node_id)
        if known == (host, port):
            return
        if node_id < 0 or not 0 < port <= MAX_PORT or len(host) > LONGEST_HOST:
            return
        if node_id not in self._ids and len(self._ids) >= self._most:
            if not self._is_full:
                self._is_full = True
                remedy = (
                    f"{self._most} brokers have ports; if there are more, let the process open more files"
                )
                log.error(Event.NODE_WITHOUT_PORT, node_id=node_id, remedy=remedy)
            return
        self._ids.add(node_id)
        self._addresses[node_id] = self.last_addresses[node_id] = (host, port)
        if known is None:
            self.on_new_node(node_id)
        self.on_address(node_id)

    def forget_address(self, node_id: int, address: Address) -> None:
        """Drop an address that does not respond; bootstrap servers replace it until the node is learnt again.

        Otherwise a client that knows only this broker would be stuck: the Metadata response with the new
        address can arrive only through another broker.
        """
        if self._addresses.get(node_id) == address:
            del self._addresses[node_id]

    def drop_node(self, node_id: int) -> None:
        """Forget a node that was silent for so long that it has been removed. Its port stays open."""
        self._addresses.pop(node_id, None)
        self.last_addresses.pop(node_id, None)
        self.on_dropped()

    def knows_node(self, node_id: int | None) -> bool:
        """Return whether the node's address is known; False for None."""
        return node_id in self._addresses

    @property
    def known_addresses(self) -> dict[int, Address]:
        """Return a copy of node id -> real address."""
        return dict(self._addresses)

    def hosts(self) -> set[str]:
        """Return the hosts of all brokers, bootstrap servers included."""
        return {host for host, _ in (*self._addresses.values(), *self.bootstrap_servers)}

    def candidate_addresses(self, node_id: int | None) -> list[Address]:
        """Return the addresses to try for this node's port, best first; None is the bootstrap port.

        Learnt brokers come last, for the case that all bootstrap servers have moved.
        """
        if node_id is not None and node_id in self._addresses:
            return [self._addresses[node_id]]
        self._turn = (self._turn + 1) % len(self.bootstrap_servers)
        in_turn = (*self.bootstrap_servers[self._turn :], *self.bootstrap_servers[: self._turn])
        return list(dict.fromkeys((*in_turn, *self._addresses.values())))


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The node ports of one listener. `held`: nodes with an open port; None: all of them."""

    listener: ListenerSettings
    held: Collection[int | None] | None = None

    def port_of(self, node_id: int) -> int | None:
        """Return the listener's port for the node, or None."""
        listener = self.listener
        if listener.only_node is not None:
            return listener.bind_port if node_id == listener.only_node else None
        if listener.first_node_port is None:
            return None
        if listener.node_ids:
            if node_id not in listener.node_ids:
                return None
            return listener.first_node_port + listener.node_ids.index(node_id)
        port = listener.first_node_port + node_id
        return port if 0 < port <= MAX_PORT else None

    def node_named(self, server_name: str) -> int | None:
        """Return the node whose advertised host equals the requested server name (SNI), or None."""
        before, _, after = self.listener.advertise_host.lower().partition("{node_id}")
        name = server_name.lower()
        number = name[len(before) : len(name) - len(after)]
        is_number = number.isascii() and number.isdigit() and len(number) <= MOST_NODE_DIGITS
        if not is_number or name != f"{before}{int(number)}{after}":
            return None
        return int(number)

    def advertised_address(self, node_id: int) -> Address:
        """Return the address that this listener advertises for the node.

        A node without an open port is advertised at the bootstrap port: never at its real address, nor at a
        port that another process may hold, which would get the clients' passwords. This is logged; clients
        then keep requesting Metadata.
        """
        listener = self.listener
        host = listener.advertise_host.replace("{node_id}", str(node_id))
        is_held = self.held is None or node_id in self.held
        own_port = self.port_of(node_id) if is_held else None
        return host, listener.advertise_port or own_port or listener.bind_port
