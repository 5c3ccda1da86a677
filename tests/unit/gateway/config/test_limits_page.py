"""The limits as they are documented: each in its page, once, with the default that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pidgate.gateway.config.settings import LimitsSettings

ROOT = Path(__file__).parents[4]
UNITS = {"KiB": 2**10, "MiB": 2**20, "s": 1_000, "min": 60_000}


def documented(page: str) -> list[tuple[str, int | None]]:
    """Rows of the page's table: key, and the number that the text of its default begins with."""
    rows = re.findall(r"^\| `limits\.(\w+)` \| (?:([\d,]+) ?(\w*))?", (ROOT / page).read_text("utf-8"), re.M)
    return [
        (key, int(number.replace(",", "")) * UNITS.get(unit, 1) if number else None)
        for key, number, unit in rows
    ]


@pytest.mark.parametrize("page", ["docs/reference/limits.md"])
def test_each_limit_is_documented_with_its_default(page: str) -> None:
    fields = LimitsSettings.model_fields
    defaults = [(info.alias or name, info.default) for name, info in fields.items()]

    assert sorted(documented(page)) == sorted(defaults)
