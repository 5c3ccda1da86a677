"""The demo as its users run it. Both runs kill a broker, so they belong to `make faults`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def demo(directory: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, output and summary of one run; its temporary files stay below the directory."""
    path = directory / "demo-summary.json"
    done = subprocess.run(
        [sys.executable, "-m", "tools.sandbox.demo", "--summary", str(path), *arguments],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert path.exists(), done.stdout + done.stderr
    return done.returncode, done.stdout, json.loads(path.read_text())


@pytest.mark.kafka
@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_broker_dies_directly_and_lives_behind_the_gateway(tmp_path: Path) -> None:
    code, output, summary = demo(tmp_path)

    assert [check for check in summary["checks"] if not check["passed"]] == []
    assert code == 0, output
    assert summary["direct"]["broker_died"]["value"] is True
    assert summary["through_gateway"]["broker_died"]["value"] is False
    assert summary["through_gateway"]["ids_in_log"]["value"]["mallory"] in (101, 102)
    headings = [
        "Verdict",
        "Who and why",
        "Bystanders",
        "What mallory saw",
        "Heap and ids over time",
        f"Checks: {len(summary['checks'])} of {len(summary['checks'])}",
        "Next",
    ]
    assert [line.strip() for line in output.splitlines() if line.strip() in headings] == headings
    assert [path.name for path in tmp_path.iterdir()] == ["demo-summary.json"]


@pytest.mark.kafka
@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_without_a_quota_the_verifier_fails_and_the_exit_code_tells(tmp_path: Path) -> None:
    code, output, summary = demo(tmp_path, "--quota", "off")

    assert code == 1, output
    assert summary["passed"] is False
    assert summary["through_gateway"]["broker_died"]["value"] is True
    failed = {check["name"] for check in summary["checks"] if not check["passed"]}
    assert "through the gateway, it outlives that time" in failed
    assert "mallory's new ids stay within the quota" in failed
    kept = next(path for path in tmp_path.iterdir() if path.name.startswith("pidgate-demo-"))
    assert (kept / "direct" / "broker.log").stat().st_size > 0
    assert (kept / "gateway" / "pidgate.log").stat().st_size > 0
