"""Numbers, times and names of findings as people read them, as Spark SQL over the columns they are made of.

The result table holds whole sentences, made where the rows are, so units.py is written here once more in SQL; a test
holds the two together.
"""

from __future__ import annotations

import re

from pidgate.units import ABOUT_DURATIONS, MOST_CHARACTERS

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def duration(ms: str) -> str:
    """Return SQL for `units.about_duration` of `ms`."""
    cases = [
        rf"when {ms} >= {from_ms} then if({ms} >= {9.95 * unit_ms}, format_number({ms} / {unit_ms}, 0), "
        rf"replace(format_number({ms} / {unit_ms}, 1), '.0', '')) || ' {unit}'"
        for from_ms, unit_ms, unit in ABOUT_DURATIONS
    ]
    return f"case {' '.join(cases)} else format_number({ms}, 0) || ' ms' end"


def count(number: str) -> str:
    """Return SQL that writes 4,812."""
    return f"format_number(round({number}), 0)"


def per_cent(share: str) -> str:
    """Return SQL that writes 97 %; 100 % only of all."""
    return f"if({share} < 1, least(cast(round(100 * {share}) as int), 99), 100) || ' %'"


def name(text: str) -> str:
    """Return SQL for a name from outside, without control characters and cut."""
    plain = rf"regexp_replace({text}, r'\p{{C}}', '?')"
    return f"if(length({plain}) > {MOST_CHARACTERS}, left({plain}, {MOST_CHARACTERS - 1}) || '…', {plain})"


def text(words: str) -> str:
    """Return a literal of SQL."""
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sentence(template: str, words: dict[str, str]) -> str:
    """Return SQL that fills the template's {words} for each row; `?` for what is not known."""
    parts = _PLACEHOLDER.split(template)
    return " || ".join(
        f"coalesce({words[part]}, '?')" if at % 2 else text(part) for at, part in enumerate(parts)
    )
