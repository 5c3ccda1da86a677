"""The brokers of the cluster: their real addresses, and the one that each listener advertises for them.

Real addresses are learnt from the brokers' own answers as they pass; advertised ones are made from the listener's
`advertise` and a port. No socket is opened here: `on_new_node` is called before the answer that mentions a new node
leaves, so that a client never connects to a port on which nothing listens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Address = tuple[str, int]

MAX_PORT = 65535
MOST_NODE_DIGITS = 9
"""Node ids are positive and 32 bits wide; none has more digits than this."""


class Advertising(Protocol):
    """The part of a listener's configuration that is about the addresses it shows."""

    @property
    def name(self) -> str: ...
    @property
    def advertise_host(self) -> str: ...
    @property
    def advertise_port(self) -> int | None: ...
    @property
    def bind_port(self) -> int: ...
    @property
    def first_node_port(self) -> int | None: ...
    @property
    def node_ids(self) -> Sequence[int]: ...
    @property
    def only_node(self) -> int | None: ...


class Nodes:
    """Node id -> real address, shared by all listeners of the process."""

    def __init__(self, bootstrap_servers: Sequence[Address]) -> None:
        self.bootstrap_servers = tuple(bootstrap_servers)
        self._addresses: dict[int, Address] = {}
        self._turn = 0
        self.on_new_node: Callable[[int], None] = lambda _node_id: None
        self.on_address: Callable[[int], None] = lambda _node_id: None
        """Called when a node is learnt, anew or elsewhere than before."""

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Learn from a broker's answer that `node_id` is at host:port."""
        known = self._addresses.get(node_id)
        if known == (host, port):
            return
        self._addresses[node_id] = (host, port)
        if known is None:
            self.on_new_node(node_id)
        self.on_address(node_id)

    def forget(self, node_id: int, address: Address) -> None:
        """Forget an address that does not answer; until the node is learnt again a bootstrap server stands in.

        A client that knows this one broker only would otherwise be stranded: the Metadata answer with the broker's
        new address can reach it (and the gateway) through another broker alone.
        """
        if self._addresses.get(node_id) == address:
            del self._addresses[node_id]

    def knows(self, node_id: int | None) -> bool:
        """Return whether the node's address is known; that of no node (None) is not."""
        return node_id in self._addresses

    @property
    def known(self) -> dict[int, Address]:
        """Node id -> real address, as learnt so far (a copy)."""
        return dict(self._addresses)

    def candidates(self, node_id: int | None) -> list[Address]:
        """Return the addresses to connect to for this node's port, first choice first; None is the bootstrap port.

        Brokers that were learnt come last: they are needed when all bootstrap servers have moved away.
        """
        if node_id is not None and node_id in self._addresses:
            return [self._addresses[node_id]]
        self._turn = (self._turn + 1) % len(self.bootstrap_servers)
        in_turn = (*self.bootstrap_servers[self._turn :], *self.bootstrap_servers[: self._turn])
        return list(dict.fromkeys((*in_turn, *self._addresses.values())))


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of one listener, each of which stands for a node."""

    listener: Advertising

    def port_of(self, node_id: int) -> int | None:
        """The port that this listener opens for the node, None where it opens none."""
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
        """Return the node whose advertised host a client asked for (SNI); None: it is no node's."""
        before, _, after = self.listener.advertise_host.lower().partition("{node_id}")
        name = server_name.lower()
        number = name[len(before) : len(name) - len(after)]
        is_number = number.isascii() and number.isdigit() and len(number) <= MOST_NODE_DIGITS
        if not is_number or name != f"{before}{int(number)}{after}":
            return None
        return int(number)

    def advertised(self, node_id: int) -> Address:
        """Return the address that clients of this listener are shown for the node.

        A node without a port of its own is shown at the bootstrap port: never at its real address.
        The gateway says so in its log; such a client keeps asking for Metadata, and nothing leaks.
        """
        listener = self.listener
        host = listener.advertise_host.replace("{node_id}", str(node_id))
        port = listener.advertise_port or self.port_of(node_id) or listener.bind_port
        return host, port
