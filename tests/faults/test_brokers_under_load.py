"""Brokers that die, stop, hang, move or give up their leadership under mixed load: every application gets through."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.clients.java_tools import admin
from tests.support.fault_load import PARTITIONS, QUOTAS, FaultLoad
from tests.support.running_producers import until
from tests.support.tls_listener import add_tls_listener
from tools.sandbox.certificates import Authority
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]

NODE_IDS = (1, 2, 3)
_numbers = count(1)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    spec = ClusterSpec(
        node_ids=NODE_IDS,
        properties={
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
        },
    )
    with Cluster(spec) as cluster:
        yield cluster


def controller_of(cluster: Cluster) -> int:
    told = admin(cluster.tools, "MetadataQuorumCommand", cluster.bootstrap_servers(), "describe", "--status")
    found = re.search(r"LeaderId:\s+(\d+)", told.stdout)
    assert found is not None, told
    return int(found[1])


def leaders(cluster: Cluster, topic: str) -> list[int]:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
    partitions = client.list_topics(topic, timeout=10).topics[topic].partitions
    return [partitions[number].leader for number in sorted(partitions)]


def are_led_by(cluster: Cluster, topic: str, node_id: int) -> bool:
    return leaders(cluster, topic) == [node_id] * PARTITIONS


def killed(cluster: Cluster, _topic: str) -> None:
    cluster.node(2).kill()
    time.sleep(4)
    cluster.start_node(2)


def stopped(cluster: Cluster, _topic: str) -> None:
    cluster.node(2).stop()
    time.sleep(2)
    cluster.start_node(2)


def hangs(cluster: Cluster, _topic: str) -> None:
    cluster.node(3).signal(signal.SIGSTOP)
    time.sleep(8)
    cluster.node(3).signal(signal.SIGCONT)


def elsewhere(cluster: Cluster, _topic: str) -> None:
    cluster.node(3).kill()
    cluster.start_node(3, new_port=True)


def leaders_move(cluster: Cluster, topic: str) -> None:
    """Away from a broker and back, without any of them ending."""
    for first in (2, 3, 1):
        order = [first, *(node for node in NODE_IDS if node != first)]
        moves = [{"topic": topic, "partition": number, "replicas": order} for number in range(PARTITIONS)]
        reassign(cluster, moves)
        elect(cluster)
        until(partial(are_led_by, cluster, topic, first), 60)


def reassign(cluster: Cluster, moves: list[dict[str, object]]) -> None:
    file = cluster.directory / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    cluster.tools.run(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--bootstrap-server", cluster.bootstrap_servers()),
        *("--reassignment-json-file", str(file), "--execute"),
    )


def elect(cluster: Cluster) -> None:
    everywhere = ("--election-type", "preferred", "--all-topic-partitions")
    admin(cluster.tools, "LeaderElectionCommand", cluster.bootstrap_servers(), *everywhere)


def controller_changes(cluster: Cluster, _topic: str) -> None:
    before = controller_of(cluster)
    cluster.node(before).kill()
    time.sleep(3)
    cluster.start_node(before)
    assert controller_of(cluster) != before


@pytest.mark.parametrize(
    "fault",
    [killed, stopped, hangs, elsewhere, leaders_move, controller_changes],
    ids=lambda fault: fault.__name__,
)
def test_every_application_gets_through(
    brokers: Cluster, fault: Callable[[Cluster, str], None], tmp_path: Path
) -> None:
    name = f"{fault.__name__.replace('_', '-')}-{next(_numbers)}"
    servers = brokers.bootstrap_servers()
    authority, gateway = Authority(tmp_path), GatewayProcess(servers, quotas=QUOTAS, node_ids=NODE_IDS)
    tls = (add_tls_listener(gateway, authority, NODE_IDS), str(authority.ca_file))
    with (
        gateway,
        FaultLoad(servers, gateway.bootstrap_servers, name, replication_factor=3, tls=tls) as load,
    ):
        fault(brokers, name)
        brokers.wait_until_ready()
        # Elsewhere: the servers of before are not all there any more.
        load.brokers = brokers.bootstrap_servers()
        load.check(gateway)
