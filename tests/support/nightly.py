"""`make nightly`: every test there is, to long bounds. Writes its result to docs/nightly.json."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime

from tests.support.inputs import INPUTS, LAST_NIGHTLY, ROOT, digest, last_nightly

PARTS = {
    "tests": (
        "-m",
        "not clients and not faults",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "--durations=10",
        "--timeout=1800",
    ),
    "faults": ("-m", "faults", "--timeout=1800"),
    "clients": ("-m", "clients", "--timeout=1800"),
}
ENVIRONMENT = {**os.environ, "HYPOTHESIS_PROFILE": "thorough"}


def ran(arguments: tuple[str, ...]) -> dict[str, object]:
    """Run one part with its output shown; its closing line and whether it is green."""
    command = [sys.executable, "-m", "pytest", *arguments]
    closing = ""
    with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            closing = line.strip(" =\n") or closing
    return {"green": process.returncode == 0, "closing": closing}


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Run all parts and write the record; 0 when all are green."""
    changed = git("status", "--porcelain", "--untracked-files=no")
    commit = git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
    digests = {place: digest(place) for place in INPUTS}
    begun = time.monotonic()
    parts = {name: ran(arguments) for name, arguments in PARTS.items()}
    reported = (
        subprocess.run([sys.executable, "-m", "tests.clients.report"], cwd=ROOT, check=False).returncode == 0
    )
    green = reported and all(part["green"] for part in parts.values())
    before = last_nightly()
    record = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": commit,
        "result": "green" if green else "red",
        "minutes": round((time.monotonic() - begun) / 60),
        "parts": parts,
        "inputs_from": commit if green else before.get("inputs_from", ""),
        "inputs": digests if green else before.get("inputs", {}),
    }
    LAST_NIGHTLY.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    print(
        f"nightly: {record['result']} after {record['minutes']} min; commit {LAST_NIGHTLY.relative_to(ROOT)}"
    )
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main())
