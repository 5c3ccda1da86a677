"""Picture of a cluster's users in plain values, for findings and reports. Pure.

Counts of ids are exact. Lives and requests per id come from a sample when a user has very many ids
(`one_in`); numbers of ids derived from it are scaled up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pidgate.quota.entities import EffectiveQuota
from pidgate.who.bounded import Spread
from pidgate.who.coverage import Coverage
from pidgate.who.sequences import Lost


@dataclass(frozen=True, slots=True)
class Window:
    """Wall clock. `given_from_ms`: as given by --since; `from_ms` is later when the topic does not reach back."""

    from_ms: int
    to_ms: int
    given_from_ms: int

    @property
    def length_ms(self) -> int:
        return self.to_ms - self.from_ms


@dataclass(frozen=True, slots=True)
class Named:
    """The most frequent of some names. `names`: how many there are, at least (`more_than_counted`: more)."""

    top: tuple[tuple[str, int], ...] = ()
    names: int = 0
    more_than_counted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Producers of one address whose client ids are alike (`producer-1`, `producer-2`: `producer-*`)."""

    address: str
    client_ids: str
    distinct_client_ids: int = 1
    """Counted up to 50."""
    counted_up: bool = False
    """They end in numbers that lie close together: producer-1, producer-2."""
    software: str = ""
    new_ids: int = 0
    starts_ms: tuple[int, ...] = ()
    """Times at which ids were first seen (wall clock, ascending): the newest 256."""
    requests: Spread | None = None
    """Per id that is over; likewise records and life."""
    records: Spread | None = None
    life_ms: Spread | None = None
    """From first sight to last use; to now for ids still in use."""
    open_ids: int = 0
    peak_alive: int = 0
    """Most ids in use at the same time."""
    long_lived_ids: int = 0
    unused_ids: int = 0
    ids_per_connection: Spread | None = None


@dataclass(frozen=True, slots=True)
class QuotaShown:
    """The quota in force for a user, and where that is known from: a gateway's name, or "file"."""

    effective: EffectiveQuota
    window_ms: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPicture:
    """One user within the window. `user` is "" for those whose mechanism cannot be read."""

    user: str
    new_ids: int = 0
    """Ids brought: unseen ones that were admitted or refused."""
    admitted_ids: int = 0
    refused_ids: int = 0
    """Refused at least once."""
    never_admitted_ids: int = 0
    would_refuse_ids: int = 0
    allocated_ids: int = 0
    """Handed out in answers that passed."""
    unused_ids: int = 0
    """Handed out and never produced with, the last minute left out."""
    used_ids: int = 0
    """All that produced, known ones too."""
    transactional_ids: int = 0
    bumped_ids: int = 0
    long_lived_ids: int = 0
    gave_up: int = 0
    suppressed_refusals: int = 0
    client_ids: Named = Named()
    software: Named = Named()
    addresses: Named = Named()
    ids_per_connection: Spread | None = None
    life_ms: Spread | None = None
    requests: Spread | None = None
    records: Spread | None = None
    open_ids: int = 0
    one_in: int = 1
    quota: QuotaShown | None = None
    places: tuple[Place, ...] = ()

    @property
    def returned_ids(self) -> int:
        """Number of ids in use that were known from before."""
        return max(0, self.used_ids - self.new_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that `pidgate who` prints."""

    topic: str
    cluster: str
    window: Window
    events: int
    duplicates: int
    unreadable: int
    gateways: tuple[str, ...]
    users: tuple[UserPicture, ...]
    """By new ids, most first."""
    users_beyond: int
    """Events of users that found no room."""
    lost: tuple[Lost, ...]
    coverage: Coverage | None
    ids_beyond: int
    notes: tuple[str, ...] = field(default=())

    @property
    def lost_events(self) -> int:
        return sum(lost.events for lost in self.lost)
