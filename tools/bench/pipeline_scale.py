"""The pipeline at size: what each job takes of time, cores and memory, at 7 and 50 million events.

A history is made up (`python -m tools.history`); then the jobs run one after the other, each as a person would run
it. Ingest takes the million events of one day out of a real Kafka on the same cores. Of 7 million events, 90 % of the
ids are also given to one user. Processor time and memory are those of the whole family of processes, looked at twice
a second: the system does not count Spark's workers as ended children, and what they share counts once as
proportional set size (PSS). Needs a Java 17 or 21, some 30 GB of disk and half an hour.

A result is kept (--commit) as a whole: every job at every size, by the script of the commit that it names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tools.bench.events_topic import fill
from tools.bench.machine import describe
from tools.bench.process_cost import ENDED, family
from tools.bench.targets import ROOT
from tools.sandbox.jars import NEWEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

RESULTS: Final = ROOT / "tools" / "bench" / "results" / "pipeline-scale"
SIZES: Final = (7_000_000, 50_000_000)
TOGETHER: Final = "rates, offenders"
"""In one session, as `pidgate pipeline run` runs all jobs."""
LOCAL: Final = f"{TOGETHER} (--engine local)"
OF_ONE: Final = f"{TOGETHER} (90 % of the ids are one user's)"
RECOMMEND: Final = "recommend"
JOBS: Final[Mapping[str, Sequence[str]]] = {
    TOGETHER: (),
    LOCAL: ("--engine", "local"),
    OF_ONE: (),
    RECOMMEND: ("--candidates", "10,20,50,100,200,500,1000,2000,5000,10000"),
}
AT_FIRST_SIZE: Final = (LOCAL, OF_ONE)
"""Not at the others."""
BOUNDS: Final[Mapping[tuple[str, int], tuple[int, int | None]]] = {
    (TOGETHER, 7_000_000): (35, 70),
    (LOCAL, 7_000_000): (20, 40),
    (TOGETHER, 50_000_000): (120, 240),
    (RECOMMEND, 50_000_000): (90, None),
}
"""At most so many seconds, and processor seconds, on two cores."""
MOST_OF_ONE: Final = 1.5
"""Times as long as with the ids of all users."""
SHARE_OF_ONE: Final = 0.9
MOST_GB: Final = 3.0
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
    cpu_s: float
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
            for job in _jobs_at(events, options.events):
                if job in options.jobs:
                    place = _of_one(tables) if job == OF_ONE else tables
                    runs.append(_run(job, events, place, JOBS[job]))
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
    wanted = [(INGEST, INGEST_EVENTS), *((job, size) for size in SIZES for job in _jobs_at(size, SIZES))]
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


def _jobs_at(events: int, sizes: Sequence[int]) -> list[str]:
    return [job for job in JOBS if job not in AT_FIRST_SIZE or events == sizes[0]]


def _of_one(tables: Path) -> Path:
    """Return a copy of the events in which the users with the most ids, who have 90 % of all, are one."""
    target = tables.with_name(f"{tables.name}-of-one")
    counts = Counter(pq.read_table(tables / "labels_ids", columns=["user"])["user"].to_pylist())
    left, alike = SHARE_OF_ONE * counts.total(), []
    for user, ids in counts.most_common():
        if left > 0:
            left -= ids
            alike.append(user)
    for file in (tables / "events").rglob("*.parquet"):
        events = pq.ParquetFile(file).read()
        if "user" in events.column_names:
            users = pc.if_else(pc.is_in(events["user"], pa.array(alike)), "one", events["user"])
            events = events.set_column(events.column_names.index("user"), "user", users)
        place = target / file.relative_to(tables)
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(events, place)
    return target


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
    words = {HISTORY: ("tools.history",), **dict.fromkeys((TOGETHER, *AT_FIRST_SIZE), both)}.get(
        job, ("pidgate.pipeline", job)
    )
    return [sys.executable, "-m", *words, "--tables", str(tables), *options]


def _run(job: str, events: int, tables: Path, options: Sequence[str]) -> Run:
    """One job to its end. Raises SystemExit with its last words when it fails."""
    command = command_of(job, tables, options)
    began_s, peak_bytes, cpu_s = time.monotonic(), 0, dict[int, float]()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            members = family(process.pid)
            cpu_s |= {pid: max(_cpu_s(pid), cpu_s.get(pid, 0)) for pid in members}
            peak_bytes = max(peak_bytes, sum(map(_pss_bytes, members)))
            time.sleep(LOOK_EVERY_S)
        seconds = time.monotonic() - began_s
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{job} ended with {process.returncode}:\n{said.read()[-3000:]}")
        said.seek(0)
        per_s = _per_s(said.read())
    run = Run(
        job,
        events,
        _decisions(tables),
        round(seconds, 1),
        round(sum(cpu_s.values()), 1),
        round(peak_bytes / 1e9, 2),
        per_s,
    )
    said_of_it = f"{run.seconds:.0f} s, {run.cpu_s:.0f} processor s, {run.peak_gb:.2f} GB"
    print(f"{job} of {events:,} events: {said_of_it}", file=sys.stderr, flush=True)
    return run


def _per_s(said: str) -> int | None:
    """Return the records a second of all batches but the first, out of what `ingest --json` has printed."""
    last = said.strip().rpartition("\n")[2]
    if not last.startswith("{"):
        return None
    sums = json.loads(last)
    return round(int(sums["warm_records"]) / int(sums["warm_ms"]) * 1000)


def _cpu_s(pid: int) -> float:
    """Return the processor time of one process so far, of its ended threads too."""
    with suppress(*ENDED):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


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
        "| job | events | of them decisions | seconds | processor seconds | all processes, at most (GB) |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {run.job} | {run.events:,} | {run.decisions:,} | {run.seconds:.0f} | {run.cpu_s:.0f} | "
            f"{run.peak_gb:.2f} |"
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
    took = {(run.job, run.events): run for run in runs}
    for run in runs:
        if run.per_s is not None:
            yield f"{_met(run.per_s >= LEAST_PER_S)}: {run.job} {run.per_s:,} events/s once warm; {LEAST_PER_S:,}"
    for (job, events), (seconds, cpu_s) in BOUNDS.items():
        if (one := took.get((job, events))) is None:
            continue
        holds = one.seconds <= seconds and (cpu_s is None or one.cpu_s <= cpu_s)
        bound = f"{seconds} s" if cpu_s is None else f"{seconds} s and {cpu_s}"
        yield f"{_met(holds)}: {job} of {events:,} {one.seconds:.0f} s and {one.cpu_s:.0f} processor s; {bound}"
    for (job, events), of_one in took.items():
        if job == OF_ONE and (even := took.get((TOGETHER, events))):
            times = of_one.seconds / even.seconds
            yield f"{_met(times <= MOST_OF_ONE)}: {job} {times:.2f} times as long; {MOST_OF_ONE:g}"
    peak_gb = max(run.peak_gb for run in runs)
    yield f"{_met(peak_gb <= MOST_GB)}: all processes {peak_gb:.2f} GB; {MOST_GB:g}"


def _share(found: Mapping[str, Any], name: str) -> str:
    if found[name] is None:
        return "-"
    return f"{found[name]:.2f} ({found[f'{name}_low']:.2f}-{found[f'{name}_high']:.2f})"


def _met(holds: bool) -> str:
    return "**met**" if holds else "**not met**"


if __name__ == "__main__":
    main()
