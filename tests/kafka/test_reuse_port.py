"""Several gateways on one port: clients connect while one is drained, stands still or is killed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pidgate.load.journal import Outcome as Delivered
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.connects import Outcome, connects
from tests.support.log_checks import raise_if_bad
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayNotReady, GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka


def on_one_port(cluster: Cluster, events_topic: str, number: int) -> list[GatewayProcess]:
    """So many gateways, not started, with one file; the first has the admin address and directory of the file."""
    settings = {
        "reuse_port": True,
        "events": {"topic": events_topic, "replication_factor": 1},
        "drain_timeout": "5s",
    }
    servers = cluster.bootstrap_servers()
    made = [GatewayProcess(servers, settings=settings)]
    for _ in range(number - 1):
        made.append(second_of(made[0]))
    return made


def second_of(first: GatewayProcess, **config: Any) -> GatewayProcess:
    """Another gateway with the file of the first; `config` are other top-level keys."""
    other = GatewayProcess("127.0.0.1:1")
    other._options = ("--admin", f"127.0.0.1:{other.admin_port}")
    other.port, other.first_node_port = first.port, first.first_node_port
    other.config = first.config | config
    return other


@pytest.fixture
def gateways(cluster: Cluster, topic_name: Callable[[str], str]) -> Iterator[list[GatewayProcess]]:
    made = on_one_port(cluster, topic_name("events"), 3)
    with ExitStack() as stack:
        for gateway in made:
            stack.callback(gateway.__exit__, None, None, None)
            gateway.start(wait=False)
        for gateway in made:
            gateway.wait_until_ready()
        yield made


def failed(outcomes: Counter[Outcome]) -> int:
    return outcomes.total() - outcomes["answered"] - outcomes["late"]


def open_at(gateway: GatewayProcess) -> float:
    return gateway.metrics().value("pidgate_connections_total")


def test_a_drain_resets_nobody_and_what_is_killed_or_stands_still_does(
    cluster: Cluster, gateways: list[GatewayProcess], topic_name: Callable[[str], str]
) -> None:
    drained, stopped, last = gateways
    topic = create_topic(cluster.bootstrap_servers(), topic_name("shared"), partitions=3)
    load = Load(
        bootstrap_servers=last.bootstrap_servers, topic=topic, records=100_000, records_per_s=50, partitions=3
    )
    producer = ClientProcess.produce("confluent-kafka", load)
    try:
        producer.wait_for_acknowledged(50)
        with connects(last.port) as clients:
            time.sleep(2)
            before = clients.outcomes()
            assert failed(before) == 0
            assert before["answered"] > 200

            assert drained.stop() == 0
            time.sleep(0.5)
            during = clients.outcomes()
            assert failed(during) == 0, during
            assert during["answered"] > 10

            stopped.signal(signal.SIGSTOP)
            time.sleep(1)
            waiting = clients.outcomes()
            assert failed(waiting) == 0, "they wait, and nobody is reset"
            stopped.kill()
            time.sleep(1)
            killed = clients.outcomes()
            assert failed(killed) > 0, "the control: a kill is noticed"

            time.sleep(1)
            assert failed(clients.outcomes()) == 0
        print(f"before {dict(before)}, drain {dict(during)}, stopped {dict(waiting)}, killed {dict(killed)}")
        producer.wait_for_acknowledged(producer.journal().count(Delivered.ACKNOWLEDGED) + 50)
        producer.enough()
        journal = producer.wait()
    finally:
        producer.kill()
    raise_if_bad(check([journal], read_log(cluster.bootstrap_servers(), topic)))


def test_connections_are_dealt_to_all_of_them(gateways: list[GatewayProcess]) -> None:
    with connects(gateways[0].port) as clients:
        until(lambda: all(open_at(gateway) > 20 for gateway in gateways))
    assert failed(clients.outcomes()) == 0


def test_a_gateway_of_another_cluster_is_kept_from_the_port(
    cluster: Cluster, topic_name: Callable[[str], str]
) -> None:
    (first,) = on_one_port(cluster, topic_name("events"), 1)
    with first, ExitStack() as stack:
        other = second_of(first, cluster={"bootstrap_servers": ["127.0.0.1:1"]})
        stack.callback(other.__exit__, None, None, None)
        with pytest.raises(GatewayNotReady, match="ended with 2"):
            other.start()
        assert "is shared by gateways of another fleet" in other.log_text()
