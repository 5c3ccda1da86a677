"""docs/reference/sizing.md: made from the committed results, and each number as they have it."""

import json

from tools.bench.report import RESULTS, newest
from tools.bench.sizing import PAGE, ROWS, table


def test_the_page_is_made_from_the_committed_results() -> None:
    assert PAGE.read_text("utf-8") == table()


def test_each_row_names_a_scenario_and_what_that_measures() -> None:
    for row in ROWS:
        path = newest(RESULTS, row.scenario)
        if path is None:
            continue
        runs = json.loads(path.read_text("utf-8"))["results"].get(row.target, [])
        assert all(row.quantity(run) > 0 for run in runs), row.what
