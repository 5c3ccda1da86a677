"""`python -m tools.bench [--only 01,02] [--runs 5] [--quick]`: measure, print tables, keep the results.

Starts one real broker, warms it up, and runs each scenario through every target in turn.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pidgate import open_files
from tools.bench import report, sizing
from tools.bench.alone import BROKER_BYTES, Alone, Conditions, broker_spec
from tools.bench.compiled import CannotCompile
from tools.bench.loads.client import FAILURES
from tools.bench.machine import allows, come_first, describe, pin, placement
from tools.bench.scenario import Bench, Plan, Scenario, baseline_of, measure, measure_side_by_side
from tools.bench.scenarios import by_clients, held, memory, metadata, start, storm, through_targets, tls
from tools.bench.targets import OTHER_COMMIT, TARGETS, Broker, TargetFailed, Tree, is_available
from tools.sandbox.errors import SandboxError
from tools.sandbox.kafka import Cluster
from tools.sandbox.play import keep_brokers_in_memory
from tools.sandbox.ports import free_port
from tools.sandbox.spec import PROXIED

SCENARIOS: Final = (*through_targets.SCENARIOS, *by_clients.SCENARIOS, *tls.SCENARIOS)
ALONE: Final[Sequence[Alone]] = (
    memory.MEMORY,
    storm.SCENARIO,
    metadata.SCENARIO,
    start.SCENARIO,
    memory.FILTER,
    storm.LOGS_IN,
    held.FLEET,
    held.ARRIVALS,
    held.STALL,
    held.SCRAPE,
)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument(
        "--only", default="", help="numbers or names of scenarios: 01,bulk-fetch-java (default: all)"
    )
    parser.add_argument("--targets", default=",".join(TARGETS), help="default: %(default)s")
    parser.add_argument("--runs", type=int, default=5, help="rounds over all targets (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round")
    parser.add_argument("--no-pin", action="store_true", help="let the kernel place processes")
    parser.add_argument(
        "--nice", type=int, default=0, help="as root: -10 comes before others' work on this machine"
    )
    parser.add_argument(
        "--against",
        metavar="FOLDER[:MODULE]",
        help="compare with the compiled tree of another commit (tools/bench/README.md), side by side",
    )
    parser.add_argument(
        "--commit", action="store_true", help="write to tools/bench/results, not tools/bench/results/local"
    )
    return parser.parse_args(arguments)


def _say(line: str) -> None:
    print(line, flush=True)


def _warm_up(bench: Bench, quick: bool) -> None:
    """Let the broker's JVM compile before anything counts."""
    for scenario in SCENARIOS[:2]:
        seconds = {"warmup_s": 1, "measure_s": 2 if quick else 8}
        warmup = replace(scenario, number="warm-up", plan={**scenario.plan, **seconds}, quick={})
        measure(warmup, bench, ["direct"], 1, False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when a run failed, 2 when nothing could be run."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.nice:
        come_first(os.getpid(), options.nice)
    every: list[Scenario | Alone] = [*SCENARIOS, *ALONE]
    names = sorted({word for one in every for word in (one.number, one.name)})
    wanted = set(options.only.split(",") if options.only else names)
    scenarios = _within_open_files(
        [scenario for scenario in SCENARIOS if wanted & {scenario.number, scenario.name}], options.quick
    )
    targets = [target for target in options.targets.split(",") if is_available(target)]
    unknown = sorted((wanted - set(names)) | (set(targets) - set(TARGETS)))
    if unknown or not targets:
        _say(f"there is no {', '.join(unknown)}" if unknown else "no target can be run here")
        _say(f"scenarios: {', '.join(names)}; targets: {', '.join(TARGETS)}")
        return 2
    runs = 1 if options.quick else options.runs
    folder = report.RESULTS if options.commit else report.LOCAL
    started = time.monotonic()
    try:
        if scenarios:
            _measure_through_targets(options, scenarios, targets, runs, folder)
        for one in ALONE:
            if wanted & {one.number, one.name}:
                _measure_alone(one, options, runs, folder)
    except (*FAILURES, TargetFailed, CannotCompile, SandboxError) as error:
        _say(f"bench: {error}")
        return 1
    except KeyboardInterrupt:
        return 1
    table = report.write_tables(folder, (*SCENARIOS, *ALONE))
    if options.commit:
        sizing.PAGE.write_text(sizing.table(), "utf-8")
    _say(f"\n{table.read_text()}\n{time.monotonic() - started:.0f} s; kept in {folder}")
    return 0


def _within_open_files(scenarios: Sequence[Scenario], quick: bool) -> list[Scenario]:
    """Return those for which a process may open enough files here; print the others."""
    limit = open_files.allow_most(max((scenario.open_files(quick) for scenario in scenarios), default=0))
    fitting = []
    for scenario in scenarios:
        needed = scenario.open_files(quick)
        if allows(limit, needed):
            fitting.append(scenario)
        else:
            _say(
                f"{scenario.number} left out: a proxy needs {needed:,} open files, {limit:,} are allowed here "
                "(the hard limit, ulimit -Hn; root may raise it)"
            )
    return fitting


def _settings(options: argparse.Namespace, kafka: str, plan: Plan) -> dict[str, Any]:
    """Return the sources of the results."""
    return {
        "machine": describe(kafka).as_json(),
        "pinned": placement(not options.no_pin).proxy is not None,
        "quick": options.quick,
        "nice": options.nice,
        "plan": dict(plan),
    }


def _measure_alone(scenario: Alone, options: argparse.Namespace, runs: int, folder: Path) -> None:
    _say(f"{scenario.number} {scenario.title}")
    plan = scenario.plan_for(options.quick)
    settings = _settings(options, scenario.kafka, plan)
    results = scenario.measure(plan, Conditions(runs, placement(not options.no_pin), _say))
    report.keep(folder, _today(), scenario.number, scenario.name, {**settings, "results": results})


def _measure_through_targets(
    options: argparse.Namespace,
    scenarios: Sequence[Scenario],
    targets: Sequence[str],
    runs: int,
    folder: Path,
) -> None:
    where, spec = placement(not options.no_pin), broker_spec(proxied_port=free_port())
    keep_brokers_in_memory(BROKER_BYTES)
    with Cluster(spec) as cluster:
        [(node_id, address)] = cluster.nodes.items()
        broker_pid = cluster.node(node_id).pid
        assert broker_pid is not None
        if options.nice:
            come_first(broker_pid, options.nice)
        other = Tree.parse(options.against) if options.against else None
        broker = Broker(node_id, address, cluster.addresses(PROXIED)[node_id], spec.proxied_port)
        bench = Bench(broker, broker_pid, where, _say, other)
        _warm_up(replace(bench, placement=placement(False)), options.quick)
        pin(broker_pid, where.rest)
        for scenario in scenarios:
            through = [target for target in scenario.targets if target in targets]
            if other is not None:
                through = [OTHER_COMMIT, "pidgate"]
            if not through:
                continue
            _say(f"{scenario.number} {scenario.title}")
            settings = _settings(options, spec.version, scenario.plan_for(options.quick))
            how = measure_side_by_side if scenario.at_once or other is not None else measure
            results = how(scenario, bench, through, runs, options.quick)
            content = {**settings, "baseline": baseline_of(scenario, results), "results": results}
            name = scenario.name
            if other is not None:
                content["result"] = report.compared(scenario, results)
                name += "-against"
                _say(content["result"])
            report.keep(folder, _today(), scenario.number, name, content)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


if __name__ == "__main__":
    sys.exit(main())
