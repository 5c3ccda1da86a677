"""A simulated connection: how the network treats it, and what can be done to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulator.transport import End


class Mark(Enum):
    """What travels between bytes."""

    FIN = "fin"
    RST = "rst"


@dataclass(slots=True)
class Weather:
    """How the network treats a connection; a link has its own, drawn when it is made, which may be changed.

    `recut`: share of writes that arrive in pieces. `capacity_bytes`: of both kernels' buffers, for each direction.
    """

    shortest_delay_s: float = 0.0001
    longest_delay_s: float = 0.003
    recut: float = 0.1
    capacity_bytes: int = 256 * 1024


class Link:
    """A connection: two ends. `cut` resets it, `hold` and `release` stop and free what is on its way.

    `hold_answers` stops what is for the client only; `half_close` ends what comes from it. Where `is_read_on_demand`,
    what comes for the client behind its first Produce waits until it is let arrive, one write after another.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        weather: Weather,
        random: Random,
        trace: list[Any] | None,
    ) -> None:
        self.name = name
        self.loop = loop
        self.weather = weather
        self.random = random
        self.trace = trace
        self.written: list[Any] | None = None
        self.is_read_on_demand = False
        self.breaks_off: Mark | None = None
        """Comes in the middle of the client's next Produce, behind which nothing more arrives."""
        self.is_broken_off = False
        self.client: End
        self.server: End

    def __repr__(self) -> str:
        return f"<Link {self.name}>"

    def join(self, client: End, server: End) -> None:
        self.client, self.server = client, server
        client.peer, server.peer = server, client

    @property
    def is_open(self) -> bool:
        """Whether a kernel still has one of the ends."""
        return not (self.client.is_gone and self.server.is_gone)

    def delay_s(self) -> float:
        weather = self.weather
        return weather.shortest_delay_s + self.random.random() * (
            weather.longest_delay_s - weather.shortest_delay_s
        )

    def cut(self) -> None:
        """Reset both ends, as a firewall does that has forgotten it; of what is on its way, some may arrive."""
        for end in (self.client, self.server):
            end.lose_some_on_its_way()
            end.arrives(Mark.RST)

    def hold(self) -> None:
        """Let nothing arrive any more, until `release`."""
        self.client.is_held = self.server.is_held = True

    def hold_answers(self) -> None:
        """Let nothing arrive at the client any more, until `release`."""
        self.client.is_held = True

    def half_close(self) -> None:
        """Have the server see the end of what the client sends, as if that had shut down its side."""
        self.server.arrives(Mark.FIN)

    def release(self) -> None:
        """Let everything arrive again."""
        self.is_read_on_demand = False
        for end in (self.client, self.server):
            end.is_held = False
            end.travel_on()
