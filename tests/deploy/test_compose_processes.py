"""What compose.yaml starts, as processes of this machine: the page shows a refusal within five minutes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.compose_processes import COMPOSE, ComposeProcesses
from tests.support.image import ROOT
from tests.support.running_producers import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FROM_AN_EMPTY_MACHINE_S = 300


@pytest.fixture(scope="module")
def processes() -> Iterator[ComposeProcesses]:
    with ComposeProcesses() as started:
        started.wait_for_a_refusal()
        yield started


def test_the_offender_is_refused_and_the_steady_client_is_not(processes: ComposeProcesses) -> None:
    (user,) = processes.page()["users"]["rows"]
    assert user["name"] == "ANONYMOUS"
    assert user["refused_1h"] > 0
    # Its part is 20 of 40, so the offender has 21 ids and the steady client 4.
    assert user["new_1h"] == 25
    until(lambda: " refused" in processes.log("offender"), 60)
    until(lambda: re.search(r"steady: [1-9]", processes.log("steady")), 60)
    assert "refused" not in processes.log("steady")


def test_prometheus_scrapes_with_the_token_and_reads_the_alerts(processes: ComposeProcesses) -> None:
    if "prometheus" not in processes.services:
        pytest.skip("DID NOT RUN: there is no prometheus")
    address = f"http://127.0.0.1:{processes.prometheus_port}/api/v1"
    until(lambda: asked(f"{address}/query?query=up") == ["1"], 60)
    refused = urllib.parse.quote("sum(pidgate_requests_refused_total) > bool 0")
    until(lambda: asked(f"{address}/query?query={refused}") == ["1"], 60)
    with urllib.request.urlopen(f"{address}/rules", timeout=10) as answer:
        groups = json.load(answer)["data"]["groups"]
    written = yaml.safe_load((COMPOSE.parent / "prometheus" / "alerts.yaml").read_text())["groups"]
    assert {rule["name"] for group in groups for rule in group["rules"]} >= {
        rule["alert"] for group in written for rule in group["rules"] if "alert" in rule
    }


def asked(url: str) -> list[str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return [found["value"][1] for found in json.load(answer)["data"]["result"]]
    except OSError:
        return []


def test_grafana_finds_its_dashboards_and_their_data_source() -> None:
    """Grafana itself is not at hand."""
    service = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]["grafana"]
    mounted = {
        target: COMPOSE / source
        for source, target, *_ in (volume.split(":") for volume in service["volumes"])
    }
    (provider,) = yaml.safe_load((COMPOSE / "grafana" / "dashboards.yaml").read_text())["providers"]
    (source,) = yaml.safe_load((COMPOSE / "grafana" / "datasource.yaml").read_text())["datasources"]
    boards = mounted[provider["options"]["path"]]
    home = Path(service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (boards / home.name).exists()
    for board in boards.glob("*.json"):
        assert data_sources(json.loads(board.read_text())) <= {
            source["uid"],
            "${datasource}",
            "-- Grafana --",
        }


def data_sources(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(data_sources, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    own = value.get("datasource")
    found = {own["uid"]} if isinstance(own, dict) and "uid" in own else set()
    return found.union(*map(data_sources, value.values()))


@pytest.mark.install
@pytest.mark.timeout(900)
def test_from_an_empty_machine_to_the_first_refusal(tmp_path: Path) -> None:
    """A clone, a Python, and nothing that was downloaded before."""
    began_s = time.monotonic()
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
    # What is not committed yet is a part of it.
    shutil.copy(ROOT / "tests/support/compose_processes.py", clone / "tests/support")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PIP_NO_CACHE_DIR": "1"}
    environment |= {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_", "REQUESTS_", "JGO_"))
    }
    python = clone / ".venv" / "bin" / "python"
    commands: tuple[list[str | Path], ...] = (
        [sys.executable, "-m", "venv", clone / ".venv"],
        [python, "-m", "pip", "install", "-q", "--require-hashes", "-r", "requirements/demo.lock"],
        [python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-e", "."],
        [python, "-m", "tests.support.compose_processes"],
    )
    for command in commands:
        done = subprocess.run(
            command, cwd=clone, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    took_s = time.monotonic() - began_s
    print(f"from an empty machine in {took_s:.0f} s: {done.stdout}")
    assert took_s < FROM_AN_EMPTY_MACHINE_S
