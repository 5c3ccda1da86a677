"""A transaction that is refused in its middle for longer than transaction.timeout.ms is aborted, and never half read.

A gateway that has forgotten the id (killed, without topic and state directory) and has no token for it refuses what
continues the transaction; meanwhile the coordinator's patience ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.java_client import properties_file
from tests.support.java_classes import java_classes
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST, class_path
from tools.sandbox.java import java_for
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.faults, pytest.mark.slow]

TIMEOUT_MS = 4_000
HALF = 5


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def broker(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Of either version of the transaction protocol (KIP-890)."""
    spec = ClusterSpec(
        features={"transaction.version": request.param},
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"},
    )
    with Cluster(spec) as cluster:
        yield cluster


def quotas(rate: int) -> dict[str, Any]:
    return {
        "mode": "enforce",
        "default": {"producer_ids_rate": rate},
        "producer_ids": {"grace": "0s", "max_throttle": "1s", "transactional": "enforce"},
    }


def command(client: str, servers: str, topic: str) -> Sequence[str | Path]:
    if client != "java":
        return (
            *(sys.executable, "-m", "tests.support.clients.refused_transaction"),
            *(client, servers, topic, str(TIMEOUT_MS), str(HALF)),
        )
    # As Kafka Streams has it: short transactions, and no end of retries.
    properties = {
        "bootstrap.servers": servers,
        "transactional.id": topic,
        "transaction.timeout.ms": str(TIMEOUT_MS),
        "linger.ms": "100",
        "retries": "2147483647",
    }
    jars = os.pathsep.join(map(str, (java_classes("RefusedTransaction"), *class_path(NEWEST))))
    return (
        *(java_for(NEWEST), "-XX:-UsePerfData", "-Xmx128m", "-cp", jars, "RefusedTransaction"),
        *(str(properties_file(properties)), topic, str(HALF)),
    )


@pytest.mark.parametrize("client", ["java", "confluent-kafka", "kafka-python", "aiokafka"])
def test_it_is_aborted_as_a_whole_and_the_next_one_commits(broker: Cluster, client: str) -> None:
    topic = create_topic(broker.bootstrap_servers(), f"refused-for-long-{client}")
    with (
        GatewayProcess(broker.bootstrap_servers(), quotas=quotas(100)) as gateway,
        subprocess.Popen(
            command(client, gateway.bootstrap_servers, topic),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while (line := process.stdout.readline()) and not line.startswith("half"):
                pass
            assert line
            gateway.kill()
            gateway.config["quotas"] = {**gateway.config["quotas"], **quotas(0)}
            gateway.start()
            process.stdin.write("go\n")
            process.stdin.flush()
            until(lambda: gateway.metrics().value("pidgate_requests_refused_total") > 0, 60)
            time.sleep(2 * TIMEOUT_MS / 1_000)
            gateway.kill()
            gateway.config["quotas"] = {**gateway.config["quotas"], **quotas(100)}
            gateway.start()
            told, _ = process.communicate(timeout=180)
        finally:
            process.kill()
    found = dict(line.split("\t", 1) for line in told.splitlines() if "\t" in line)
    print(f"{client}: {found}")
    assert process.returncode == 0
    assert found["after"] == "committed"
    committed = [
        one.value.decode() for one in read_log(broker.bootstrap_servers(), topic, isolation="read_committed")
    ]
    assert found["outcome"] != "committed", "an application must learn of it"
    assert committed == [f"after-{n}" for n in range(HALF)]
