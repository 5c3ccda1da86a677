"""Bounded sums about one user: counts of its ids' marks, its places, a sample of its ids. Pure.

Fed by tally.py, event by event; read by painting.py.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from pidgate.events.definitions import Event
from pidgate.findings.families import family
from pidgate.who.bounded import Names, Sample
from pidgate.who.id_marks import Mark

MOST_NAMES: Final = 500
"""Client ids, software and addresses of one user."""
MOST_PLACES: Final = 300
"""Places of one user. Further addresses of a family are one place without address, and as many families may have one;
all others share one more."""
MOST_PLACE_NAMES: Final = 50
PLACE_IDS_KEPT: Final = 256
"""Newest ids of one place. While they are all of its ids, the place is judged by them, else by the user's sample."""
MOST_CACHED_PLACES: Final = 200
MOST_REFUSED_KEPT: Final = 10_000
"""Refused ids of one user whose return is still waited for."""
IDS_KEPT: Final = 2_000
"""Ids of one user with recorded life and requests; above it, a sample of them."""
CONNECTIONS_KEPT: Final = IDS_KEPT


def software_of(event: Event) -> str:
    """Return name and version, as far as given in ApiVersions."""
    return f"{event.software_name} {event.software_version}".strip()


@dataclass(slots=True, eq=False)
class PlaceTally:
    """One address and family of client ids. There may be very many of them, so each is small."""

    address: str
    family: str
    software: str
    """Of the first id."""
    names: Names = field(default_factory=lambda: Names(MOST_PLACE_NAMES))
    new_ids: int = 0
    refused: tuple[int, int] | None = None
    """The id refused last, and when its throttle ends."""
    ids: dict[int, IdTally] = field(default_factory=dict)
    """The newest ids first seen here, the newest last."""
    is_whole: bool = True
    """Whether these are all."""

    def keep(self, producer_id: int, detail: IdTally, most: int) -> int:
        """Keep one more id, in place of the oldest ones above `most`. Return by how many there are more now."""
        before = len(self.ids)
        self.ids[producer_id] = detail
        while len(self.ids) > most:
            self.is_whole = False
            del self.ids[next(iter(self.ids))]
        return len(self.ids) - before


@dataclass(slots=True, eq=False)
class IdTally:
    """One id of the sample. Times are wall clock."""

    place: PlaceTally
    first_ms: int
    last_ms: int = -1
    """Last reported use; -1: none yet."""
    requests: int = 0
    records: int = 0
    partitions: int = 0
    """Most within one usage event: a lower bound."""
    started_ms: int = -1
    """Its first decision as a new id; -1: none within the window."""
    refused: bool = False
    """Refused and not admitted since."""
    used: bool = False
    transactional: bool = False
    name: str | None = None
    """Hash of its transactional id."""
    error_ms: int = -1
    error_code: int = 0
    connection: ConnectionTally | None = None
    """That of its first batch."""

    @property
    def closed(self) -> tuple[int, bool] | None:
        """Return the end of its connection. One with several new ids says nothing of any of them."""
        return self.connection.closed if self.connection is not None and self.connection.ids == 1 else None


@dataclass(slots=True, eq=False, weakref_slot=True)
class ConnectionTally:
    """Number of new ids on one connection."""

    place: PlaceTally
    ids: int = 0
    closed: tuple[int, bool] | None = None
    """When its client closed it, and whether it was cut. None: it did not."""


class UserTally:
    """All of one user."""

    def __init__(self, name: str, ids_kept: int, connections_kept: int) -> None:
        self.name = name
        self.new = self.admitted = self.refused = self.never_admitted = self.would_refuse = 0
        self.allocated = self.allocated_and_used = self.allocated_for_transactions = self.used = (
            self.transactional
        ) = self.bumped = 0
        self.admitted_after = 0
        """New ids, admitted, that followed a refused one."""
        self.replaced: set[int] = set()
        """Refused ids, not seen since another one took their place. Each is one of `never_admitted`."""
        self.connections_open = 0
        self.client_ids = Names(MOST_NAMES)
        self.software = Names(MOST_NAMES)
        self.addresses = Names(MOST_NAMES)
        self.ids: Sample[IdTally] = Sample(ids_kept)
        self.connections: Sample[ConnectionTally] = Sample(connections_kept)
        self.places: dict[tuple[str, str], PlaceTally] = {}
        self._places_by_client: dict[tuple[str, str], PlaceTally] = {}
        # Just allocated: not unused yet.
        self.recent: deque[tuple[int, int]] = deque(maxlen=10_000)
        self.waiting: dict[int, int] = {}
        """When the latest throttle of a refused id ends: the client may still come back. The latest refused last."""

    def place(self, event: Event, most_places: int) -> PlaceTally:
        """Return a client's place; above `most_places` others, that of its family at further addresses."""
        known = self._places_by_client.get((event.address, event.client_id))
        if known is not None:
            return known
        if len(self._places_by_client) >= MOST_CACHED_PLACES:
            self._places_by_client.clear()
        key = event.address, family(event.client_id)
        if key not in self.places and len(self.places) >= most_places:
            # A job that begins in a new pod each time has an address for each of its ids.
            key = "", key[1]
            if key not in self.places and len(self.places) >= 2 * most_places:
                key = "", ""
        found = self.places.get(key)
        if found is None:
            found = self.places[key] = PlaceTally(*key, software_of(event))
        self._places_by_client[event.address, event.client_id] = found
        return found

    def note_refusal(self, producer_id: int, until_ms: int) -> None:
        self.waiting.pop(producer_id, None)
        if len(self.waiting) >= MOST_REFUSED_KEPT:
            del self.waiting[next(iter(self.waiting))]
        self.waiting[producer_id] = until_ms

    def count(self, marks: int, before: int) -> None:
        """Count marks set for one of this user's ids, given its earlier marks `before`."""
        added = marks & ~before
        if not added:
            return
        self.new += added & Mark.NEW and 1
        self.admitted += added & Mark.ADMITTED and 1
        self.refused += added & Mark.REFUSED and 1
        self.would_refuse += added & Mark.WOULD_REFUSE and 1
        self.allocated += added & Mark.ALLOCATED and 1
        self.used += added & Mark.USED and 1
        self.transactional += added & Mark.TRANSACTIONAL and 1
        self.bumped += added & Mark.BUMPED and 1
        # A transactional id is kept for the next start, whether it is used or not.
        of_transactions = (marks | before) & Mark.TRANSACTIONAL
        both = Mark.ALLOCATED | Mark.USED
        if added & Mark.ALLOCATED and of_transactions:
            self.allocated_for_transactions += 1
        elif not of_transactions and (marks | before) & both == both and before & both != both:
            self.allocated_and_used += 1
        if added & Mark.ADMITTED and before & Mark.REFUSED:
            self.never_admitted -= 1
        elif added & Mark.REFUSED and not (marks | before) & Mark.ADMITTED:
            self.never_admitted += 1
