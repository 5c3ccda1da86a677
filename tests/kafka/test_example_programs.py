"""The programs of examples/refused and the tests of examples/pytest, run as their READMEs say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clusters import docker_refusal
from tests.support.java_classes import compiled
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST, class_path
from tools.sandbox.java import java_for
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"
REFUSED = EXAMPLES / "refused"
TopicName = Callable[[str], str]


@pytest.fixture
def gateway(cluster: Cluster) -> Iterator[GatewayProcess]:
    """Two new ids pass, then one every 5 s."""
    producer_ids = {"window": "5s", "grace": "0s"}
    quotas = {"mode": "enforce", "producer_ids": producer_ids, "default": {"producer_ids_rate": 1}}
    with GatewayProcess(cluster.bootstrap_servers(), quotas=quotas, ready_within_s=180) as running:
        yield running


def python(_folder: Path) -> list[str]:
    return [sys.executable, str(REFUSED / "refused.py")]


def java(_folder: Path) -> list[str]:
    classes = compiled(REFUSED / "Refused.java")
    jars = os.pathsep.join(map(str, (classes, *class_path(NEWEST))))
    return [str(java_for(NEWEST)), "-cp", jars, "Refused"]


def go(folder: Path) -> list[str]:
    built(folder, "go", "go", "build", "-o", str(folder / "refused"), ".")
    return [str(folder / "refused")]


def node(folder: Path) -> list[str]:
    there = built(folder, "node", "npm", "install", "--no-audit", "--no-fund", "--no-package-lock")
    return ["node", str(there / "refused.mjs")]


def built(folder: Path, name: str, *command: str) -> Path:
    """Build a copy of the folder of that name; skip where the tool is missing."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"DID NOT RUN: there is no {command[0]}")
    there = folder / name
    shutil.copytree(REFUSED / name, there)
    done = subprocess.run(command, cwd=there, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return there


@pytest.mark.parametrize("language", [python, java, go, node])
def test_the_third_producer_waits_and_is_served(
    cluster: Cluster,
    gateway: GatewayProcess,
    topic_name: TopicName,
    tmp_path: Path,
    language: Callable[[Path], list[str]],
) -> None:
    topic = create_topic(cluster.bootstrap_servers(), topic_name(f"refused-{language.__name__}"))
    command = [*language(tmp_path), gateway.bootstrap_servers, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    acknowledged = re.findall(r"^producer (\d): acknowledged after ([\d.]+) s$", done.stdout, re.MULTILINE)
    assert [number for number, _ in acknowledged] == ["1", "2", "3"], done.stdout
    assert float(acknowledged[2][1]) > 1.0
    assert gateway.metrics().value("pidgate_requests_refused_total") > 0
    if language is not node:  # it logs the error alone
        assert re.search(r"^producer 3: throttled for [\d.]+ s$", done.stdout, re.MULTILINE), done.stdout
    else:
        assert "fewer in-sync replicas" in done.stdout + done.stderr


@pytest.mark.parametrize("kafka", ["embedded", "container"])
def test_a_users_own_pytest(kafka: str, tmp_path: Path) -> None:
    folder = tmp_path / "app"
    shutil.copytree(EXAMPLES / "pytest", folder)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if kafka == "container":
        if (why_not := docker_refusal()) is not None:
            pytest.skip(f"DID NOT RUN: {why_not}")
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    else:
        with Cluster(ClusterSpec(properties={"auto.create.topics.enable": "true"})) as cluster:
            environment["KAFKA_BOOTSTRAP_SERVERS"] = cluster.bootstrap_servers()
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
