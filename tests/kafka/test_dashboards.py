"""Every panel of deploy/grafana asks a real Prometheus that has scraped a real gateway, and none is empty."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tools.dashboards import BOARDS, FOLDER, board
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.ports import free_port
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

SCRAPED_S = 8
"""A rate needs two scrapes, one a second."""
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus here (Debian's package of that name)"
)


@pytest.mark.parametrize("name", BOARDS)
def test_the_dashboard_is_the_generated_one(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text("utf-8") == board(name, BOARDS[name]), "run `make docs`"


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a Prometheus that has scraped a gateway with admitted, refused and waiting ids."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    direct = cluster.bootstrap_servers()
    create_topic(direct, "panel-records")
    quotas = {
        "mode": "enforce",
        "producer_ids": {"window": "4s", "grace": "0s"},
        "default": {"producer_ids_rate": 2},
    }
    with GatewayProcess(
        direct, node_ids=cluster.nodes, quotas=quotas, settings={"events": {"topic": "panels"}}
    ) as gateway:
        server = _started(folder, port, gateway.admin_url.removeprefix("http://"))
        try:
            for number in range(5):
                settings = {"bootstrap.servers": gateway.bootstrap_servers, "message.timeout.ms": 20_000}
                producer = Producer({**settings, "enable.idempotence": True})
                producer.produce("panel-records", str(number).encode())
                producer.flush(20)
            time.sleep(SCRAPED_S)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def _started(folder: Path, port: int, target: str) -> subprocess.Popen[bytes]:
    config = folder / "prometheus.yml"
    jobs = [{"job_name": "pidgate", "static_configs": [{"targets": [target]}]}]
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    return subprocess.Popen(
        [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def answer(prometheus: str, expression: str) -> list[Any]:
    query = urllib.parse.urlencode({"query": expression.replace("$user", "ANONYMOUS")})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{query}", timeout=10) as response:
        return list(json.load(response)["data"]["result"])


@needs_prometheus
@pytest.mark.parametrize(
    ("name", "title", "expression"),
    [
        (name, panel.title, expression)
        for name, panels in BOARDS.items()
        for panel in panels
        for expression in panel.asks
    ],
)
def test_a_panel_is_not_empty(prometheus: str, name: str, title: str, expression: str) -> None:
    shown = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    asked = {target["expr"] for panel in shown["panels"] for target in panel["targets"]}
    assert expression in asked
    assert answer(prometheus, expression), f"{name}, {title}: {expression}"


@needs_prometheus
def test_the_control_a_question_about_no_metric_is_empty(prometheus: str) -> None:
    assert answer(prometheus, "pidgate_no_such_metric") == []
