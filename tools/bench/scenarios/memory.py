"""Memory of the quota, with everything it keeps, and what asking it costs; needs neither a broker nor a quiet machine.

05: 1,000 users with 10,000 live ids each, every id used in every slice over three times the time to remember; and one
user that brings five million ids in an hour, one in five of which comes back once. `steady_rate` is the least quota
under which all ids of a user are let in within the first slice. 13: the filter alone, 1,000 users x 10,000 ids, each
used in both of two windows, so that it stands in both layers; `pidgate` is the compiled one, `plain` the other, the
time of a check is processor time; `users` are 20,000, each with one id. Each load is a process of its own, at a
simulated time (quota_memory.py).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.bench.alone import Alone, Column, Conditions, Plan, Results
from tools.bench.compiled import compiled, environment
from tools.bench.goals import Goal
from tools.bench.quantities import Measured, Quantity, measured_as
from tools.bench.targets import PLAIN, ROOT, TargetFailed

_ROGUE_IDS_PER_S: Final = 5_000_000 / 3_600


def run(kind: str, plan: Plan, packages: Path = ROOT) -> Measured:
    """Run one load with the packages of that folder. Raises TargetFailed."""
    command = [sys.executable, "-m", "tools.bench.loads.quota_memory", kind, json.dumps(dict(plan))]
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
    measured: Measured = json.loads(finished.stdout)
    return measured


def _measure(plan: Plan, conditions: Conditions) -> Results:
    steady = {
        "users": plan["users"],
        "live_ids": plan["live_ids"],
        "remembers": plan["remembers"],
        "rate": plan["steady_rate"],
    }
    loads = {"steady": steady, "rogue": {"ids": plan["rogue_ids"], "per_s": _ROGUE_IDS_PER_S}}
    results = {}
    for kind, fields in loads.items():
        measured = run(kind, fields)
        sizes = ", ".join(f"{key} {value / 1e6:.1f} MB" for key, value in measured.items() if "bytes" in key)
        conditions.say(f"05 {kind}: {sizes}")
        results[kind] = [measured]
    return results


def _measure_filter(plan: Plan, conditions: Conditions) -> Results:
    results = {}
    for target, packages in (("pidgate", compiled()), (PLAIN, ROOT)):
        measured = run("two_windows", plan, packages)
        conditions.say(
            f"13 {target}: {_mb('grown_bytes')(measured):.1f} MB, check {measured['check_known_us']:.2f} us"
        )
        results[target] = [measured]
    results["users"] = [run("many_users", {"users": plan["few_ids_users"]}, compiled())]
    return results


def _mb(name: str) -> Quantity:
    return lambda measured: measured[name] / 1e6


def _check_us(measured: Measured) -> float:
    """Of the kind of id that takes longer."""
    return max(measured["check_known_us"], measured["check_unknown_us"])


MEMORY: Final = Alone(
    number="05",
    name="quota-memory",
    title="Memory of the quota",
    kafka="none",
    plan={
        "users": 1_000,
        "live_ids": 10_000,
        "remembers": 3,
        "steady_rate": 1_500,
        "rogue_ids": 5_000_000,
    },
    quick={"users": 50, "live_ids": 2_000, "remembers": 1.5, "steady_rate": 300, "rogue_ids": 500_000},
    measure=_measure,
    columns=(
        Column("RSS grown, at the end MB", _mb("grown_bytes"), 1),
        Column("at most MB", _mb("peak_bytes"), 1),
        Column("of it filters MB", _mb("filter_bytes"), 1),
        Column("after a fifth of a rogue's ids MB", _mb("grown_bytes_1"), 1),
        Column("after all MB", _mb("grown_bytes_5"), 1),
    ),
    goals=(
        Goal("RSS grown, at its peak,", _mb("peak_bytes"), "at most", 150, "MB", target="steady"),
        # Below it is noise of the allocator.
        Goal(
            "a rogue's RSS grown after the first fifth of its ids",
            lambda m: (m["grown_bytes_5"] - m["grown_bytes_1"]) / 1e6,
            "at most",
            5,
            "MB",
            target="rogue",
        ),
    ),
    enough_runs=1,
)
FILTER: Final = Alone(
    number="13",
    name="filter",
    title="10 million live ids over two windows",
    kafka="none",
    plan={"users": 1_000, "live_ids": 10_000, "few_ids_users": 20_000},
    quick={"users": 50, "few_ids_users": 2_000},
    measure=_measure_filter,
    columns=(
        Column("RSS grown MB", _mb("grown_bytes"), 1),
        Column("of it filters MB", _mb("filter_bytes"), 1),
        Column("check of a known id us", measured_as("check_known_us"), 2),
        Column("of an unknown one us", measured_as("check_unknown_us"), 2),
        Column("unknown ones found", measured_as("found_unknown"), 5),
    ),
    goals=(
        Goal("memory", _mb("grown_bytes"), "at most", 150, "MB"),
        Goal("a check", _check_us, "at most", 3, "us"),
        Goal("known ids found", measured_as("found_known"), "exactly", 1),
    ),
    enough_runs=1,
)
