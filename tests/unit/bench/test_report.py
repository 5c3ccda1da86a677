"""Results on disk and the table made of them."""

import json
from pathlib import Path

from bench import report
from bench.s01_small_requests import SCENARIO as SMALL
from bench.s03_memory_per_connection import SCENARIO as MEMORY
from bench.scenario import Measured, cost

SETTINGS = {
    "machine": {
        "cpu": "Some CPU",
        "cores": 2,
        "memory_gib": 24,
        "kernel": "6.1",
        "python": "3.11.7",
        "uvloop": "0.22.1",
        "kafka": "4.3.1",
        "haproxy": None,
        "commit": "abc",
    },
    "pinned": True,
    "quick": False,
}


def small(cpu_s: float) -> Measured:
    return {
        "requests": 1000,
        "bytes": 1_024_000,
        "seconds": 1.0,
        "cpu_s": cpu_s,
        "wakeups": 2000,
        "p50_ms": 0.25,
        "p99_ms": 1.5,
        "foreign_cores": 0.1,
    }


def test_cost_is_per_request_or_per_connection() -> None:
    assert cost(SMALL, small(0.05)) == 50
    assert cost(MEMORY, {"cpu_s": 0.2, "connections": 2000}) == 100


def test_a_table_shows_medians_spread_and_the_ratio_within_each_run(tmp_path: Path) -> None:
    results = {
        "direct": [small(0), small(0), small(0)],
        "bare": [small(0.040), small(0.080), small(0.044)],
        "pidgate": [small(0.048), small(0.088), small(0.055)],
    }
    written = report.write(tmp_path, "2026-01-02", SMALL, SETTINGS, results)
    assert json.loads(written.read_text())["results"] == results

    table = report.write_tables(tmp_path, [SMALL, MEMORY]).read_text()
    assert "| bare | 44.0 (40.0-80.0) | 1.00 (1.00-1.00) |" in table
    assert "| pidgate | 55.0 (48.0-88.0) | 1.20 (1.10-1.25) |" in table
    assert "| direct | - | - | 0.25 (0.25-0.25) |" in table
    assert "2026-01-02, 3 runs, 2 x Some CPU" in table
    assert "## 03" not in table


def test_the_newest_result_of_a_scenario_is_shown(tmp_path: Path) -> None:
    report.write(tmp_path, "2026-01-02", SMALL, SETTINGS, {"bare": [small(0.040)]})
    report.write(tmp_path, "2026-02-01", SMALL, SETTINGS, {"bare": [small(0.060)]})
    table = report.write_tables(tmp_path, [SMALL]).read_text()
    assert "| bare | 60.0 | 1.00 |" in table
    assert "40.0" not in table
