"""`pidgate load` as its users run it: what it says it did is what broker and gateway have seen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.topics import create_topic
from tools.sandbox.wire import ProducerStates

pytestmark = pytest.mark.kafka

PIDGATE = Path(sys.executable).with_name("pidgate")
PARTITIONS = 2
KINDS = ("steady", "crash-loop", "id-per-batch", "new-on-error", "transactional", "connect")
TopicName = Callable[[str], str]


def started(bootstrap_servers: str, topic: str, *options: str) -> subprocess.Popen[str]:
    command: list[str | Path] = [
        PIDGATE,
        "load",
        "--bootstrap-servers",
        bootstrap_servers,
        "--topic",
        topic,
        *options,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(load: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
    stdout, stderr = load.communicate(timeout=60)
    assert load.returncode == code, stderr
    told: dict[str, Any] = json.loads(stdout)
    for kind in (told["total"], *told["kinds"].values()):
        assert kind["due"] == kind["acknowledged"] + kind["lost"] + kind["unfinished"]
    return told


def loaded(bootstrap_servers: str, topic: str, *options: str) -> dict[str, Any]:
    return ended(started(bootstrap_servers, topic, *options, "--json"))


def ids_at(cluster: Cluster, topic: str) -> set[int]:
    """Whose state the broker keeps for the topic."""
    (address,) = cluster.addresses().values()
    with ProducerStates(address) as states:
        return {id for ids in states.ids(topic, range(PARTITIONS)).values() for id in ids}


def gateway_before(cluster: Cluster, **producer_ids: Any) -> GatewayProcess:
    quotas: dict[str, Any] = {"mode": "observe"}
    if producer_ids:
        rate = producer_ids.pop("rate")
        quotas = {
            "mode": "enforce",
            "default": {"producer_ids_rate": rate},
            "producer_ids": {"max_throttle": "300ms", **producer_ids},
        }
    return GatewayProcess(cluster.bootstrap_servers(), quotas=quotas)


@pytest.fixture
def topic(sasl_cluster: Cluster, topic_name: TopicName) -> str:
    return create_topic(sasl_cluster.bootstrap_servers(), topic_name("load"), PARTITIONS)


def test_each_kind_takes_the_ids_that_it_says_and_what_is_acknowledged_is_in_the_log(
    sasl_cluster: Cluster, topic: str
) -> None:
    two_of_each = [word for kind in KINDS for word in ("--clients", f"{kind}=2@16")]
    options = ["--duration", "1s", "--batch", "3x100"]
    client_id = ["--client-id", topic]  # transactional ids of its own
    told = loaded(sasl_cluster.bootstrap_servers(), topic, *two_of_each, *options, *client_id)
    for name, kind in told["kinds"].items():
        assert 15 <= kind["due"] <= 17
        assert kind["acknowledged"] == kind["due"] == kind["latency_ms"]["count"]
        if name == "connect":
            assert kind["connections"] == kind["due"]
            continue
        assert kind["requests"] == kind["due"]
        assert (kind["records"], kind["bytes"]) == (3 * kind["due"], 300 * kind["due"])
        assert (kind["lost"], kind["unfinished"], kind["refused"]) == (0, 0, {})
        assert kind["ids"] == (kind["due"] if name in ("crash-loop", "id-per-batch") else 2)
        if name == "transactional":
            assert kind["connections"] >= 4  # to the coordinator, too; more while a fresh broker looks for it
        else:
            assert kind["connections"] == kind["ids"]
    assert len(told["kinds"]) == 6
    assert len(ids_at(sasl_cluster, topic)) == told["total"]["ids"]
    log = read_log(sasl_cluster.bootstrap_servers(), topic, isolation="read_committed")
    assert len(log) == told["total"]["records"]
    assert {len(record.value) for record in log} == {100}
    assert {record.partition for record in log} == set(range(PARTITIONS))


def test_who_crashes_is_refused_at_the_quota_and_the_well_behaved_are_not(
    sasl_cluster: Cluster, topic: str
) -> None:
    with gateway_before(sasl_cluster, rate=6, window="10h") as gateway:
        options = ["--clients", "crash-loop=2@20", "--clients", "steady=2@30", "--duration", "1s"]
        told = loaded(gateway.bootstrap_servers, topic, *options)
        good, crashing = told["kinds"]["steady"], told["kinds"]["crash-loop"]
        assert good["acknowledged"] == good["due"] >= 29
        assert (good["ids"], good["lost"], good["refused"]) == (2, 0, {})
        # A burst of one window and one more; two are the good ones'.
        assert (crashing["acknowledged"], crashing["ids"]) == (5, crashing["due"])
        refused = crashing["due"] - 5
        assert crashing["refused"] == {"19": refused}
        assert crashing["refused_with_throttle"] == crashing["lost"] == refused >= 14
        assert 0 < crashing["throttle_s"] <= 0.3 * refused + 0.001
        assert gateway.metrics().value("pidgate_requests_refused_total") == refused
        assert len(ids_at(sasl_cluster, topic)) == 7
        assert len(read_log(sasl_cluster.bootstrap_servers(), topic)) == good["records"] + 5


def test_a_topic_is_made_only_when_asked_for(sasl_cluster: Cluster, topic_name: TopicName) -> None:
    servers, topic = sasl_cluster.bootstrap_servers(), topic_name("load-made")
    load = started(servers, topic)
    stdout, stderr = load.communicate(timeout=30)
    assert (load.returncode, stdout) == (2, "")
    assert stderr == f"pidgate load: topic {topic} does not exist; --create-topic N creates it\n"
    load = started(servers, topic, "--create-topic", "3", "--duration", "300ms")
    stdout, stderr = load.communicate(timeout=30)
    assert (load.returncode, stderr) == (0, "")
    assert "steady" in stdout
    assert "p99.9 ms" in stdout
    assert len(read_log(servers, topic)) == 3
