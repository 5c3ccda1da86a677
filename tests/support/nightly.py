"""`make nightly [PARTS="hostile faults"]`: every test there is, to long bounds. Writes results to docs/nightly.json."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tests.support.inputs import INPUTS, LAST_NIGHTLY, ROOT, digest, last_nightly

SIDE_BY_SIDE = ("-n", "2", "--dist", "loadgroup", "--durations=10")
SCHEDULES = "tests/unit/simulator/test_schedules.py::test_by_night"
PARTS = {
    "tests": (
        "-m",
        "not clients and not faults",
        "--ignore=tests/hostile",
        f"--deselect={SCHEDULES}",
        *SIDE_BY_SIDE,
    ),
    "schedules": (SCHEDULES, *SIDE_BY_SIDE),
    "hostile": ("tests/hostile", *SIDE_BY_SIDE),
    "faults": ("-m", "faults"),
    "clients": ("-m", "clients"),
}
"""Each can be run again by itself: one that fails need not cost the hours of the others.

`schedules` depends on no clock but its own, so that it may run beside anything.
"""

ENVIRONMENT = {**os.environ, "HYPOTHESIS_PROFILE": "thorough"}


def ran(name: str) -> dict[str, Any]:
    """Run one part, and once more what failed of it; its closing lines, whether it is green, and what was tested."""
    record = LAST_NIGHTLY.relative_to(ROOT)
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{record}")
    commit = git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
    begun = time.monotonic()
    green, lines = tested(PARTS[name])
    part: dict[str, Any] = {"closing": lines[-1]}
    if not green:
        # Its second try is its last one: what fails alone, too, is a fault (docs/decisions/0011).
        part["failed_first"] = [
            line.split(" - ")[0] for line in lines if line.startswith(("FAILED ", "ERROR "))
        ]
        green, lines = tested((*PARTS[name], "--last-failed", "--last-failed-no-failures=none"))
        part["closing_of_second_try"] = lines[-1]
    elif name == "clients":
        # Of a second try there are only the cells that failed at first: docs/clients.md stays as it is.
        report = subprocess.run([sys.executable, "-m", "tests.clients.report"], cwd=ROOT, check=False)
        green = report.returncode == 0
    return {
        "green": green,
        **part,
        "commit": commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "minutes": round((time.monotonic() - begun) / 60),
    }


def tested(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Run pytest with its output shown; return if it is green, and the lines of its summary, the closing one last."""
    # By day a test that takes four minutes shows where it is. Here some do, and the look at a running interpreter has
    # ended one.
    command = [sys.executable, "-m", "pytest", "--timeout=1800", "-o", "faulthandler_timeout=0", *arguments]
    summary = [""]
    with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if "short test summary info" in line:
                summary.clear()
            summary.append(line.strip(" =\n"))
    return process.returncode == 0, [line for line in summary if line] or [""]


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
        if name == "tests" and part["green"]:
            record |= {"inputs_from": part["commit"], "inputs": digests}
        green = all(parts.get(one, {}).get("green") for one in PARTS)
        record |= {"result": "green" if green else "red", "parts": parts}
        LAST_NIGHTLY.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    print(f"nightly: {record['result']}; commit {LAST_NIGHTLY.relative_to(ROOT)}")
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main())
