"""The pipeline at size: how long each job takes, and what all its processes together hold, at 5 and 50 million events.

A history is made up (`python -m tools.history`); then the jobs run one after the other, each as a person would run
it. Ingest takes the million events of one day out of a real Kafka on the same cores. Memory is the proportional
set size (PSS) of the whole family of processes, looked at twice a second, so that what forked Python workers share
counts once. Needs a Java 17 or 21, some 30 GB of disk and half an hour.

A result is kept (--commit) as a whole: every job at every size, by the script of the commit that it names.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from tools.bench.events_topic import fill
from tools.bench.machine import describe
from tools.bench.process_cost import family
from tools.bench.targets import ROOT
from tools.sandbox.jars import NEWEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

RESULTS: Final = ROOT / "tools" / "bench" / "results" / "pipeline-scale"
SIZES: Final = (5_000_000, 50_000_000)
MOST_MINUTES: Final = 10
"""Of recommend."""
TOGETHER: Final = "rates, offenders"
"""In one session, as `pidgate pipeline run` runs all jobs."""
MOST_MINUTES_TOGETHER: Final = 3
MOST_GB: Final = 4.0
RATES: Final = "10,20,50,100,200,500,1000,2000,5000,10000"
JOBS: Final[Mapping[str, Sequence[str]]] = {
    TOGETHER: (),
    "recommend": ("--candidates", RATES),
}
HISTORY: Final = "history"
"""Made up by a module of its own, no job of the pipeline."""
INGEST: Final = "ingest"
LEAST_PER_S: Final = 100_000
"""Events of ingest, once Spark's workers run: without its first batch."""
INGEST_EVENTS: Final = 1_000_000
"""By more the broker is measured, which keeps them in memory."""
INGEST_USERS: Final = 300
"""So many in one day: of a month there would be five thousand hours of a type, and a file of 200 events for each."""
EVENTS_PER_USER: Final = 100_000
"""Of a month: ten times the users make ten times the events, each user's as large as before."""
LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Run:
    """One job over one history. `events` were asked for, `decisions` of them are in it."""

    job: str
    events: int
    decisions: int
    seconds: float
    peak_gb: float
    per_s: int | None = None
    """Records a second in all batches but the first, where a job says so."""


JUDGED: Final = (
    "pattern", "users", "precision", "precision_low", "precision_high", "recall", "recall_low", "recall_high"
)  # fmt: skip
"""Columns of detector_accuracy that are kept; intervals are Wilson's, of 95 %."""


def main() -> None:
    """Measure, and keep the tables. Raises SystemExit when a job has failed."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--events", type=int, nargs="+", default=list(SIZES))
    asked.add_argument("--jobs", nargs="+", default=[INGEST, *JOBS], choices=[INGEST, *JOBS])
    asked.add_argument(
        "--folder", type=Path, help="keep the tables here, and take a history that is there already"
    )
    asked.add_argument("--seed", type=int, default=1, help="of the histories")
    asked.add_argument("--commit", action="store_true", help="keep the result in tools/bench/results")
    options = asked.parse_args()
    if options.commit and (changed := _git("status", "--porcelain", "--untracked-files=no")):
        raise SystemExit(
            f"commit what has changed first, or the result names a commit that it is not of:\n{changed}"
        )
    runs: list[Run] = []
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pipeline-scale-") as passing:
        folder = options.folder or Path(passing)
        if INGEST in options.jobs:
            runs += _ingest(folder, options.seed)
        for events in options.events:
            tables = folder / f"tables-{events}-{options.seed}"
            if not (tables / "labels").exists():
                runs.append(
                    _run(HISTORY, events, tables, _history(events, events // EVENTS_PER_USER, options.seed))
                )
            runs += [_run(job, events, tables, JOBS[job]) for job in JOBS if job in options.jobs]
            found += _found(tables, events, options.seed)
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(kafka=NEWEST).as_json(),
        "runs": [asdict(run) for run in runs],
        "found": found,
    }
    print(page(content))
    if options.commit:
        if found_wrong := problem(content):
            raise SystemExit(f"not kept: {found_wrong}")
        RESULTS.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text(page(content))


def problem(content: Mapping[str, Any]) -> str | None:
    """Return why this is not what a whole run of this script writes, of a commit that is known here; None: it is."""
    if list(content) != ["date", "machine", "runs", "found"]:
        return f"its parts are {', '.join(content)}"
    for row in content["runs"]:
        types = {name: type(value).__name__ for name, value in row.items()}
        if types != Run.__annotations__ | {"per_s": "NoneType" if row.get("per_s") is None else "int"}:
            return f"a run has {types}, not {Run.__annotations__}"
    for row in content["found"]:
        if set(row) != {"events", "seed", *JUDGED}:
            return f"a row of what was found has {', '.join(row)}"
    measured = [(row["job"], row["events"]) for row in content["runs"] if row["job"] != HISTORY]
    wanted = [(INGEST, INGEST_EVENTS), *((job, size) for size in SIZES for job in JOBS)]
    if measured != wanted:
        return f"it measures {measured}, not {wanted}"
    commit = content["machine"]["commit"]
    known = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    if not known or _git("merge-base", known, "HEAD") != known:
        return f"its commit {commit} is not in the history"
    return None


def _git(*words: str) -> str:
    """Return what git prints; nothing where it objects."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _ingest(folder: Path, seed: int) -> Iterator[Run]:
    """Make a history and take it out of a topic into tables of its own."""
    tables = folder / f"tables-{INGEST}-{seed}"
    if not (tables / "labels").exists():
        day = [*_history(INGEST_EVENTS, INGEST_USERS, seed), "--days", "1"]
        yield _run(HISTORY, INGEST_EVENTS, tables, day)
    with Cluster(ClusterSpec()) as cluster, tempfile.TemporaryDirectory(dir=folder) as taken:
        servers = cluster.bootstrap_servers()
        fill(servers, tables)
        yield _run(INGEST, INGEST_EVENTS, Path(taken), ["--kafka", servers, "--json"])


def _history(events: int, users: int, seed: int) -> list[str]:
    return ["--events", str(events), "--users", str(users), "--seed", str(seed)]


def _found(tables: Path, events: int, seed: int) -> list[dict[str, Any]]:
    """Return what `offenders` found of each pattern, judged by the labels; nothing when it was not run."""
    accuracy = tables / "results" / "detector_accuracy"
    if not accuracy.exists():
        return []
    rows = pq.read_table(accuracy, columns=list(JUDGED)).to_pylist()
    return [{"events": events, "seed": seed, **row} for row in rows]


def _decisions(tables: Path) -> int:
    files = (tables / "events" / "decision").rglob("*.parquet")
    return sum(pq.read_metadata(file).num_rows for file in files)


def command_of(job: str, tables: Path, options: Sequence[str]) -> list[str]:
    """Return the command that runs a job over the tables, or makes the history up."""
    both = ("pidgate.pipeline", "run", *(word for name in TOGETHER.split(", ") for word in ("--only", name)))
    words = {HISTORY: ("tools.history",), TOGETHER: both}.get(job, ("pidgate.pipeline", job))
    return [sys.executable, "-m", *words, "--tables", str(tables), *options]


def _run(job: str, events: int, tables: Path, options: Sequence[str]) -> Run:
    """One job to its end. Raises SystemExit with its last words when it fails."""
    command = command_of(job, tables, options)
    began_s, peak_bytes = time.monotonic(), 0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peak_bytes = max(peak_bytes, sum(map(_pss_bytes, family(process.pid))))
            time.sleep(LOOK_EVERY_S)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{job} ended with {process.returncode}:\n{said.read()[-3000:]}")
        said.seek(0)
        per_s = _per_s(said.read())
    run = Run(
        job,
        events,
        _decisions(tables),
        round(time.monotonic() - began_s, 1),
        round(peak_bytes / 1e9, 2),
        per_s,
    )
    print(
        f"{job} of {events:,} events: {run.seconds:.0f} s, {run.peak_gb:.2f} GB", file=sys.stderr, flush=True
    )
    return run


def _per_s(said: str) -> int | None:
    """Return the records a second of all batches but the first, out of what `ingest --json` has printed."""
    last = said.strip().rpartition("\n")[2]
    if not last.startswith("{"):
        return None
    sums = json.loads(last)
    return round(int(sums["warm_records"]) / int(sums["warm_ms"]) * 1000)


def _pss_bytes(pid: int) -> int:
    with suppress(OSError):
        summed = re.search(r"^Pss:\s*(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(summed[1]) * 1024 if summed else 0
    return 0


def page(content: Mapping[str, Any]) -> str:
    machine = content["machine"]
    runs = [Run(**run) for run in content["runs"]]
    lines = [
        "# The pipeline at size",
        "",
        f"{content['date']}, {machine['cores']} x {machine['cpu']}, {machine['memory_gib']} GiB, Python "
        f"{machine['python']}, commit {machine['commit']}. Reproduce: `make pipeline-scale`.",
        "",
        "| job | events | of them decisions | seconds | all processes, at most (GB) |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {run.job} | {run.events:,} | {run.decisions:,} | {run.seconds:.0f} | {run.peak_gb:.2f} |"
            for run in runs
        ),
        "",
        *(f"- {verdict}" for verdict in _verdicts(runs)),
        "",
        "## Who is found",
        "",
        "Users of made-up histories, found by `offenders` and judged by the labels; 95 % intervals in brackets.",
        "",
        "| events, seed | pattern | users | precision | recall |",
        "| --- | --- | ---: | ---: | ---: |",
        *(
            f"| {one['events']:,}, {one['seed']} | {one['pattern']} | {one['users']} | "
            f"{_share(one, 'precision')} | {_share(one, 'recall')} |"
            for one in content["found"]
        ),
    ]
    return "\n".join(lines) + "\n"


def _verdicts(runs: Sequence[Run]) -> Iterator[str]:
    """Held against the bounds; what was not measured is not spoken of."""
    took = {(run.job, run.events): run.seconds for run in runs}
    sizes = sorted({run.events for run in runs})
    for run in runs:
        if run.per_s is not None:
            yield f"{_met(run.per_s >= LEAST_PER_S)}: {run.job} {run.per_s:,} events/s once warm; {LEAST_PER_S:,}"
    if (TOGETHER, sizes[-1]) in took:
        minutes = took[TOGETHER, sizes[-1]] / 60
        verdict = _met(minutes < MOST_MINUTES_TOGETHER)
        yield f"{verdict}: {TOGETHER} {minutes:.1f} minutes; below {MOST_MINUTES_TOGETHER}"
    largest = max(
        (run for run in runs if run.job == "recommend"), key=lambda run: run.decisions, default=None
    )
    if largest is not None:
        minutes, rates = largest.seconds / 60, len(RATES.split(","))
        yield (
            f"{_met(minutes < MOST_MINUTES)}: recommend of {largest.decisions:,} decisions at {rates} rates "
            f"{minutes:.1f} minutes; below {MOST_MINUTES} for 10 million"
        )
    peak_gb = max(run.peak_gb for run in runs)
    yield f"{_met(peak_gb < MOST_GB)}: all processes {peak_gb:.2f} GB; below {MOST_GB:g}"
    for job in JOBS:
        of_job = sorted(size for name, size in took if name == job)
        if len(of_job) > 1:
            times, size = took[job, of_job[-1]] / took[job, of_job[0]], of_job[-1] / of_job[0]
            yield f"{_met(times <= size)}: {job} takes {times:.1f} times as long for {size:g} times the events"


def _share(found: Mapping[str, Any], name: str) -> str:
    if found[name] is None:
        return "-"
    return f"{found[name]:.2f} ({found[f'{name}_low']:.2f}-{found[f'{name}_high']:.2f})"


def _met(holds: bool) -> str:
    return "**met**" if holds else "**not met**"


if __name__ == "__main__":
    main()
