"""`make nightly [PARTS="hostile faults"]`: every test there is, to long bounds. Writes results to docs/nightly.json.

No test has a second try within a run. What a first failure printed is kept in .nightly/, to be explained: a test that
fails now and then is a fault of the product or of itself.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.inputs import INPUTS, LAST_NIGHTLY, ROOT, digest, last_nightly

SIDE_BY_SIDE = ("-n", "2", "--dist", "loadgroup", "--durations=10")
SCHEDULES = "tests/unit/simulator/test_schedules.py::test_by_night"
LEFT_OUT_BY_DAY = tuple(INPUTS)
UNDER_LOAD = ("brokers_under_load", "network_under_load", "processes_under_load", "bad_clients_under_load")
PARTS = {
    "tests": (
        "-m",
        "not clients and not faults",
        *(f"--ignore={place}" for place in ("tests/hostile", *LEFT_OUT_BY_DAY)),
        f"--deselect={SCHEDULES}",
        *SIDE_BY_SIDE,
    ),
    "builds": ("-m", "not faults", *LEFT_OUT_BY_DAY, *SIDE_BY_SIDE),
    "schedules": (SCHEDULES, *SIDE_BY_SIDE),
    "hostile": ("tests/hostile", *SIDE_BY_SIDE),
    "no-lanes": (
        "-m",
        "not clients and not faults and not nightly",
        "tests/kafka",
        "tests/hostile",
        *SIDE_BY_SIDE,
    ),
    "load": tuple(f"tests/faults/test_{name}.py" for name in UNDER_LOAD),
    "faults": ("-m", "faults", *(f"--ignore=tests/faults/test_{name}.py" for name in UNDER_LOAD)),
    "clients": ("-m", "clients"),
}
"""Each takes at most 90 minutes on two processors, and can be run again by itself: one that fails need not cost the
hours of the others.

`builds` are the tests that compile, install or run Spark: by day they are left out while nothing of theirs changed.

`no-lanes` runs tests on real Kafka as where the extension is not built; all others run with lanes.

`schedules` depends on no clock but its own, so that it may run beside anything.
"""

KEPT = ROOT / ".nightly"
"""Not committed: tracebacks name places on the machine."""

BY_NIGHT = ("--timeout=1800", "-o", "faulthandler_timeout=0", "--force-reruns=0")
"""By day a test that takes four minutes shows where it is. Here some do, and the look at a running interpreter has
ended one. And by day a test on real brokers has two tries (docs/decisions/0011)."""

ENVIRONMENT = {**os.environ, "HYPOTHESIS_PROFILE": "thorough"}
WITHOUT_LANES = {"PYTHONPATH": str(ROOT / "tests/support/without_lanes")}


def ran(name: str) -> dict[str, Any]:
    """Run one part, and once more what failed of it; its closing lines, whether it is green, and what was tested."""
    record = LAST_NIGHTLY.relative_to(ROOT)
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{record}")
    commit = git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
    begun = time.monotonic()
    environment = WITHOUT_LANES if name == "no-lanes" else {}
    green, printed = tested(PARTS[name], environment)
    lines = summary_of(printed)
    part: dict[str, Any] = {"closing": lines[-1]}
    if not green:
        part["failed_first_output"] = keep(failures_of(printed), name, commit)
        # Its second try is its last one: what fails alone, too, is a fault (docs/decisions/0011).
        part["failed_first"] = [
            line.split(" - ")[0] for line in lines if line.startswith(("FAILED ", "ERROR "))
        ]
        green, printed = tested(
            (*PARTS[name], "--last-failed", "--last-failed-no-failures=none"), environment
        )
        part["closing_of_second_try"] = summary_of(printed)[-1]
    elif name == "clients":
        # Of a second try there are only the cells that failed at first: docs/reference/clients.md stays as it is.
        report = subprocess.run([sys.executable, "-m", "tests.clients.report"], cwd=ROOT, check=False)
        green = report.returncode == 0
    return {
        "green": green,
        **part,
        "commit": commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "minutes": round((time.monotonic() - begun) / 60),
    }


def tested(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Run pytest with its output shown; return if it is green, and what it printed."""
    command = [sys.executable, "-m", "pytest", *BY_NIGHT, *arguments]
    printed = []
    with subprocess.Popen(
        command, cwd=ROOT, env={**ENVIRONMENT, **environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
    return process.returncode == 0, printed


def summary_of(printed: Iterable[str]) -> list[str]:
    """Return the lines of pytest's summary, the closing one last."""
    summary = [""]
    for line in printed:
        if "short test summary info" in line:
            summary.clear()
        summary.append(line.strip(" =\n"))
    return [line for line in summary if line] or [""]


def failures_of(printed: Iterable[str]) -> str:
    """Return all that pytest printed of failures: tracebacks, and what their tests had printed."""
    kept, is_failure = [], False
    for line in printed:
        if line.startswith("===") and (" FAILURES " in line or " ERRORS " in line):
            is_failure = True
        elif line.startswith("===") and "short test summary info" in line:
            is_failure = False
        if is_failure:
            kept.append(line)
    return "".join(kept)


def keep(failures: str, part: str, commit: str, folder: Path = KEPT) -> str:
    """Write the failures of a part to a file of this commit; return its name within the checkout."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{part}-{commit.replace(' ', '-')}.txt"
    path.write_text(failures, "utf-8")
    return f"{folder.name}/{path.name}"


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Run the parts that are named, or all, and write the record; 0 when each was green when it last ran."""
    names = sys.argv[1:] or list(PARTS)
    if unknown := set(names) - set(PARTS):
        sys.exit(f"nightly: no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in names:
        digests = {place: digest(place) for place in INPUTS}
        part = ran(name)
        record = last_nightly()
        parts = {**record.get("parts", {}), name: part}
        if name == "builds" and part["green"]:
            record |= {"inputs_from": part["commit"], "inputs": digests}
        green = all(parts.get(one, {}).get("green") for one in PARTS)
        record |= {"result": "green" if green else "red", "parts": parts}
        LAST_NIGHTLY.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    print(f"nightly: {record['result']}; commit {LAST_NIGHTLY.relative_to(ROOT)}")
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main())
