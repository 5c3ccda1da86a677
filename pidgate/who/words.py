"""Words for names from outside, and for several places, as findings use them. Pure.

Places come with the most ids first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pidgate import units
from pidgate.quota.entities import shown
from pidgate.who.bounded import Spread
from pidgate.who.picture import Place
from pidgate.who.user_tally import pattern_of

UNIDENTIFIED: Final = "(unidentified)"
_SOFTWARE: Final = {"apache-kafka-java": "Java"}


def software(name_and_version: str) -> str:
    """Rewrite what ApiVersions names ("apache-kafka-java 3.7.0") as people say it ("Java 3.7.0")."""
    name, _, version = name_and_version.partition(" ")
    return units.printable(f"{_SOFTWARE.get(name, name)} {version}".strip())


def user(name: str) -> str:
    """Return a user's name fit for a terminal, "(unidentified)" for none."""
    return units.printable(shown(name)) or UNIDENTIFIED


def ids_of(places: Iterable[Place]) -> int:
    """Count the ids brought; those that were only handed out, where none was brought."""
    places = list(places)
    return sum(place.new_ids for place in places) or sum(len(place.starts_ms) for place in places)


def addresses(places: Iterable[Place]) -> tuple[str, ...]:
    """Return each address once."""
    return tuple(dict.fromkeys(place.address for place in places))


def clients(places: Sequence[Place], where: str = "") -> dict[str, str]:
    """Return {who}, for example "clients producer-* at 10.0.3.7 (Java 3.7.0)", and the words that agree with it.

    `where`: instead of the places' addresses.
    """
    names = dict.fromkeys(place.client_ids for place in places)
    if len(names) > 1:
        names = dict.fromkeys(map(pattern_of, names))
    first = units.printable(next(iter(names), ""))
    are_several = len(names) != 1 or not first or "*" in first
    client = ("clients" if are_several else "client") + (f" {first}" if first else " without a name")
    client += " and others" if len(names) > 1 else ""
    at = where or units.listed([units.printable(address) for address in addresses(places)])
    by = software(places[0].software) if places else ""
    return {
        "who": f"{client} at {at}{f' ({by})' if by else ''}" if names else "its clients",
        "s": "" if are_several else "s",
        "is_": "are" if are_several else "is",
        "was": "were" if are_several else "was",
        "in_active": "",
    }


def lived(places: Sequence[Place]) -> str:
    """Return {lived}: how long one id is in use, where that is known."""
    lives = [place.life_ms for place in places if place.life_ms is not None]
    return in_use_for(max(lives, key=lambda life: life.count).median) if lives else ""


def in_use_for(life_ms: int) -> str:
    """Return {lived} for a life in milliseconds."""
    return f", each in use for about {units.about_duration(life_ms)}"


def mean(spreads: Iterable[Spread | None]) -> float:
    """Return the mean over all of them together; 0 when nothing is known."""
    known = [one for one in spreads if one is not None]
    count = sum(one.count for one in known)
    return sum(one.total for one in known) / count if count else 0.0
