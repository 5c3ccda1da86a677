"""Connection states, their transitions, and the diagram of them. PURE.

`Life` covers the connection from its first socket to its last (ClientConnection). Whether a request is
forwarded, answered or held is no state of its own: `Session` derives it from what waits at that moment.

`python -m pidgate.gateway.proxy.connection_state` prints the diagram in docs/explanation/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final


class Life(IntEnum):
    """Life of a connection. Later states are greater."""

    ACCEPTED = 0
    """No request for a broker has arrived: no broker is dialled."""
    CONNECTING = 1
    """The broker is being dialled: requests for it wait."""
    CONNECTED = 2
    DRAINING = 3
    """The gateway stops: reading has ended, requests in flight are answered."""
    HALF_CLOSED = 4
    """The client sends no more: requests in flight are answered."""
    CLOSING = 5
    """Only bytes already written are still sent."""
    CLOSED = 6


class LifeEvent(IntEnum):
    """Events that change the life."""

    DIAL = 0
    """The first request for a broker."""
    BROKER_CONNECTED = 1
    DRAIN = 2
    CLIENT_EOF = 3
    CLOSE = 4
    """All requests in flight were answered, or the connection ends for a cause."""
    LOST = 5
    """The client's socket is closed."""


LIFE: Final[Mapping[tuple[Life, LifeEvent], Life]] = {
    (Life.ACCEPTED, LifeEvent.DIAL): Life.CONNECTING,
    (Life.ACCEPTED, LifeEvent.DRAIN): Life.DRAINING,
    (Life.ACCEPTED, LifeEvent.CLIENT_EOF): Life.HALF_CLOSED,
    (Life.ACCEPTED, LifeEvent.CLOSE): Life.CLOSING,
    (Life.ACCEPTED, LifeEvent.LOST): Life.CLOSED,
    (Life.CONNECTING, LifeEvent.BROKER_CONNECTED): Life.CONNECTED,
    (Life.CONNECTING, LifeEvent.DRAIN): Life.DRAINING,
    (Life.CONNECTING, LifeEvent.CLIENT_EOF): Life.HALF_CLOSED,
    (Life.CONNECTING, LifeEvent.CLOSE): Life.CLOSING,
    (Life.CONNECTING, LifeEvent.LOST): Life.CLOSED,
    (Life.CONNECTED, LifeEvent.DRAIN): Life.DRAINING,
    (Life.CONNECTED, LifeEvent.CLIENT_EOF): Life.HALF_CLOSED,
    (Life.CONNECTED, LifeEvent.CLOSE): Life.CLOSING,
    (Life.CONNECTED, LifeEvent.LOST): Life.CLOSED,
    (Life.DRAINING, LifeEvent.CLIENT_EOF): Life.HALF_CLOSED,
    (Life.DRAINING, LifeEvent.CLOSE): Life.CLOSING,
    (Life.DRAINING, LifeEvent.LOST): Life.CLOSED,
    (Life.HALF_CLOSED, LifeEvent.CLOSE): Life.CLOSING,
    (Life.HALF_CLOSED, LifeEvent.LOST): Life.CLOSED,
    (Life.CLOSING, LifeEvent.LOST): Life.CLOSED,
}
"""A missing entry leaves the state unchanged."""


def diagram() -> str:
    """Return the machine as a Mermaid flowchart, one line per state."""
    return "\n".join(["flowchart LR", *_arrows()]) + "\n"


def _arrows() -> Iterator[str]:
    for state in Life:
        leaving = {event: after for (before, event), after in LIFE.items() if before is state}
        if leaving:
            yield "  " + "; ".join(
                f"{state.name} -- {event.name} --> {after.name}" for event, after in leaving.items()
            )


if __name__ == "__main__":
    print(diagram(), end="")
