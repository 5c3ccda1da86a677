"""The nodes of a cluster: which run, where they listen, and the producer ids they have. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.simulator.brokers.producer_ids import Controller, ProducerIds
from tests.simulator.brokers.sessions import Listener, Session
from tests.simulator.brokers.timers import Delays, Timers
from tests.simulator.brokers.wire import Endpoint

FIRST_PORT: Final = 9092


class Nodes:
    """Nodes 1 to n, each with the same listeners."""

    def __init__(
        self,
        count: int,
        listeners: Iterable[Listener],
        timers: Timers,
        delays: Delays,
        first_producer_id: int = 0,
    ) -> None:
        self.addresses: dict[tuple[int, str], tuple[str, int]] = {}
        """Of (node id, listener), where it is not broker-1:9092 and so on."""
        self.ids = tuple(range(1, count + 1))
        self.down: dict[int, None] = {}
        self.listeners = {listener.name: listener for listener in listeners}
        self.controller = Controller(first_producer_id)
        self._timers, self._delays = timers, delays
        self._producer_ids = {node_id: self._no_block() for node_id in self.ids}
        self._connections = 0

    def _no_block(self) -> ProducerIds:
        return ProducerIds(
            self.controller, lambda granted: self._timers.after(self._delays.controller_ms(), granted)
        )

    @property
    def running(self) -> list[int]:
        return [node_id for node_id in self.ids if node_id not in self.down]

    def connect(self, node_id: int, listener: str) -> Session:
        """Return a new connection. Raises ConnectionRefusedError when the node is down."""
        if node_id in self.down:
            raise ConnectionRefusedError(f"node {node_id} is down")
        self._connections += 1
        return Session(node_id, self.listeners[listener], self._connections)

    def start(self, node_id: int) -> None:
        """The node runs again, and has to ask for a block of producer ids."""
        del self.down[node_id]
        self._producer_ids[node_id] = self._no_block()

    def new_producer_id(self, node_id: int) -> int | None:
        """Return a new id of the node's block; None: it has none yet."""
        return self._producer_ids[node_id].generate()

    def endpoint(self, node_id: int, listener: str) -> Endpoint:
        """Return what answers on this listener say of a node."""
        given = self.addresses.get((node_id, listener))
        return node_id, *(given or (f"broker-{node_id}", FIRST_PORT + list(self.listeners).index(listener)))
