"""Results as files: one JSON per scenario with every run, and a table over the newest of each.

Knows numbers and Markdown; measures nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench import s05_memory
from bench.alone import Alone, spread_of
from bench.goals import verdicts
from bench.quantities import (
    Measured,
    Quantity,
    admitted_ids,
    mb_per_s,
    p50_ms,
    p99_ms,
    rss_kb_per_connection,
    start_rss_mb,
    wakeups_per_request,
)
from bench.scenario import Scenario, cost
from bench.statistics import median, median_interval, ratios
from bench.targets import OTHER_COMMIT, ROOT

RESULTS: Final = ROOT / "bench" / "results"
LOCAL: Final = RESULTS / "local"

_HEAD: Final = """\
# Results

Written by `python -m bench`; how to reproduce it and what each column means: [../README.md](../README.md).
Every cell is the median of the runs, with the least and the greatest in brackets; so are the numbers behind targets.
A ratio or difference is taken within each run.
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


def write_against(
    folder: Path, date: str, scenario: Scenario, settings: dict[str, Any], results: dict[str, list[Measured]]
) -> str:
    """Keep the paired runs of two commits as `<date>-<number>-<name>-against.json`; return what they say, one line."""
    of_runs = ratios(
        *([cost(scenario, run) for run in results[target]] for target in ("pidgate", OTHER_COMMIT))
    )
    try:
        interval = "95 % interval of the median {:.3f} to {:.3f}".format(*median_interval(of_runs))
    except ValueError as error:
        interval = str(error)
    said = (
        f"{scenario.number} CPU per {scenario.cost_per}: {median(of_runs):.3f} x the other commit's, "
        f"{interval} ({len(of_runs)} paired runs)"
    )
    content = {**settings, "result": said, "results": results}
    keep(folder, date, scenario.number, f"{scenario.name}-against", content)
    return said


def keep(folder: Path, date: str, number: str, name: str, content: Mapping[str, Any]) -> Path:
    """Write what a scenario measured, with its provenance, to its file of that day."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{date}-{number}-{name}.json"
    whole = {"scenario": number, "name": name, "date": date, **content}
    path.write_text(json.dumps(whole, indent=1) + "\n")
    return path


def write_tables(folder: Path, scenarios: Sequence[Scenario], alone: Sequence[Alone] = ()) -> Path:
    """Generate `README.md` beside the results from the newest file of each scenario."""
    makers: dict[tuple[str, str], Callable[[dict[str, Any], str], str]] = {
        (scenario.number, scenario.name): partial(section, scenario) for scenario in scenarios
    }
    makers[s05_memory.NUMBER, s05_memory.NAME] = s05_memory.section
    makers |= {(one.number, one.name): one.section for one in alone}
    sections = [_HEAD]
    for (number, name), make in sorted(makers.items()):
        newest = max(folder.glob(f"*-{number}-{name}.json"), default=None)
        if newest is not None:
            sections.append(make(json.loads(newest.read_text()), newest.name))
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
        cells = [cell(target, measured, results.get(scenario.baseline)) for _, cell in columns]
        lines.append(f"| {target} | " + " | ".join(cells) + " |")
    if scenario.kind != "fresh":
        lines += ["", *_plot(scenario, results)]
    if scenario.goals:
        lines += ["", *verdicts(scenario.goals, results)]
    return "\n".join(lines) + "\n"


def _plot(scenario: Scenario, results: Mapping[str, list[Measured]]) -> list[str]:
    """A bar for each proxy: the median of what it costs (for idle connections, of what each holds)."""
    if scenario.kind == "idle":
        quantity, axis = rss_kb_per_connection, "RSS KB/connection"
    else:
        quantity, axis = (
            partial(cost, scenario),
            f"CPU {'s' if scenario.cost_per == 'GB' else 'us'}/{scenario.cost_per}",
        )
    proxies = [target for target in results if target != "direct"]
    heights = [median([quantity(run) for run in results[target]]) for target in proxies]
    return [
        "```mermaid",
        "xychart-beta",
        f"  x-axis [{', '.join(proxies)}]",
        f'  y-axis "{axis}" 0 --> {max(heights) * 1.1:.2g}',
        f"  bar [{', '.join(f'{height:.4g}' for height in heights)}]",
        "```",
    ]


Cell = Callable[[str, list[Measured], list[Measured] | None], str]


def _columns(scenario: Scenario) -> list[tuple[str, Cell]]:
    others: tuple[str, Cell] = ("others' cores", _cell(lambda m: m["foreign_cores"], 2))
    if scenario.kind == "fresh":
        refused: Cell = _cell(lambda m: m["refused"], 0)
        return [("ids admitted", _cell(admitted_ids, 0)), ("ids refused", refused), others]
    unit = "s" if scenario.cost_per == "GB" else "us"
    columns: list[tuple[str, Cell]] = [
        (f"CPU {unit}/{scenario.cost_per}", _cost_cell(scenario)),
        (f"CPU x {scenario.baseline}", _ratio_cell(scenario)),
    ]
    if scenario.kind == "idle":
        columns.append(("RSS KB/connection", _cell(rss_kb_per_connection, 1, proxied_only=True)))
        columns.append(("RSS MB at start", _cell(start_rss_mb, 1, proxied_only=True)))
    else:
        columns.append(("p50 ms", _cell(p50_ms, 2)))
        columns.append(("p99 ms", _cell(p99_ms, 2)))
        columns.append(("MB/s", _cell(mb_per_s, 0 if unit == "s" else 2)))
        columns.append(("wake-ups/request", _cell(wakeups_per_request, 2, proxied_only=True)))
    return [*columns, others]


def _cell(value: Quantity, digits: int, *, proxied_only: bool = False) -> Cell:
    def cell(target: str, measured: list[Measured], baseline: list[Measured] | None) -> str:
        if proxied_only and target == "direct":
            return "-"
        return spread_of([value(run) for run in measured], digits)

    return cell


def _cost_cell(scenario: Scenario) -> Cell:
    digits = 3 if scenario.cost_per == "GB" else 1
    return _cell(lambda measured: cost(scenario, measured), digits, proxied_only=True)


def _ratio_cell(scenario: Scenario) -> Cell:
    def cell(target: str, measured: list[Measured], baseline: list[Measured] | None) -> str:
        if target == "direct" or not baseline:
            return "-"
        of_runs = ratios([cost(scenario, run) for run in measured], [cost(scenario, run) for run in baseline])
        return spread_of(of_runs, 2)

    return cell
