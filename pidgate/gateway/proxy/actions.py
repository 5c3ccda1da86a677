"""Actions: a session returns them, in order, to the code that owns the sockets (client_connection.py). PURE."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pidgate.client_faults import ClientFault
from pidgate.gateway.quotas.kafka_api import QuotaExchange
from pidgate.protocol.messages import Question
from pidgate.quota.byte_quota import ByteBucket
from pidgate.quota.decisions import Refuse
from pidgate.quota.entities import User


class Signal(IntEnum):
    """Actions without a value."""

    PASS_FRAME = 0
    """Forward the received frame unchanged. Always the first action."""
    WAITING = 1
    """More requests or answers wait: compare them with their bounds."""
    IDENTIFIED = 2
    """The user has changed: count the connection for this user."""
    LOGIN_OVER = 3
    """The required login has succeeded, or none is required."""


PASS_FRAME: Final = Signal.PASS_FRAME
WAITING: Final = Signal.WAITING
IDENTIFIED: Final = Signal.IDENTIFIED
LOGIN_OVER: Final = Signal.LOGIN_OVER

# Not frozen: a frozen slotted dataclass takes three times as long to create.


@dataclass(slots=True)
class ToBroker:
    """Send a framed request to the broker."""

    frame: bytes | bytearray


@dataclass(slots=True)
class ToClient:
    """Send a framed answer of the gateway's own to the client."""

    answer: bytes


@dataclass(slots=True)
class WakeAt:
    """Call `Session.wake` at this time, or earlier."""

    when_ms: int


@dataclass(slots=True)
class WaitForAccount:
    """Call `Session.wake` when the debt of this byte account is paid and no other connection came before."""

    account: ByteBucket


@dataclass(slots=True)
class LogRefusal:
    """Log a refusal."""

    refusal: Refuse


@dataclass(slots=True)
class LogClient:
    """Log that a client's library has these faults."""

    name: str
    version: str
    faults: tuple[ClientFault, ...]


@dataclass(slots=True)
class LogGatewayTopic:
    """Log a request of this API that named a gateway topic."""

    api_key: int


@dataclass(slots=True)
class FindOwner:
    """Look up the owner of a delegation token, then call `Session.owner_found`."""

    token_id: str


@dataclass(slots=True)
class AskBroker:
    """Find the broker's answer to a question, then call `Session.broker_answered`."""

    question: Question


@dataclass(slots=True)
class AlterQuotas:
    """Check or make the changes of an exchange, then call `Session.quotas_altered`."""

    exchange: QuotaExchange


class OwnQuestion:
    """A held question of a client about its own user. `answer` None: not made yet; empty: it failed."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: str | None = None

    @property
    def is_over(self) -> bool:
        return self.answer is not None


@dataclass(slots=True)
class TellUser:
    """Answer a client's question about its own user, this one, then call `Session.wake`."""

    user: User
    question: OwnQuestion


@dataclass(slots=True)
class End:
    """Close the connection once everything before it has been sent. Always the last action."""

    cause: str
    """A short label for metrics."""
    reason: str
    """A sentence for the log."""


Action = (
    Signal
    | ToBroker
    | ToClient
    | WakeAt
    | WaitForAccount
    | LogRefusal
    | LogClient
    | LogGatewayTopic
    | FindOwner
    | AskBroker
    | AlterQuotas
    | TellUser
    | End
)
