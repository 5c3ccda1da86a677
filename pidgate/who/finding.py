"""A finding of `pidgate who`. Its words are those of events/patterns.py. Pure; no rules here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pidgate.events.patterns import PATTERN_WORDS, Pattern

Evidence = Mapping[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Finding:
    """A pattern of a user, in words, with the numbers it rests on."""

    kind: Pattern
    text: str
    ids: int
    addresses: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        return PATTERN_WORDS[self.kind].remedy


def sentence(pattern: Pattern, words: Mapping[str, str]) -> str:
    """Return the pattern's sentence, filled in. Raises KeyError when a word of it is missing."""
    return PATTERN_WORDS[pattern].sentence.format_map(words)
