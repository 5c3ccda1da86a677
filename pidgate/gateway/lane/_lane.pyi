"""The C extension (module.c). Built where there is a compiler; everything works without it."""

from typing import Any

from pidgate.quota import grants

class Cell:
    """A number that ends grants (quota/grants.py)."""

    def bump(self) -> None:
        """Change it. Afterwards no lane passes a request under an earlier number."""

class Apis:
    """APIs that pass without a handler (core.h)."""

    def __init__(
        self, passing: list[tuple[int, int, int]], guarded: list[int], needles: list[bytes], /
    ) -> None:
        """`passing`: API key, version, Passing. `guarded`: API keys of requests that must contain no needle."""

Produce = tuple[bytes, bytes, bytes, int, int, bool, int, int, int, list[tuple[bytes, bytes | None]]]
"""head, same, id, version, acks, is_transactional, until_ms, most_streamed_bytes, leased_bytes, topics with allowed
partitions as 128 bytes of bits, lowest first (None: all)."""
InFlight = tuple[int, int, int, int]
"""Correlation id, API key, version, Passing."""
Counted = tuple[int, int, int, int, int, int, int, int, int, list[tuple[bytes, bytes]]]
"""See lanes.Counted."""
Left = tuple[
    Counted,
    bytes,
    bytes,
    bytes,
    bytes,
    list[InFlight],
    int,
    tuple[int, int, int, bytes, int] | None,
    int,
    tuple[int, int, int, int, int, bytes] | None,
    int,
]
"""See lanes.Left."""

class Lane:
    """One thread with its connections. The constructor starts it, and raises OSError where it cannot.

    Without a thread, it carries what is read elsewhere (`carry`).
    """

    def __init__(self, has_thread: bool = True, /) -> None: ...

    lent: int
    """Connections that are lent now."""

    def fileno(self) -> int:
        """Return a descriptor that can be read when connections have left."""

    def lend(
        self,
        owner: object,
        client: int,
        broker: int,
        produce: Produce | None,
        apis: Apis,
        everything: grants.Cell,
        of_id: grants.Cell,
        in_flight: list[InFlight],
        /,
    ) -> int:
        """Carry between two descriptors that nobody else reads or writes; return a handle. Raises OSError.

        Both cells have to be of this module.
        """

    def carry(self, handle: int, is_request: bool, data: bytes, /) -> bytes | None:
        """Return what to send to the other side. None: take it back, with what came before in its rest.

        For a lane without a thread, where both descriptors are -1. `data` has been read from the client
        (`is_request`) or the broker.
        """

    def take_back(self, handle: int, /) -> Left | None:
        """End a lending now. None: it has left, and was taken."""

    def take_left(self) -> list[tuple[Any, Left]]:
        """Return those that have left by themselves, with their owners."""

    def take_counts(self, most: int, /) -> list[tuple[Any, Counted]]:
        """Return what was carried since the last call, of so many connections that carried something."""

    def take_requests(self) -> list[tuple[int, int]]:
        """Return how many requests of each API key passed since the last call."""

    def stop(self) -> None:
        """End all lendings, without a word to their owners, and the thread."""
