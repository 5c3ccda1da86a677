"""`python -m tools.bench.pipeline_against FOLDER`: the pipeline's jobs at this commit beside another one, run by run.

FOLDER holds the other commit. Both work on the same made-up history, one after the other, each first in every second
run. Printed are ratios of processor seconds of all processes of a job (start of Spark included), and of seconds.
The results of both have to be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb

from tools.bench.events_topic import fill
from tools.bench.machine import describe
from tools.bench.pipeline_scale import HISTORY, INGEST, JOBS, RESULTS, command_of
from tools.bench.process_cost import cost_of
from tools.bench.statistics import Spread, ratios
from tools.bench.targets import ROOT
from tools.sandbox.jars import NEWEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

RESULT: Final = RESULTS.with_name("pipeline-against.json")
COMPARED: Final = {
    "rates": ("rates_by_time", "rates_clients", "held_by_hour", "rates_users"),
    "recommend": ("recommend_candidates",),
}
"""Tables that have to be equal."""
LOOK_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Cost:
    """One run of one job."""

    cpu_s: float
    seconds: float


def main() -> None:
    """Measure, compare and print; keep the result with --commit."""
    asked = argparse.ArgumentParser(prog="python -m tools.bench.pipeline_against", description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--events", type=int, default=2_000_000)
    asked.add_argument("--users", type=int, default=40)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--runs", type=int, default=3)
    asked.add_argument(
        "--jobs", nargs="+", default=["rates", "recommend", INGEST], choices=[INGEST, *COMPARED]
    )
    asked.add_argument("--tables", type=Path, help="take the history that is there")
    asked.add_argument("--commit", action="store_true", help=f"keep the result in {RESULT.name}")
    options = asked.parse_args()
    trees = {"other": options.folder.resolve(), "this": ROOT}
    with ExitStack() as stack:
        passing = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pipeline-against-")))
        tables = options.tables or passing / "tables"
        if not tables.exists():
            size = ("--events", options.events, "--users", options.users, "--seed", options.seed)
            _run(ROOT, HISTORY, tables, list(map(str, size)))
        more: dict[str, Sequence[str]] = {**dict.fromkeys(COMPARED, ()), **JOBS}
        if INGEST in options.jobs:
            servers = stack.enter_context(Cluster(ClusterSpec())).bootstrap_servers()
            fill(servers, tables)
            more[INGEST] = ["--kafka", servers]
        runs = {
            job: list(_pairs(job, trees, tables, passing, more[job], options.runs)) for job in options.jobs
        }
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(kafka=NEWEST).as_json(),
        "other_commit": _commit_of(trees["other"]),
        "events": options.events,
        "users": options.users,
        "seed": options.seed,
        "ratios": {job: _ratios(pairs) for job, pairs in runs.items()},
        "runs": {job: [{name: asdict(cost) for name, cost in pair.items()} for pair in pairs]
                 for job, pairs in runs.items()},
    }  # fmt: skip
    print(json.dumps(content["ratios"], indent=1))
    if options.commit:
        RESULT.write_text(json.dumps(content, indent=1) + "\n")


def _pairs(
    job: str, trees: Mapping[str, Path], tables: Path, passing: Path, more: Sequence[str], runs: int
) -> Iterator[Mapping[str, Cost]]:
    for run in range(runs):
        found: dict[str, Cost] = {}
        results: dict[str, Path] = {}
        for name in sorted(trees, reverse=run % 2 == 0):
            place = passing / f"{job}-{run}-{name}" if job == INGEST else tables
            found[name] = _run(trees[name], job, place, more)
            if job in COMPARED:
                results[name] = (tables / "results").rename(passing / f"results-{job}-{run}-{name}")
        for table in COMPARED.get(job, ()):
            _same(*(results[name] / table for name in trees))
        print(f"{job} {run + 1} of {runs}: {found}", file=sys.stderr, flush=True)
        yield found


def _run(tree: Path, job: str, tables: Path, options: Sequence[str]) -> Cost:
    """One job to its end. Raises SystemExit with its last words when it fails."""
    command = command_of(job, tables, options)
    environment = os.environ | {"PYTHONPATH": str(tree)}
    began_s, cpu_ns = time.monotonic(), 0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            with suppress(FileNotFoundError):
                cpu_ns = max(cpu_ns, cost_of(process.pid).cpu_ns)
            time.sleep(LOOK_EVERY_S)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{job} of {tree} ended with {process.returncode}:\n{said.read()[-3000:]}")
    return Cost(round(cpu_ns / 1e9, 2), round(time.monotonic() - began_s, 1))


def _same(one: Path, other: Path) -> None:
    """Raise SystemExit when a row is in one table only."""
    rows = [duckdb.read_parquet(f"{table}/*.parquet") for table in (one, other)]
    left, right = rows
    if different := _rows_beside(left, right) + _rows_beside(right, left):
        raise SystemExit(f"{one.name} differs in {different} rows")


def _rows_beside(one: duckdb.DuckDBPyRelation, other: duckdb.DuckDBPyRelation) -> int:
    """Return how many rows the one has that the other has not, or not as often."""
    beside = duckdb.sql("from one except all from other")
    assert beside is not None
    return len(beside.fetchall())


def _ratios(pairs: Sequence[Mapping[str, Cost]]) -> dict[str, Any]:
    """Return this commit's cost by the other's, in each run."""
    return {
        name: asdict(Spread.of(ratios(*([getattr(pair[tree], name) for pair in pairs] for tree in ("this", "other")))))
        for name in ("cpu_s", "seconds")
    }  # fmt: skip


def _commit_of(tree: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=tree, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()
