"""docs/reference/metrics.md is what a gateway shows."""

from __future__ import annotations

import re

from tests.support.metrics_page import PAGE, page


def families() -> set[str]:
    """Return the names of the page, without the suffix of counters."""
    return {
        name.removesuffix("_total")
        for name in re.findall(r"^\| `(\w+)`", PAGE.read_text("utf-8"), re.MULTILINE)
    }


def test_the_page_of_metrics_is_the_generated_one() -> None:
    assert page() == PAGE.read_text("utf-8"), "run `make docs`: python -m tests.support.metrics_page"
    assert len(families()) > 80
