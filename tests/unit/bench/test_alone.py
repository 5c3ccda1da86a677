"""Scenarios that go through no other target: their part of the page."""

from pathlib import Path

from tools.bench import report
from tools.bench.alone import Alone, Column, Results
from tools.bench.goals import Goal
from tools.bench.quantities import measured_as

SETTINGS = {
    "machine": {
        "cpu": "Some CPU",
        "cores": 2,
        "memory_gib": 24,
        "kernel": "6.1",
        "python": "3.11.7",
        "uvloop": "0.22.1",
        "kafka": "4.3.1",
        "commit": "abc",
    },
    "pinned": True,
    "quick": False,
}

SCENARIO = Alone(
    number="99",
    name="phases",
    title="Calm and storm",
    kafka="4.3.1",
    plan={"rate": 10, "seconds": 5},
    quick={"seconds": 1},
    measure=lambda plan, conditions: {},
    columns=(Column("p99 ms", measured_as("p99_ms"), 1), Column("refused", measured_as("refused"), 0)),
    goals=(
        Goal(of="p99", quantity=measured_as("p99_ms"), bound="at most", limit=2, target="storm", than="calm"),
        Goal(of="refused", quantity=measured_as("refused"), bound="exactly", limit=7, target="storm"),
    ),
    enough_runs=2,
)


def page(results: Results, folder: Path) -> str:
    report.keep(folder, "2026-01-02", SCENARIO.number, SCENARIO.name, {**SETTINGS, "results": results})
    return report.write_tables(folder, [SCENARIO]).read_text()


def test_phases_are_compared_run_by_run(tmp_path: Path) -> None:
    text = page(
        {
            "calm": [{"p99_ms": 1.0}, {"p99_ms": 4.0}],
            "storm": [{"p99_ms": 1.5, "refused": 7}, {"p99_ms": 8.4, "refused": 7}],
        },
        tmp_path,
    )
    assert "## 99 Calm and storm" in text
    assert "| calm | 2.5 (1.0-4.0) | - |" in text
    assert "| storm | 5.0 (1.5-8.4) | 7 (7-7) |" in text
    assert "**met**: p99 1.8 (1.5 to 2.1) x calm; at most 2" in text
    assert "no verdict yet" not in text


def test_what_was_not_kept_to_is_said(tmp_path: Path) -> None:
    text = page({"calm": [{"p99_ms": 1.0}], "storm": [{"p99_ms": 3.0, "refused": 8}]}, tmp_path)
    assert "1 run: no verdict yet" in text
    assert "**not met**: p99 3 x calm" in text
    assert "**not met**: refused 8; exactly 7" in text


def test_a_quick_plan_replaces_some_fields() -> None:
    assert SCENARIO.plan_for(True) == {"rate": 10, "seconds": 1}
    assert SCENARIO.plan_for(False) == SCENARIO.plan
