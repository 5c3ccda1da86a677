"""The pages of the documentation's site, and the blocks of code on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.support.import_graph import ROOT

NOT_RUN: Final = "not run here"
_FENCE: Final = re.compile(r"^ *```([^\n]*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Return the pages that mkdocs.yml does not exclude."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    excluded = str(yaml.safe_load(text)["exclude_docs"]).split()
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [
        page for page in found if not page.relative_to(ROOT / "docs").as_posix().startswith(tuple(excluded))
    ]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code. `language` is empty for what a program prints."""

    page: str
    language: str
    title: str
    text: str

    @property
    def is_run(self) -> bool:
        return not self.title.startswith(NOT_RUN)


def blocks() -> Iterator[Block]:
    """Yield every block of the site's pages."""
    for page in pages():
        for info, text in _FENCE.findall(page.read_text("utf-8")):
            title = re.search(r'title="([^"]*)"', info)
            yield Block(
                str(page.relative_to(ROOT)),
                info.partition(" ")[0],
                "" if title is None else title[1],
                text,
            )


PLAYED: Final = {
    "docs/tutorial/index.md": "tests/support/first_hour.py",
    "docs/reference/library.md": "tests/unit/quota/test_tracker.py",
}
"""Pages whose blocks a test runs word by word."""
