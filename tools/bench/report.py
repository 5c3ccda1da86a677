"""Results as files: one JSON per scenario with every run, and a table over the newest of each.

Knows numbers and Markdown; measures nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from tools.bench.alone import Alone, Column
from tools.bench.goals import ENOUGH_RUNS, verdicts
from tools.bench.quantities import (
    Measured,
    Quantity,
    mb_per_s,
    measured_as,
    p50_ms,
    p90_ms,
    p99_ms,
    rss_kb_per_connection,
    start_rss_mb,
    taken_mb_per_connection,
    wakeups_per_request,
)
from tools.bench.scenario import Scenario, baseline_of, cost
from tools.bench.statistics import Spread, median_interval, ratios
from tools.bench.targets import BASELINE, OTHER_COMMIT, ROOT

RESULTS: Final = ROOT / "tools" / "bench" / "results"
LOCAL: Final = RESULTS / "local"

_HEAD: Final = """\
# Results

Written by `python -m tools.bench`; how to reproduce it and what each column means: [../README.md](../README.md).
Every cell is the median of the runs, with the least and the greatest in brackets; so are the numbers behind targets.
A ratio or difference is taken within each run.
"""

Results = Mapping[str, list[Measured]]
Cell = Callable[[str, Results], str]
"""Of a target or phase, in the results of all."""


def compared(scenario: Scenario, results: Results) -> str:
    """Return what paired runs of two commits say, in one line."""
    of_runs = ratios(
        *([cost(scenario, run) for run in results[target]] for target in ("pidgate", OTHER_COMMIT))
    )
    try:
        interval = "95 % interval of the median {:.3f} to {:.3f}".format(*median_interval(of_runs))
    except ValueError as error:
        interval = str(error)
    return (
        f"{scenario.number} CPU per {scenario.cost_per}: {median(of_runs):.3f} x the other commit's, "
        f"{interval} ({len(of_runs)} paired runs)"
    )


def keep(folder: Path, date: str, number: str, name: str, content: Mapping[str, Any]) -> Path:
    """Write what a scenario measured, with its provenance, to its file of that day: `<date>-<number>-<name>.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{date}-{number}-{name}.json"
    whole = {"scenario": number, "name": name, "date": date, **content}
    path.write_text(json.dumps(whole, indent=1) + "\n")
    return path


def newest(folder: Path, scenario: str) -> Path | None:
    """Return the newest file of a scenario, which is its number and name; None: there is none."""
    return max(folder.glob(f"????-??-??-{scenario}.json"), default=None)


def write_tables(folder: Path, scenarios: Sequence[Scenario | Alone]) -> Path:
    """Generate `README.md` beside the results from the newest file of each scenario."""
    sections = [_HEAD]
    for scenario in sorted(scenarios, key=lambda one: (one.number, one.name)):
        file = newest(folder, f"{scenario.number}-{scenario.name}")
        if file is not None:
            sections.append(section(scenario, json.loads(file.read_text()), file.name))
    path = folder / "README.md"
    path.write_text("\n".join(sections))
    return path


def section(scenario: Scenario | Alone, content: Mapping[str, Any], file: str) -> str:
    """One scenario's heading, provenance, table and verdicts."""
    results: Results = content["results"]
    machine = content["machine"]
    runs = max(len(measured) for measured in results.values())
    where = (
        f"{content['date']}, {runs} run{'s' if runs > 1 else ''}, {machine['cores']} x {machine['cpu']}, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, Python {machine['python']}, uvloop "
        f"{machine['uvloop']}, Kafka {machine['kafka']}, HAProxy {machine.get('haproxy') or 'absent'}, "
        f"commit {machine['commit']}, {'pinned' if content['pinned'] else 'not pinned'} ([{file}]({file}))"
    )
    lines = [f"## {scenario.number} {scenario.title}", "", where, ""]
    if content.get("quick"):
        lines += ["A smoke run (`--quick`): too short to say anything.", ""]
    if isinstance(scenario, Alone):
        columns, plot, enough_runs = [*map(_column, scenario.columns)], [], scenario.enough_runs
        goals = scenario.goals
    else:
        baseline = baseline_of(scenario, results)
        columns, plot, enough_runs = (
            _columns(scenario, results, baseline),
            _plot(scenario, results),
            ENOUGH_RUNS,
        )
        goals = [replace(goal, than=baseline) if goal.than == BASELINE else goal for goal in scenario.goals]
    lines.append("| | " + " | ".join(title for title, _ in columns) + " |")
    lines.append("| --- |" + " ---: |" * len(columns))
    for target in results:
        lines.append(f"| {target} | " + " | ".join(cell(target, results) for _, cell in columns) + " |")
    lines += [*plot, "", *verdicts(goals, results, enough_runs=enough_runs)]
    return "\n".join(lines).rstrip() + "\n"


def _plot(scenario: Scenario, results: Results) -> list[str]:
    """A bar for each proxy: the median of what it costs (of connections that are held, of what each takes)."""
    if scenario.kind == "fresh":
        return []
    if _is_measured(rss_kb_per_connection, results):
        quantity, axis = rss_kb_per_connection, "RSS KB/connection"
    else:
        quantity, axis = partial(cost, scenario), f"CPU {scenario.cost_unit}"
    proxies = [target for target in results if target != "direct"]
    heights = [median(quantity(run) for run in results[target]) for target in proxies]
    return [
        "",
        "```mermaid",
        "xychart-beta",
        f"  x-axis [{', '.join(proxies)}]",
        f'  y-axis "{axis}" 0 --> {max(heights) * 1.1:.2g}',
        f"  bar [{', '.join(f'{height:.4g}' for height in heights)}]",
        "```",
    ]


def _column(column: Column) -> tuple[str, Cell]:
    return column.title, _cell(column.quantity, column.digits)


def _columns(scenario: Scenario, results: Results, baseline: str) -> list[tuple[str, Cell]]:
    cores = [
        Column(f"{whose} cores", measured_as(f"{name}_cores"), 2)
        for whose, name in (("brokers'", "broker"), ("loads'", "load"), ("others'", "foreign"))
    ]
    is_bulk = scenario.cost_per == "GB"
    columns = [
        (f"CPU {scenario.cost_unit}", _proxied(_cell(partial(cost, scenario), 3 if is_bulk else 1))),
        (f"CPU x {baseline}", _proxied(_ratio_cell(scenario, baseline))),
    ]
    at_clients = [Column("p50 ms", p50_ms, 2), Column("p90 ms", p90_ms, 2), Column("p99 ms", p99_ms, 2)]
    at_clients.append(Column("MB/s", mb_per_s, 0 if is_bulk else 2))
    at_proxies = [
        Column("wake-ups/request", wakeups_per_request, 2),
        Column("RSS KB/connection", rss_kb_per_connection, 1),
        Column("RSS MB at start", start_rss_mb, 1),
        Column("MB taken of a frame", taken_mb_per_connection, 1),
    ]
    for column in (*at_clients, *at_proxies, *cores):
        if _is_measured(column.quantity, results):
            title, cell = _column(column)
            columns.append((title, _proxied(cell) if column in at_proxies else cell))
    return columns


def _is_measured(quantity: Quantity, results: Results) -> bool:
    return any(_values(quantity, runs) is not None for runs in results.values() if runs)


def _values(quantity: Quantity, runs: Sequence[Measured]) -> list[float] | None:
    """The runs' values; None where this load does not measure it."""
    try:
        return [quantity(run) for run in runs]
    except KeyError:
        return None


def _cell(value: Quantity, digits: int) -> Cell:
    def cell(target: str, results: Results) -> str:
        values = _values(value, results[target])
        return "-" if values is None else _shown(values, digits)

    return cell


def _ratio_cell(scenario: Scenario, baseline: str) -> Cell:
    def cell(target: str, results: Results) -> str:
        if not results.get(baseline):
            return "-"
        costs = ([cost(scenario, run) for run in results[name]] for name in (target, baseline))
        return _shown(ratios(*costs), 2)

    return cell


def _proxied(cell: Cell) -> Cell:
    return lambda target, results: "-" if target == "direct" else cell(target, results)


def _shown(values: Sequence[float], digits: int) -> str:
    return f"{values[0]:.{digits}f}" if len(values) == 1 else Spread.of(values).shown(digits)
