"""Client libraries of a user: how long each sends a refused record, and what a refusal breaks in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pidgate.client_faults import ClientFault, Patience, find_faults, patience_of
from pidgate.units import counted
from pidgate.who import words
from pidgate.who.picture import UserPicture


@dataclass(slots=True)
class Library:
    """One library and version, as clients named it in ApiVersions. `ids`: new ids of the user's places with it."""

    software: str
    faults: tuple[ClientFault, ...]
    patience: Patience | None
    ids: int = 0

    def sentences(self, *, is_refused: bool) -> Iterator[str]:
        """Yield what a refusal does to it. `is_refused`: ids of its user were refused."""
        name = words.software(self.software)
        for fault in self.faults:
            yield f"{name} ({counted(self.ids, 'new id')}): {fault.breaks}; {fault.remedy}"
        if is_refused and self.patience is not None:
            yield f"{name} {self.patience.sentence()}"


def libraries_of(user: UserPicture) -> list[Library]:
    """Return the libraries of a user of which a fault or the patience is known, the most frequent first."""
    found: dict[tuple[str, tuple[ClientFault, ...]], Library] = {}
    for place in user.places:
        name, _, version = place.software.partition(" ")
        faults = find_faults(name, version, place.client_ids)
        patience = patience_of(name, version, place.client_ids)
        if faults or patience is not None:
            library = found.setdefault((place.software, faults), Library(place.software, faults, patience))
            library.ids += place.new_ids
    return sorted(found.values(), key=lambda library: -library.ids)
