"""The page on mending clients speaks of each pattern that asks for something to be changed in a client."""

from __future__ import annotations

import re
from pathlib import Path

from pidgate.findings.patterns import HARMFUL, WASTEFUL, Pattern

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "mending.md").read_text("utf-8")
ASKED_TO_CHANGE = HARMFUL | WASTEFUL


def test_each_pattern_that_is_to_be_mended_is_on_the_page() -> None:
    sections = set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE))
    assert sections <= {pattern.value for pattern in Pattern}
    assert sections >= {pattern.value for pattern in HARMFUL}
    assert all(pattern.value in PAGE for pattern in ASKED_TO_CHANGE)


def test_each_section_speaks_to_each_family_of_clients() -> None:
    for section in PAGE.split("\n## ")[1:]:
        assert all(family in section for family in ("Java", "Python", "Go", "Spark", "Flink")), section[:30]
