"""Results on disk and the table made of them."""

import json
from collections.abc import Mapping
from pathlib import Path

from tools.bench import report
from tools.bench.quantities import Measured
from tools.bench.scenario import Scenario, cost
from tools.bench.scenarios.memory import MEMORY as QUOTA_MEMORY
from tools.bench.scenarios.through_targets import IDLE as MEMORY
from tools.bench.scenarios.through_targets import SMALL_REQUESTS as SMALL

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

HELD = {
    "connections": 1000,
    "cpu_s": 0.2,
    "rss_bytes": 5e6,
    "rss_before_bytes": 6e7,
    "foreign_cores": 0.0,
}


def write(folder: Path, date: str, scenario: Scenario, results: Mapping[str, list[Measured]]) -> Path:
    content = {**SETTINGS, "results": results}
    return report.keep(folder, date, scenario.number, scenario.name, content)


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
    written = write(tmp_path, "2026-01-02", SMALL, results)
    assert json.loads(written.read_text())["results"] == results

    table = report.write_tables(tmp_path, [SMALL, MEMORY]).read_text()
    assert "| bare | 44.0 (40.0-80.0) | 1.00 (1.00-1.00) |" in table
    assert "| pidgate | 55.0 (48.0-88.0) | 1.20 (1.10-1.25) |" in table
    assert "| direct | - | - | 0.25 (0.25-0.25) |" in table
    assert "2026-01-02, 3 runs, 2 x Some CPU" in table
    assert "## 03" not in table
    assert "- **not met**: CPU per request 1.2 (1.1 to 1.25) x bare; at most 1.1" in table
    assert "- not measured (no haproxy): CPU per request at most 1.25 x haproxy" in table
    assert "- **met**: p50 0 ms over direct; at most 0.2" in table


def test_costs_are_compared_with_the_cheaper_of_both_bare_shapes(tmp_path: Path) -> None:
    results = {
        "bare": [small(0.040), small(0.090), small(0.044)],
        "bare-buffered": [small(0.042), small(0.040), small(0.043)],
        "pidgate": [small(0.042), small(0.044), small(0.043)],
    }
    write(tmp_path, "2026-01-02", SMALL, results)
    table = report.write_tables(tmp_path, [SMALL]).read_text()
    assert "| | CPU us/request | CPU x bare-buffered |" in table
    assert "| bare | 44.0 (40.0-90.0) | 1.02 (0.95-2.25) |" in table
    assert "- **met**: CPU per request 1 (1 to 1.1) x bare-buffered; at most 1.1" in table


def test_what_a_load_does_not_measure_has_no_column(tmp_path: Path) -> None:
    write(tmp_path, "2026-01-02", MEMORY, {"bare": [HELD], "pidgate": [HELD]})
    table = report.write_tables(tmp_path, [MEMORY]).read_text()
    head = "| | CPU us/connection | CPU x bare | RSS KB/connection | RSS MB at start | others' cores |"
    assert head in table
    assert "RSS per connection 5 KB; at most 6" in table


def test_the_newest_result_of_a_scenario_is_shown(tmp_path: Path) -> None:
    write(tmp_path, "2026-01-02", SMALL, {"bare": [small(0.040)]})
    write(tmp_path, "2026-02-01", SMALL, {"bare": [small(0.060)]})
    table = report.write_tables(tmp_path, [SMALL]).read_text()
    assert "| bare | 60.0 | 1.00 |" in table
    assert "40.0" not in table


def test_sections_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    steady = {"grown_bytes": 90e6, "peak_bytes": 120e6, "filter_bytes": 20e6}
    rogue = {"grown_bytes_1": 30e6, "grown_bytes_5": 38e6}
    content = {**SETTINGS, "results": {"steady": [steady], "rogue": [rogue]}}
    report.keep(tmp_path, "2026-01-02", QUOTA_MEMORY.number, QUOTA_MEMORY.name, content)
    write(tmp_path, "2026-01-02", MEMORY, {"bare": [HELD]})
    write(tmp_path, "2026-01-02", SMALL, {"bare": [small(0.040)]})
    table = report.write_tables(tmp_path, [QUOTA_MEMORY, MEMORY, SMALL]).read_text()
    assert [line[:5] for line in table.splitlines() if line.startswith("## ")] == ["## 01", "## 03", "## 05"]
    assert "- **met**: RSS grown, at its peak, 120 MB; at most 150" in table
    assert "- **not met**: a rogue's RSS grown after the first fifth of its ids 8 MB; at most 5" in table
