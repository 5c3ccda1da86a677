"""The sentence and the evidence of a finding, from the features of its largest source. Pure.

patterns.py holds the sentences with {places}, which are filled here. units.py formats the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, Final

from pidgate.findings.families import ANYTHING
from pidgate.findings.patterns import PATTERN_WORDS, Pattern
from pidgate.findings.rules import BACK_OFF, BEAT, EVIDENCE, FEWEST_GROWN, is_unknown
from pidgate.units import about_duration, counted, printable

Row = Mapping[str, Any]
"""A source (or application) by the names of its features. None: unknown. Further keys: `user` (empty where
the reader knows it already), `client`, `address` (None: several) and, where known, `software`."""


def sentence(pattern: Pattern, of: Row, alike: int = 1) -> str:
    """Return the pattern's sentence, filled; `?` for unknown numbers. `alike`: sources with the same pattern."""
    parts = Formatter().parse(PATTERN_WORDS[pattern].sentence)
    filled = "".join(text + (_word(place, of) if place else "") for text, place, _, _ in parts)
    return filled + (f" (and {alike - 1} more like it)" if alike > 1 else "")


def unexplained(user: str, ids: int, all_ids: int) -> str:
    """Return the sentence about new ids without a matching rule."""
    prefix = f"{printable(user)}: " if user else ""
    if not is_unknown(ids, all_ids):
        return f"{prefix}too little is known, {counted(ids, 'new id')}"
    of_all = f"{ids:,} of {counted(all_ids, 'new id')}"
    return prefix + PATTERN_WORDS[Pattern.UNKNOWN].sentence.format(ids=of_all)


def evidence(pattern: Pattern, of: Row) -> dict[str, float]:
    """Return the numbers used by the pattern's rule, without unknown ones."""
    names = ("new_ids", *EVIDENCE[pattern])
    return {name: round(of[name], 3) for name in names if of.get(name) is not None}


class _NotKnown(Exception):
    pass


class _Known(dict[str, Any]):
    """Features, where access to an unknown one raises."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is None:
            raise _NotKnown(name)
        return value


def _word(place: str, of: Row) -> str:
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
    """Return a percentage that is 100 only for all."""
    return f"{min(round(100 * share), 99) if share < 1 else 100} %"


def _owner(of: Row) -> str:
    return f"{printable(of['user'])}'s " if of["user"] else ""


def _has(of: Row) -> str:
    return f"{printable(of['user'])} has " if of["user"] else ""


def _who(of: Row) -> str:
    client, address, software = of["client"], of.get("address"), of.get("software")
    if client == ANYTHING:
        clients = "clients of several names"
    elif not client:
        clients = "clients without a name"
    else:
        clients = f"{'clients' if ANYTHING in client else 'client'} {printable(client)}"
    by = f" ({printable(software)})" if software else ""
    return f"{_owner(of)}{clients} at {printable(address) if address else 'several addresses'}{by}"


def _are_several(of: Row) -> bool:
    return not of["client"] or ANYTHING in of["client"]


def _in_active(of: Row) -> str:
    return f" in {about_duration(of['active_ms'])}"


def _in_turn(of: Row) -> str:
    processes = round(of.get("processes") or 1)
    return f" of about {processes:,} processes" if processes > 1 else ", one after the other"


def _per_start(of: Row) -> str:
    ids = round(of.get("ids_per_burst") or 1)
    return f", {ids} at each start" if ids > 1 else ""


def _backs_off(of: Row) -> bool:
    """Return whether pauses grow. A missed start doubles an interval of a constant beat, and chance one in seven."""
    grown = of.get("grown") or 0
    return grown >= FEWEST_GROWN and grown >= BACK_OFF * of["bursts"] and (of.get("beat_share") or 0) >= BEAT


def _sent(of: Row) -> str:
    one_request, short_lived = _per_cent(of["one_request"]), _per_cent(of["short_lived"])
    connections = of.get("connections") or 1
    pool = f", {_count(1 / connections)} ids per connection" if connections <= _POOLED else ""
    return f"{one_request} of them sent one request, {short_lived} lived under a second{pool}"


_POOLED: Final = 0.5


def _replaced(of: Row) -> str:
    return (
        f"{_count(of['replacements'])} times all instances (up to {_count(of['instances'])}) were replaced, one after "
        "the other"
    )


def _bumps(of: Row) -> str:
    return f"epoch bumps on {_count(of['bumped_ids'])}" if of["bumped_ids"] else "no epoch bumps"


_WORDS: Final[Mapping[str, Callable[[Row], str]]] = {
    "who": _who,
    "has": _has,
    "s": lambda of: "" if _are_several(of) else "s",
    "is_": lambda of: "are" if _are_several(of) else "is",
    "was": lambda of: "were" if _are_several(of) else "was",
    "in_active": _in_active,
    "interval": lambda of: about_duration(of["interval_ms"]),
    "lived": lambda of: f", each in use for about {about_duration(of['life_ms'])}",
    "backing_off": lambda of: ", with growing pauses" if _backs_off(of) else "",
    "in_turn": _in_turn,
    "per_start": _per_start,
    "per_burst": lambda of: _count(max(of["ids_per_burst"], 1)),
    "kept": lambda of: f"{_count(of['names'])} different transactional ids",
    "sent": _sent,
    "failed": lambda of: _per_cent(of["failed"]),
    "error_code": lambda of: _count(of["error_code"]),
    "replaced": _replaced,
    "long_lived": lambda of: counted(int(of["long_ids"]), "long-lived producer"),
    "beside": lambda of: f", {counted(int(of['new_ids']), 'new id')}" if of.get("new_ids") else "",
    "allocated": lambda of: counted(int(of["allocated_ids"]), "id"),
    "transactional": lambda of: counted(int(of["transactional_ids"]), "id"),
    "bumps": _bumps,
}
"""The {places} of sentences that are not plain features."""
