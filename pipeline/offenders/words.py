"""Numbers, times and names of findings as people read them, as Spark SQL over the columns they are made of.

The words are those of `pidgate who`, which looks at the last hours without Spark.
"""

from __future__ import annotations

import re

MOST_SIGNS = 60
"""Of a name; client ids may have 32 KiB."""
_UNITS = (
    (1_000, 1_000, "s"),
    (60_000, 59_500, "min"),
    (3_600_000, 3_570_000, "h"),
    (86_400_000, 84_600_000, "d"),
)
"""How long, from when on, name: what would round to 60 min is 1 h."""
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def duration(ms: str) -> str:
    """About how long: 350 ms, 4 s, 1.2 s, 12 min, 3.5 h."""
    cases = [
        rf"when {ms} >= {from_ms} then if({ms} >= {9.95 * unit_ms}, format_number({ms} / {unit_ms}, 0), "
        rf"replace(format_number({ms} / {unit_ms}, 1), '.0', '')) || ' {unit}'"
        for unit_ms, from_ms, unit in reversed(_UNITS)
    ]
    return f"case {' '.join(cases)} else format_number({ms}, 0) || ' ms' end"


def count(number: str) -> str:
    """4,812."""
    return f"format_number(round({number}), 0)"


def per_cent(share: str) -> str:
    """97 %; 100 % only of all."""
    return f"if({share} < 1, least(cast(round(100 * {share}) as int), 99), 100) || ' %'"


def name(text: str) -> str:
    """A name that comes from outside, fit for a terminal: nothing in it moves the cursor, and it has an end."""
    plain = rf"regexp_replace({text}, r'\p{{C}}', '?')"
    return f"if(length({plain}) > {MOST_SIGNS}, left({plain}, {MOST_SIGNS - 1}) || '…', {plain})"


def text(words: str) -> str:
    """Words as they are."""
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sentence(template: str, words: dict[str, str]) -> str:
    """A template with {words} in it, filled in for each row; `?` for what is not known."""
    parts = _PLACEHOLDER.split(template)
    return " || ".join(
        f"coalesce({words[part]}, '?')" if at % 2 else text(part) for at, part in enumerate(parts)
    )
