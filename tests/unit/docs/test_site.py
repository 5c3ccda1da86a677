"""The documentation's site: it builds strictly, loads nothing from elsewhere, and stays within its number of words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.import_graph import ROOT
from tests.support.site_pages import pages

MOST_WORDS: Final = 40_000
_LOADED: Final = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["'](https?://[^"']+)""")


def words(page: Path) -> int:
    """Count words outside blocks of code: texts between blanks with a letter; of a link its text."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return sum(any(map(str.isalpha, word)) for word in re.sub(r"\]\([^)]*\)", "]", text).split())


def test_the_site_has_at_most_40000_words() -> None:
    found = {str(page.relative_to(ROOT)): words(page) for page in pages()}
    print(sum(found.values()), found)
    assert sum(found.values()) <= MOST_WORDS, sum(found.values())


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_begins_with_its_readers(page: Path) -> None:
    title, _, rest = page.read_text("utf-8").partition("\n\n")
    assert title.startswith("# ")
    assert re.match(r"For \w", rest), rest[:200]


def test_it_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    shown = list(tmp_path.rglob("*.html"))
    assert len(shown) > len(pages())  # and 404.html
    for page in shown:
        outside = [url for url in _LOADED.findall(page.read_text("utf-8")) if "canonical" not in url]
        assert outside == [], page
    assert not (tmp_path / "decisions").exists()
    assert (tmp_path / "reference" / "pidgate.schema.json").is_file()


def test_the_control_a_script_from_elsewhere_is_noticed() -> None:
    assert _LOADED.findall('<script async src="https://unpkg.com/x"></script>') == ["https://unpkg.com/x"]
