"""The sentence and the evidence of a finding, from the features of its largest source. Pure.

Which words a sentence has is in events/patterns.py, for `pidgate who` too; how numbers read is units.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, Final

from pidgate.events.patterns import PATTERN_WORDS, Pattern
from pidgate.units import about_duration, printable

Features = Mapping[str, Any]
"""A source (or application) by the names of its features; None: not known."""
ANYTHING: Final = "*"
"""Of a client id: what counts, or was drawn at random."""


def sentence(pattern: Pattern, of: Features) -> str:
    """Return the pattern's sentence, filled; `?` for what is not known."""
    parts = Formatter().parse(PATTERN_WORDS[pattern].sentence)
    return "".join(text + (_word(place, of) if place else "") for text, place, _, _ in parts)


def evidence(names: Sequence[str], of: Features) -> dict[str, str]:
    """Return the numbers that a rule looked at, as text; without those that are not known."""
    known = {name: of[name] for name in ("new_ids", *names) if of[name] is not None}
    return {name: str(round(value, 3)) for name, value in known.items()}


def of_unexplained(user: str, ids: int, all_ids: int, *, many: bool) -> str:
    """Return the sentence of new ids that fit nothing."""
    if not many:
        return f"{printable(user)}: too little is known, {_count(ids)} new ids"
    told = PATTERN_WORDS[Pattern.UNKNOWN].sentence.format(ids=f"{_count(ids)} of {_count(all_ids)} new ids")
    return f"{printable(user)}: {told}"


class _NotKnown(Exception):
    pass


class _Known(dict[str, Any]):
    """Features, of which those that are not known cannot be taken."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is None:
            raise _NotKnown(name)
        return value


def _word(place: str, of: Features) -> str:
    known = _Known(of)
    try:
        if place in _WORDS:
            return _WORDS[place](known)
        return printable(known[place]) if isinstance(known[place], str) else _count(known[place])
    except _NotKnown:
        return "?"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _per_cent(share: float) -> str:
    """Of all only if it is all."""
    return f"{min(round(100 * share), 99) if share < 1 else 100} %"


def _who(of: Features) -> str:
    client, address = of["client"], of.get("address")
    if client == ANYTHING:
        clients = "clients of several names"
    elif not client:
        clients = "clients without a name"
    else:
        clients = f"{'clients' if ANYTHING in client else 'client'} {printable(client)}"
    return f"{printable(of['user'])}'s {clients} at {printable(address) if address else 'several addresses'}"


def _are_several(of: Features) -> bool:
    return not of["client"] or ANYTHING in of["client"]


def _sent(of: Features) -> str:
    one_request, short_lived = _per_cent(of["one_request"]), _per_cent(of["short_lived"])
    return f"{one_request} of them sent one request, {short_lived} lived under a second"


def _replaced(of: Features) -> str:
    return (
        f"{_count(of['replacements'])} times all instances (up to {_count(of['instances'])}) were replaced, one after "
        "the other"
    )


_WORDS: Final[Mapping[str, Callable[[Features], str]]] = {
    "who": _who,
    "s": lambda of: "" if _are_several(of) else "s",
    "is_": lambda of: "are" if _are_several(of) else "is",
    "was": lambda of: "were" if _are_several(of) else "was",
    "in_active": lambda of: f" in {about_duration(of['active_ms'])}",
    "interval": lambda of: about_duration(of["interval_ms"]),
    "lived": lambda of: f", each in use for about {about_duration(of['life_ms'])}",
    "backing_off": lambda of: ", with growing pauses" if (of.get("grown") or 0) >= 3 else "",
    "per_start": lambda _: "",
    "per_burst": lambda of: _count(max(of["ids_per_burst"], 1)),
    "kept": lambda of: f"{_count(of['names'])} different transactional ids",
    "sent": _sent,
    "failed": lambda of: _per_cent(of["failed"]),
    "error_code": lambda of: str(of["error_code"]),
    "replaced": _replaced,
    "long_lived": lambda of: f"{_count(of['long_ids'])} long-lived producers",
    "beside": lambda of: f", {_count(of['late_ids'])} new ids beside them",
}
"""The {places} of sentences that are not a feature as it is."""
