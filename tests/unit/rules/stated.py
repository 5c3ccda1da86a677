"""The rules that the documents state: each name in italics in the sections that state rules, under its paragraph.

A paragraph is a bullet that begins in bold, or all bullets below a heading that do not. Of a table of limits each row
is a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PAGES: Final[dict[str, tuple[str, ...]]] = {
    "docs/architecture.md": ("Invariants",),
    "SECURITY.md": ("What holds the line",),
    "docs/rules.md": ("Refusals", "Mutes", "What an id costs", "Restarts and fleets"),
}
"""Each page's sections of rules."""
LIMITS: Final = ("SECURITY.md", "Limits")

_SECTION: Final = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.MULTILINE)
_PARAGRAPH: Final = re.compile(r"^- \*\*(.+?)\*\*")
_ROW: Final = re.compile(r"^\| (?!limit \||---)(.+?) \|", re.MULTILINE)
_NAME: Final = re.compile(r"(?<!\*)\*([^*\n]+)\*(?!\*)")


def rules() -> list[str]:
    """Return every rule: "paragraph: name"."""
    stated = [
        rule
        for page, sections in PAGES.items()
        for title in sections
        for rule in rules_in(title, section_of(page, title))
    ]
    page, title = LIMITS
    return [*stated, *(f"{title}: {row.replace('`', '')}" for row in _ROW.findall(section_of(page, title)))]


def rules_in(title: str, text: str) -> Iterator[str]:
    """Yield the rules of one section."""
    for line in bullets(text):
        bold = _PARAGRAPH.match(line)
        paragraph = bold.group(1).rstrip(".") if bold else title
        for name in _NAME.findall(line):
            yield f"{paragraph}: {name.rstrip('.')}"


def bullets(text: str) -> list[str]:
    """Return the lines that are bullets."""
    return [line for line in text.splitlines() if line.startswith("- ")]


def section_of(page: str, title: str) -> str:
    """Return the text of a section."""
    sections: dict[str, str] = dict(_SECTION.findall((ROOT / page).read_text("utf-8")))
    return sections[title]
