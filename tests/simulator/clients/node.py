"""A broker as a client knows it."""

from __future__ import annotations

import asyncio

from pidgate.load.plan import Address
from tests.simulator.clients.connection import Connection
from tests.simulator.clients.turns import NEVER


class Node:
    """A broker as a client knows it, and the connection to it if there is one."""

    __slots__ = (
        "address",
        "connection",
        "dialling",
        "failures",
        "last_attempt_s",
        "node_id",
        "retry_at_s",
        "throttled_until_s",
    )

    def __init__(self, node_id: int, address: Address) -> None:
        self.node_id = node_id
        self.address = address
        self.connection: Connection | None = None
        self.dialling: asyncio.Task[None] | None = None
        self.failures = 0
        self.last_attempt_s = -NEVER
        self.retry_at_s = -NEVER
        self.throttled_until_s = -NEVER

    @property
    def is_up(self) -> bool:
        return self.connection is not None and self.connection.is_up

    @property
    def in_flight(self) -> int:
        return len(self.connection.in_flight) if self.connection is not None else 0

    def speaks(self, api_key: int, newest: int) -> int:
        """The version to ask in: the newest of both."""
        assert self.connection is not None
        return min(newest, self.connection.offered.ranges[api_key][1])
