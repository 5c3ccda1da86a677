"""docs/sizing.md: made from the committed results, and each number as they have it."""

import json
from pathlib import Path

from tools.bench.report import RESULTS, newest
from tools.bench.sizing import PAGE, ROWS, table


def test_the_page_is_made_from_the_committed_results() -> None:
    assert PAGE.read_text("utf-8") == table()


def test_each_row_is_read_from_the_newest_result_of_its_scenario(tmp_path: Path) -> None:
    def result(date: str, cpu_s: float) -> None:
        content = {
            "machine": {"commit": date},
            "results": {
                "bare": [{"cpu_s": 9.0, "requests": 1, "bytes": 1}],
                "pidgate": [
                    {"cpu_s": cpu_s * share, "requests": 1_000, "bytes": 1_000_000} for share in (3, 1, 2)
                ],
            },
        }
        (tmp_path / f"{date}-01-small-requests.json").write_text(json.dumps(content))

    result("2026-01-01", 1.0)
    result("2026-01-02", 0.05)
    by_millicores, by_request, *others = table(tmp_path).splitlines()[-len(ROWS) :]
    assert "| 100.0 (50.0-150.0) | millicores per MB/s | [2026-01-02-01-small-requests]" in by_millicores
    assert "| 100 (50-150) | us per request |" in by_request
    assert "commit 2026-01-02 |" in by_request
    assert all("| not measured |" in line for line in others)


def test_each_row_names_a_scenario_and_what_that_measures() -> None:
    for row in ROWS:
        path = newest(RESULTS, row.scenario)
        if path is None:
            continue
        runs = json.loads(path.read_text("utf-8"))["results"].get(row.target, [])
        assert all(row.quantity(run) > 0 for run in runs), row.what
