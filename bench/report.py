"""Results as files: one JSON per scenario with every run, and a table over the newest of each.

Knows numbers and Markdown; measures nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import s05_memory
from bench.scenario import Measured, Scenario, cost
from bench.statistics import Spread, ratios
from bench.targets import BASELINE, ROOT

RESULTS: Final = ROOT / "bench" / "results"
LOCAL: Final = RESULTS / "local"

_HEAD: Final = """\
# Results

Written by `python -m bench`; how to reproduce it and what each column means: [../README.md](../README.md).
Every cell is the median of the runs, with the least and the greatest in brackets.
"""


def write(
    folder: Path,
    date: str,
    scenario: Scenario,
    settings: dict[str, Any],
    results: dict[str, list[Measured]],
) -> Path:
    """Keep all runs of a scenario as `<date>-<number>-<name>.json`."""
    return keep(folder, date, scenario.number, scenario.name, {**settings, "results": results})


def keep(folder: Path, date: str, number: str, name: str, content: Mapping[str, Any]) -> Path:
    """Write what a scenario measured, with its provenance, to its file of that day."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{date}-{number}-{name}.json"
    whole = {"scenario": number, "name": name, "date": date, **content}
    path.write_text(json.dumps(whole, indent=1) + "\n")
    return path


def write_tables(folder: Path, scenarios: Sequence[Scenario]) -> Path:
    """Generate `README.md` beside the results from the newest file of each scenario."""
    sections = [_HEAD]
    for scenario in scenarios:
        found = sorted(folder.glob(f"*-{scenario.number}-{scenario.name}.json"))
        if found:
            sections.append(section(scenario, json.loads(found[-1].read_text()), found[-1].name))
    found = sorted(folder.glob(f"*-{s05_memory.NUMBER}-{s05_memory.NAME}.json"))
    if found:
        sections.append(s05_memory.section(json.loads(found[-1].read_text()), found[-1].name))
    path = folder / "README.md"
    path.write_text("\n".join(sections))
    return path


def section(scenario: Scenario, content: dict[str, Any], file: str) -> str:
    """One scenario's heading, provenance and table."""
    results: dict[str, list[Measured]] = content["results"]
    machine = content["machine"]
    runs = max(len(measured) for measured in results.values())
    where = (
        f"{content['date']}, {runs} run{'s' if runs > 1 else ''}, {machine['cores']} x {machine['cpu']}, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, Python {machine['python']}, uvloop "
        f"{machine['uvloop']}, Kafka {machine['kafka']}, HAProxy {machine['haproxy'] or 'absent'}, "
        f"commit {machine['commit']}, {'pinned' if content['pinned'] else 'not pinned'} ([{file}]({file}))"
    )
    columns = _columns(scenario)
    lines = [f"## {scenario.number} {scenario.title}", "", where, ""]
    if content.get("quick"):
        lines += ["A smoke run (`--quick`): too short to compare anything.", ""]
    lines.append("| | " + " | ".join(name for name, _ in columns) + " |")
    lines.append("| --- |" + " ---: |" * len(columns))
    for target, measured in results.items():
        cells = [cell(target, measured, results.get(BASELINE)) for _, cell in columns]
        lines.append(f"| {target} | " + " | ".join(cells) + " |")
    if scenario.target_ratio:
        lines += ["", f"Target: pidgate's CPU at most {scenario.target_ratio} x bare."]
    return "\n".join(lines) + "\n"


Cell = Callable[[str, list[Measured], list[Measured] | None], str]


def _columns(scenario: Scenario) -> list[tuple[str, Cell]]:
    unit = "s" if scenario.cost_per == "GB" else "us"
    columns: list[tuple[str, Cell]] = [
        (f"CPU {unit}/{scenario.cost_per}", _cost_cell(scenario)),
        (f"CPU x {BASELINE}", _ratio_cell(scenario)),
    ]
    if scenario.kind == "idle":
        columns.append(("RSS KB/connection", _cell(_kb_per_connection, 1, proxied_only=True)))
        columns.append(
            ("RSS MB at start", _cell(lambda m: m["rss_before_bytes"] / 1e6, 1, proxied_only=True))
        )
    else:
        columns.append(("p50 ms", _cell(lambda m: m["p50_ms"], 2)))
        columns.append(("p99 ms", _cell(lambda m: m["p99_ms"], 2)))
        columns.append(("MB/s", _cell(lambda m: m["bytes"] / m["seconds"] / 1e6, 0 if unit == "s" else 2)))
        columns.append(
            ("wake-ups/request", _cell(lambda m: m["wakeups"] / m["requests"], 2, proxied_only=True))
        )
    columns.append(("others' cores", _cell(lambda m: m["foreign_cores"], 2)))
    return columns


def _kb_per_connection(measured: Measured) -> float:
    return measured["rss_bytes"] / measured["connections"] / 1000


def _cell(value: Callable[[Measured], float], digits: int, *, proxied_only: bool = False) -> Cell:
    def cell(target: str, measured: list[Measured], baseline: list[Measured] | None) -> str:
        if proxied_only and target == "direct":
            return "-"
        return _spread([value(run) for run in measured], digits)

    return cell


def _cost_cell(scenario: Scenario) -> Cell:
    digits = 3 if scenario.cost_per == "GB" else 1
    return _cell(lambda measured: cost(scenario, measured), digits, proxied_only=True)


def _ratio_cell(scenario: Scenario) -> Cell:
    def cell(target: str, measured: list[Measured], baseline: list[Measured] | None) -> str:
        if target == "direct" or not baseline:
            return "-"
        of_runs = ratios([cost(scenario, run) for run in measured], [cost(scenario, run) for run in baseline])
        return _spread(of_runs, 2)

    return cell


def _spread(values: Sequence[float], digits: int) -> str:
    spread = Spread.of(values)
    if len(values) == 1:
        return f"{spread.median:.{digits}f}"
    return f"{spread.median:.{digits}f} ({spread.least:.{digits}f}-{spread.greatest:.{digits}f})"
