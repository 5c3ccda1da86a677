"""What a connection's client is owed, in order: answers of the broker to come, and answers of our own between them.

PURE. The broker's answers are matched by position; one of our own leaves when everything before it has passed.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.proxy.treatments import Treatment
from pidgate.protocol.errors import MalformedFrame

MOST_IN_FLIGHT: Final = 4096
"""Requests that wait for an answer; beyond it reading pauses. Brokers work on one at a time (KIP-219)."""

_SASL_HANDSHAKE: Final = Treatment.SASL_HANDSHAKE
_SASL_AUTHENTICATE: Final = Treatment.SASL_AUTHENTICATE


class Forwarded:
    """A request that the broker will answer, and what is to become of its answer."""

    __slots__ = ("api_key", "api_version", "correlation_id", "note", "treatment")

    def __init__(
        self, correlation_id: int, treatment: Treatment, api_key: int, api_version: int, note: object = None
    ) -> None:
        self.correlation_id = correlation_id
        self.treatment = treatment
        self.api_key = api_key
        self.api_version = api_version
        self.note = note
        """What has to be known of the request when its answer comes."""


class InFlightRequests:
    """The line of one connection."""

    __slots__ = ("_line", "out", "sasl_in_flight")

    def __init__(self) -> None:
        # Lists, both of them: few have more than five, and an empty deque is 700 bytes of every idle connection.
        self._line: list[Forwarded | bytes] = []
        self.out: list[bytes] = []
        """Framed answers of our own whose turn has come: send and clear."""
        self.sasl_in_flight = 0

    def __len__(self) -> int:
        return len(self._line)

    def forwarded(self, request: Forwarded) -> bool:
        """The broker owes an answer. Says whether the line is full."""
        line = self._line
        line.append(request)
        if _is_sasl(request.treatment):
            self.sasl_in_flight += 1
        return len(line) >= MOST_IN_FLIGHT

    def own(self, answer: bytes) -> None:
        """A framed answer of our own."""
        if self._line:
            self._line.append(answer)
        else:
            self.out.append(answer)

    def expect(self, correlation_id: int) -> Forwarded:
        """The request that the broker's next answer belongs to.

        Raises MalformedFrame when there is none, or when it carries another correlation id: the two sides
        no longer agree where frames begin, and nothing after this point could be trusted.
        """
        head = self._line[0] if self._line else None
        if not isinstance(head, Forwarded) or head.correlation_id != correlation_id:
            raise MalformedFrame(
                f"the broker answered {correlation_id}, which is not the next request in flight"
            )
        return head

    def next_alone(self) -> Forwarded | None:
        """The request that the broker answers next, if no answer of our own waits right behind it."""
        line = self._line
        if not line or (len(line) > 1 and isinstance(line[1], bytes)):
            return None
        head = line[0]
        return head if isinstance(head, Forwarded) else None

    def answered(self) -> None:
        """The answer of the request at the head has passed; answers of ours behind it have their turn now."""
        line = self._line
        head = line.pop(0)
        if self.sasl_in_flight and isinstance(head, Forwarded) and _is_sasl(head.treatment):
            self.sasl_in_flight -= 1
        while line:
            answer = line[0]
            if isinstance(answer, Forwarded):
                return
            self.out.append(answer)
            line.pop(0)


def _is_sasl(treatment: Treatment) -> bool:
    return treatment is _SASL_HANDSHAKE or treatment is _SASL_AUTHENTICATE
