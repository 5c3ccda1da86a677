"""Unanswered requests of one connection in order, with the gateway's own answers in between. PURE.

The broker's answers are matched by position. An answer of the gateway's own leaves after all earlier ones
have passed.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.apis.api import InFlightRequest
from pidgate.protocol.errors import MalformedFrame

MOST_IN_FLIGHT: Final = 4096
"""Most unanswered requests; above it reading pauses. Brokers work on one at a time (KIP-219)."""


class InFlightRequests:
    """The requests of one connection."""

    __slots__ = ("_in_order", "out", "own_bytes", "sasl_in_flight")

    def __init__(self) -> None:
        # Lists, because few connections have more than five and an empty deque takes 700 bytes of every idle
        # one.
        self._in_order: list[InFlightRequest | bytes] = []
        self.out: list[bytes] = []
        """The gateway's own framed answers whose turn has come, to be sent and cleared."""
        self.sasl_in_flight = 0
        self.own_bytes = 0
        """Bytes of the gateway's own answers that wait for their turn."""

    def __len__(self) -> int:
        return len(self._in_order)

    def add(self, request: InFlightRequest) -> bool:
        """Add a request sent to the broker. Returns whether there is no room for another."""
        in_order = self._in_order
        in_order.append(request)
        if request.api.authenticates:
            self.sasl_in_flight += 1
        return len(in_order) >= MOST_IN_FLIGHT

    def respond(self, answer: bytes) -> None:
        """Add a framed answer of the gateway's own."""
        if self._in_order:
            self._in_order.append(answer)
            self.own_bytes += len(answer)
        else:
            self.out.append(answer)

    def expect(self, correlation_id: int) -> InFlightRequest:
        """Return the request of the broker's next answer.

        Raises MalformedFrame when there is none, or when the correlation id differs: frame boundaries are
        lost then, and no later byte can be trusted.
        """
        head = self._in_order[0] if self._in_order else None
        if not isinstance(head, InFlightRequest) or head.correlation_id != correlation_id:
            raise MalformedFrame(
                f"the broker answered {correlation_id}, which is not the next request in flight"
            )
        return head

    def next_alone(self) -> InFlightRequest | None:
        """Return the request of the broker's next answer, unless an own answer waits directly behind it."""
        in_order = self._in_order
        if not in_order or (len(in_order) > 1 and isinstance(in_order[1], bytes)):
            return None
        head = in_order[0]
        return head if isinstance(head, InFlightRequest) else None

    def answered(self) -> None:
        """Remove the request whose answer has passed; the gateway's own answers behind it are next."""
        in_order = self._in_order
        head = in_order.pop(0)
        if self.sasl_in_flight and isinstance(head, InFlightRequest) and head.api.authenticates:
            self.sasl_in_flight -= 1
        while in_order:
            answer = in_order[0]
            if isinstance(answer, InFlightRequest):
                return
            self.out.append(answer)
            self.own_bytes -= len(answer)
            in_order.pop(0)

    def drop_own(self) -> None:
        """Drop the gateway's own waiting answers: the client is gone."""
        self._in_order = [one for one in self._in_order if isinstance(one, InFlightRequest)]
        self.own_bytes = 0
