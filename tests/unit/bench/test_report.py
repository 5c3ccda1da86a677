"""Results on disk and the table made of them."""

import json
from collections.abc import Mapping
from pathlib import Path

from tools.bench import report
from tools.bench.quantities import Measured
from tools.bench.scenario import Scenario
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
    assert "- not measured (no haproxy): CPU per request at most 1.05 x haproxy" in table
    assert "- **met**: p50 0 ms over direct; at most 0.2" in table
