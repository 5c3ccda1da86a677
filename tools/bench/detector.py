"""Precision and recall of `pidgate pipeline offenders` over made-up histories that no rule was fitted to.

    python -m tools.bench.detector                    users of habits; about 25 minutes on two idle cores, 3 GB of disk
    python -m tools.bench.detector --fleet reports    users built after reports of incidents

To change a rule (findings/rules.py), look at other seeds and never at these.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from tools.bench.pipeline_scale import HISTORY, command_of
from tools.bench.targets import ROOT
from tools.history.world import Fleet

HELD_OUT_SEEDS: Final = (936_001, 936_002, 936_003)
SIZE: Final = ("--users", "300", "--days", "14", "--scale", "0.3", "--end", "2026-11-21")
COUNTED: Final = ("users", "found", "true_positives")


def main() -> None:
    """Make the histories, judge them and print. Raises CalledProcessError when a job has failed."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seeds", type=int, nargs="+", default=list(HELD_OUT_SEEDS))
    asked.add_argument("--fleet", type=Fleet, choices=list(Fleet), default=Fleet.HABITS)
    options = asked.parse_args()
    found: list[dict[str, Any]] = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory(prefix="detector-") as folder:
            tables = Path(folder)
            run(HISTORY, tables, *SIZE, "--seed", str(seed), "--fleet", options.fleet)
            run("offenders", tables)
            found += pq.read_table(tables / "results" / "detector_accuracy").to_pylist()
    print(page(summed(found)))


def run(job: str, tables: Path, *options: str) -> None:
    """Run a job to its end. Raises CalledProcessError."""
    subprocess.run(command_of(job, tables, options), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def summed(rows: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Return COUNTED of each pattern over all histories."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row["pattern"], Counter()).update({name: row[name] for name in COUNTED})
    return dict(sorted(found.items()))


def page(found: Mapping[str, Mapping[str, int]]) -> str:
    """Return a table in Markdown."""
    lines = ["| pattern | users | found | precision | recall |", "| --- | --- | --- | --- | --- |"]
    for pattern, counts in found.items():
        users, called, right = (counts[name] for name in COUNTED)
        lines.append(f"| {pattern} | {users} | {called} | {_share(right, called)} | {_share(right, users)} |")
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


if __name__ == "__main__":
    main()
