"""Picture of a cluster's users in plain values, for findings and reports. Pure.

Counts of ids are exact. Lives and requests per id come from a sample when a user has very many ids
(`one_in`), but for places with few; numbers of ids derived from it are scaled up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pidgate.findings.cadence import Start
from pidgate.quota.entities import EffectiveQuota
from pidgate.who.bounded import Spread
from pidgate.who.coverage import Coverage
from pidgate.who.sequences import Lost


@dataclass(frozen=True, slots=True)
class Window:
    """Wall clock.

    `given_from_ms`: as given by --since. `from_ms` is later when the topic does not reach back that far.
    """

    from_ms: int
    to_ms: int
    given_from_ms: int

    @property
    def length_ms(self) -> int:
        return self.to_ms - self.from_ms


@dataclass(frozen=True, slots=True)
class Named:
    """The most frequent of some names. `names`: the number of names, at least (`more_than_counted`: more)."""

    top: tuple[tuple[str, int], ...] = ()
    names: int = 0
    more_than_counted: bool = False


@dataclass(frozen=True, slots=True)
class Life:
    """One producer id.

    `started_ms` None: known from before the window. `requests` None: usage is not reported.
    """

    started_ms: int | None
    seen_ms: int
    end_ms: int
    """Last reported use; the end of the window for an id in use, `seen_ms` for a refused one."""
    gone_ms: int
    """When its client closed or cut its connection, not before `end_ms`; else `end_ms`."""
    was_cut: bool | None = None
    """None: not closed by its client."""
    requests: int | None = None
    refused: bool = False
    failed: bool = False
    """Its last use ended with an error."""
    error_code: int | None = None
    transactional: bool = False
    name: str | None = None
    one_in: int = 1
    """Ids for which it stands; above 1 it comes from the user's sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Producers of one address with client ids of one family (`producer-1`, `producer-2`: `producer-*`)."""

    address: str
    family: str
    client_ids: str
    """The single client id, or the family."""
    names: int = 1
    """Different client ids, counted up to 50."""
    software: str = ""
    new_ids: int = 0
    starts: tuple[Start, ...] = ()
    """Starts of new ids, of the newest 256."""
    lives: tuple[Life, ...] = ()
    """Lives of ids that produced or tried to: of all, or of the user's sample where the place has more than 256."""
    ids_per_connection: float | None = None


@dataclass(frozen=True, slots=True)
class QuotaShown:
    """The quota in force for a user, and its source: a gateway's name, or "file"."""

    effective: EffectiveQuota
    window_ms: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPicture:
    """One user within the window. `user` is "" for users of an unreadable mechanism."""

    user: str
    new_ids: int = 0
    """Created ids: unseen ones that were admitted or refused."""
    admitted_ids: int = 0
    refused_ids: int = 0
    """Refused at least once."""
    never_admitted_ids: int = 0
    would_refuse_ids: int = 0
    allocated_ids: int = 0
    """Allocated in answers that passed."""
    unused_ids: int = 0
    """Allocated without a transactional id and never used to produce, without the last minute."""
    used_ids: int = 0
    """All ids that produced, known ones included."""
    transactional_ids: int = 0
    bumped_ids: int = 0
    long_lived_ids: int = 0
    gave_up: int = 0
    """Refused, never admitted, and not seen again after their throttle."""
    after_refusal_ids: int = 0
    """Refused, never admitted, and replaced by another new one of the same place in the same breath."""
    unprompted_ids: int = 0
    """New, admitted, and no one had been refused a moment before."""
    open_connections: int = 0
    """Opened and not closed within the window."""
    client_ids: Named = Named()
    software: Named = Named()
    addresses: Named = Named()
    ids_per_connection: Spread | None = None
    life_ms: Spread | None = None
    requests: Spread | None = None
    records: Spread | None = None
    partitions: Spread | None = None
    open_ids: int = 0
    one_in: int = 1
    quota: QuotaShown | None = None
    places: tuple[Place, ...] = ()

    @property
    def returned_ids(self) -> int:
        """Return the number of ids in use that were known before."""
        return max(0, self.used_ids - self.new_ids)


@dataclass(frozen=True, slots=True)
class SharedId:
    """A producer id that several users produced with."""

    producer_id: int
    users: tuple[str, ...]


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
    """Sorted by new ids, most first."""
    users_beyond: int
    """Events of users without room."""
    lost: tuple[Lost, ...]
    coverage: Coverage | None
    ids_beyond: int
    notes: tuple[str, ...] = field(default=())
    shared_ids: tuple[SharedId, ...] = field(default=())

    @property
    def lost_events(self) -> int:
        return sum(lost.events for lost in self.lost)
