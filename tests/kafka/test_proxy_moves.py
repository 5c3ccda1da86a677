"""Brokers go and come back elsewhere during load; gateways stand one before each broker. Nothing is lost."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.clients.load import Load, Wish
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tests.support.raw import RawClient
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.ports import free_port
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

METADATA = 3
NODE_IDS = (1, 5, 102)


@pytest.fixture
def breakable() -> Iterator[Cluster]:
    spec = ClusterSpec(
        node_ids=NODE_IDS,
        properties={
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
        },
    )
    with Cluster(spec) as cluster:
        yield cluster


def shown_brokers(address: str | tuple[str, int]) -> dict[int, tuple[str, int]]:
    with RawClient(address) as client:
        brokers = client.call(METADATA, 12, {"topics": []})["brokers"]
    return {node["node_id"]: (node["host"], node["port"]) for node in brokers}


def test_one_gateway_before_each_broker(three_brokers: Cluster, topic_name: Callable[[str], str]) -> None:
    topic = create_topic(three_brokers.bootstrap_servers(), topic_name("sidecars"), partitions=6)
    with ExitStack() as gateways:
        sidecars: dict[int, GatewayProcess] = {}
        # Addresses with {node_id} in the port's place are not to be had on one machine, so each node has a
        # loopback address of its own: 127.77.0.<id>, all on one port.
        port = free_port()
        for node_id, (host, real_port) in three_brokers.nodes.items():
            listener = {
                "bind": f"127.77.0.{node_id}:{port}",
                "advertise": f"127.77.0.{{node_id}}:{port}",
                "only_node": node_id,
                "node_ports": None,
            }
            sidecar = GatewayProcess(f"{host}:{real_port}", listener=listener, node_ids=NODE_IDS)
            sidecars[node_id] = gateways.enter_context(sidecar)
        everybody = {node_id: (f"127.77.0.{node_id}", port) for node_id in NODE_IDS}
        for address in everybody.values():
            assert shown_brokers(address) == everybody
        servers = f"127.77.0.5:{port}"
        load = Load(bootstrap_servers=servers, topic=topic, records=60, partitions=6)
        journal = ClientProcess.produce("confluent-kafka", load).wait()
        log = read_log(three_brokers.bootstrap_servers(), topic)
        raise_if_bad(check([journal], log, only_ours=True))
        wish = Wish(bootstrap_servers=servers, topic=topic, group=topic, records=60)
        assert len(ClientProcess.consume("confluent-kafka", wish).records()) == 60
        for sidecar in sidecars.values():
            assert sidecar.metrics().value("pidgate_requests_total", api="Produce") > 0


def test_node_ids_with_gaps_have_ports_in_their_order(three_brokers: Cluster) -> None:
    first = GatewayProcess("x:1", node_ids=(3,)).first_node_port
    listener = {"node_ports": {"first": first, "node_ids": [1, "5-6", 102]}}
    with GatewayProcess(three_brokers.bootstrap_servers(), listener=listener) as gateway:
        shown = shown_brokers(gateway.bootstrap_servers)
        assert shown == {
            node_id: ("127.0.0.1", first + place) for place, node_id in ((0, 1), (1, 5), (3, 102))
        }
        for address in shown.values():
            assert shown_brokers(address) == shown
