"""Every link in the documents leads to a file that is there, and to a heading of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.import_graph import ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PAGES = [
    *ROOT.glob("*.md"),
    *(page for folder in ("docs", "deploy", "tools", "examples") for page in (ROOT / folder).rglob("*.md")),
]


def anchors(page: Path) -> set[str]:
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(page.read_text("utf-8"))
    }


def broken(page: Path, text: str) -> Iterator[str]:
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if link.startswith(("https:", "http:", "mailto:")):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page, page.read_text("utf-8"))) == []


def test_the_control_a_broken_link_is_noticed() -> None:
    text = "[a](README.md) [b](no-such.md) [c](README.md#no-such-heading) [d](https://example.org)"
    assert list(broken(ROOT / "README.md", text)) == ["no-such.md", "README.md#no-such-heading"]
