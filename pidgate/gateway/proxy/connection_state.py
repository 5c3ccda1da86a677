"""Connection states, their transitions, and the diagram of them. PURE.

There are two state machines. `Life` covers the connection from its first socket to its last
(ClientConnection). `Intake` decides whether the next request is forwarded, answered or held (Conversation).

`python -m pidgate.gateway.proxy.connection_state` prints the diagram in docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final


class Intake(IntEnum):
    """The treatment of the next request."""

    OPEN = 0
    """It is forwarded, or answered here."""
    AUTHENTICATING = 1
    """A SASL request is in flight: ApiVersions and SASL are forwarded, all other requests are held."""
    MUTED = 2
    """It is held until the deadline, but a Produce that would be refused anyway is answered."""
    MUTED_AUTHENTICATING = 3
    """Both MUTED and AUTHENTICATING: it is held."""
    HOLDING = 4
    """Earlier requests are held: it is held behind them."""
    UNAUTHENTICATED = 5
    """A login is missing: ApiVersions and SASL are forwarded. Other requests end the connection, or are held
    while it is unknown whether a login is required."""


class IntakeEvent(IntEnum):
    """Events that change the intake."""

    SASL_SENT = 0
    SASL_ANSWERED = 1
    """No SASL request is in flight any more."""
    MUTE = 2
    MUTE_ENDED = 3
    HOLD = 4
    """A request was held."""
    RELEASED = 5
    """No request is held any more. SASL_SENT, LOGIN_MISSING and MUTE follow if they still apply."""
    LOGIN_MISSING = 6
    LOGIN_NEEDLESS = 7


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


OPEN: Final = Intake.OPEN
AUTHENTICATING: Final = Intake.AUTHENTICATING
MUTED: Final = Intake.MUTED
MUTED_AUTHENTICATING: Final = Intake.MUTED_AUTHENTICATING
HOLDING: Final = Intake.HOLDING
UNAUTHENTICATED: Final = Intake.UNAUTHENTICATED

INTAKE: Final[Mapping[tuple[Intake, IntakeEvent], Intake]] = {
    (OPEN, IntakeEvent.SASL_SENT): AUTHENTICATING,
    (OPEN, IntakeEvent.MUTE): MUTED,
    (OPEN, IntakeEvent.HOLD): HOLDING,
    (AUTHENTICATING, IntakeEvent.SASL_ANSWERED): OPEN,
    (AUTHENTICATING, IntakeEvent.MUTE): MUTED_AUTHENTICATING,
    (AUTHENTICATING, IntakeEvent.HOLD): HOLDING,
    (MUTED, IntakeEvent.MUTE_ENDED): OPEN,
    (MUTED, IntakeEvent.HOLD): HOLDING,
    (MUTED_AUTHENTICATING, IntakeEvent.MUTE_ENDED): AUTHENTICATING,
    (MUTED_AUTHENTICATING, IntakeEvent.SASL_ANSWERED): MUTED,
    (MUTED_AUTHENTICATING, IntakeEvent.HOLD): HOLDING,
    (HOLDING, IntakeEvent.RELEASED): OPEN,
    (OPEN, IntakeEvent.LOGIN_MISSING): UNAUTHENTICATED,
    (UNAUTHENTICATED, IntakeEvent.SASL_SENT): AUTHENTICATING,
    (UNAUTHENTICATED, IntakeEvent.HOLD): HOLDING,
    (UNAUTHENTICATED, IntakeEvent.LOGIN_NEEDLESS): OPEN,
}
"""A missing entry leaves the state unchanged."""

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
    """Return both machines as one Mermaid flowchart, one line per state. The intake belongs to CONNECTED."""
    lines = ["flowchart LR", *_arrows(Life, LIFE), "  subgraph CONNECTED", *_arrows(Intake, INTAKE), "  end"]
    return "\n".join(lines) + "\n"


def _arrows(
    states: type[IntEnum],
    table: Mapping[tuple[Intake, IntakeEvent], Intake] | Mapping[tuple[Life, LifeEvent], Life],
) -> Iterator[str]:
    for state in states:
        leaving = {event: after for (before, event), after in table.items() if before is state}
        if leaving:
            yield "  " + "; ".join(
                f"{state.name} -- {event.name} --> {after.name}" for event, after in leaving.items()
            )


if __name__ == "__main__":
    print(diagram(), end="")
