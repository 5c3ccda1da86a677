"""Words and sums about several places, which findings share. Pure. Places come with the most ids first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pidgate.who import wording
from pidgate.who.bounded import Spread
from pidgate.who.picture import Place
from pidgate.who.user_tally import pattern_of


def ids_of(places: Iterable[Place]) -> int:
    """Ids brought; those that were only handed out, where none was brought."""
    places = list(places)
    return sum(place.new_ids for place in places) or sum(len(place.starts_ms) for place in places)


def addresses(places: Iterable[Place]) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(place.address for place in places))


def clients(places: Sequence[Place]) -> str:
    """For example "client producer-*, Java 3.7.0": the first place's, if they are not all alike."""
    names = dict.fromkeys(place.client_ids for place in places)
    if len(names) > 1:
        names = dict.fromkeys(map(pattern_of, names))
    client = (wording.shown(next(iter(names))) or "without name") + (" and others" if len(names) > 1 else "")
    software = wording.software(places[0].software)
    return f"client {client}, {software}" if software else f"client {client}"


def from_places(places: Sequence[Place]) -> str:
    """Where from: addresses and clients."""
    return f"from {wording.listed([wording.shown(address) for address in addresses(places)])} ({clients(places)})"


def each_used_for(places: Sequence[Place]) -> str:
    """How long one id is in use, if that is known; to be put at the end."""
    lives = [place.life_ms for place in places if place.life_ms is not None]
    if not lives:
        return ""
    median = max(lives, key=lambda life: life.count).median
    return f", each in use for {wording.duration(median)}"


def mean(spreads: Iterable[Spread | None]) -> float:
    """Over all of them together; 0 when nothing is known."""
    known = [one for one in spreads if one is not None]
    count = sum(one.count for one in known)
    return sum(one.total for one in known) / count if count else 0.0
