"""Memory of the quota, with everything it keeps; needs neither a broker nor a quiet machine.

1,000 users with 10,000 live ids each, every id used in every slice over three times the time to remember; and
one user that brings five million ids in an hour, one in five of which comes back once. Both with the real
`Admission` in a process of its own, at a simulated time. `rate` is the least quota under which all ids of a
user are let in within the first slice.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bench.compiled import environment
from bench.goals import Goal, verdicts
from bench.targets import ROOT, TargetFailed

NUMBER: Final = "05"
NAME: Final = "quota-memory"
TITLE: Final = "Memory of the quota"

Plan = Mapping[str, float]
Results = dict[str, dict[str, float]]

PLANS: Final[Mapping[str, Plan]] = {
    "steady": {"users": 1_000, "live_ids": 10_000, "remembers": 3, "rate": 1_500},
    "rogue": {"ids": 5_000_000, "per_s": 5_000_000 / 3_600},
}
QUICK: Final[Mapping[str, Plan]] = {
    "steady": {"users": 50, "live_ids": 2_000, "remembers": 1.5, "rate": 300},
    "rogue": {"ids": 500_000, "per_s": 5_000_000 / 3_600},
}
MOST_STEADY_BYTES: Final = 150_000_000
MOST_ROGUE_GROWTH_BYTES: Final = 5_000_000
"""Between the first and the fifth fifth: noise of the allocator."""

GOALS: Final = (
    Goal(
        of="RSS grown, at its peak,",
        quantity=lambda m: m["peak_bytes"] / 1e6,
        bound="at most",
        limit=MOST_STEADY_BYTES / 1e6,
        unit="MB",
        target="steady",
    ),
    Goal(
        of="a rogue's RSS grown after the first fifth of its ids",
        quantity=lambda m: (m["grown_bytes_5"] - m["grown_bytes_1"]) / 1e6,
        bound="at most",
        limit=MOST_ROGUE_GROWTH_BYTES / 1e6,
        unit="MB",
        target="rogue",
    ),
)


def measure(quick: bool, say: Callable[[str], None]) -> Results:
    """Both loads, one after the other. TargetFailed when one of them does not end well."""
    results: Results = {}
    for kind, plan in (QUICK if quick else PLANS).items():
        results[kind] = run(kind, plan)
        say(f"{NUMBER} {kind}: {_brief(results[kind])}")
    return results


def run(kind: str, plan: Plan, packages: Path = ROOT) -> dict[str, float]:
    """One load in a process of its own, with the packages of that folder."""
    command = [sys.executable, "-m", "bench.quota_memory", kind, json.dumps(dict(plan))]
    path = os.pathsep.join((str(packages), str(ROOT)))
    finished = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment(packages), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        raise TargetFailed(f"the {kind} load failed: {finished.stderr.strip()[-2000:]}")
    measured: dict[str, float] = json.loads(finished.stdout)
    return measured


def _brief(measured: Mapping[str, float]) -> str:
    return ", ".join(f"{key} {value / 1e6:.1f} MB" for key, value in measured.items() if "bytes" in key)


def section(content: Mapping[str, Any], file: str) -> str:
    """The scenario's heading, provenance and table, for the page of results."""
    machine, results = content["machine"], content["results"]
    steady, rogue = results["steady"], results["rogue"]
    plan = content["plan"]
    millions = plan["rogue"]["ids"] / 1e6
    rows = [
        ("users x live ids", f"{plan['steady']['users']:,} x {plan['steady']['live_ids']:,}"),
        ("RSS grown, at the end (MB)", f"{steady['grown_bytes'] / 1e6:.1f}"),
        ("RSS grown, at most (MB)", f"{steady['peak_bytes'] / 1e6:.1f}"),
        ("of it in filters (MB)", f"{steady['filter_bytes'] / 1e6:.1f}"),
        (f"a rogue's RSS after {millions / 5:g} million ids (MB)", f"{rogue['grown_bytes_1'] / 1e6:.1f}"),
        (f"after {millions:g} million (MB)", f"{rogue['grown_bytes_5'] / 1e6:.1f}"),
    ]
    where = f"{content['date']}, Python {machine['python']}, commit {machine['commit']} ([{file}]({file}))"
    lines = [f"## {NUMBER} {TITLE}", "", where, ""]
    if content["quick"]:
        lines += ["A smoke run (`--quick`): a small part of the load.", ""]
    lines += ["| | |", "| --- | ---: |", *(f"| {name} | {value} |" for name, value in rows), ""]
    lines += verdicts(GOALS, {kind: [run] for kind, run in results.items()}, enough_runs=1)
    return "\n".join(lines) + "\n"
