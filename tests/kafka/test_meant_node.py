"""Clients that say which node they mean (ApiVersions v5, KIP-1242), through a gateway before Kafka 4.4.

A broker that is not the one answers REBOOTSTRAP_REQUIRED, and clients then start again from their bootstrap servers.
"""

from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from pidgate.protocol.messages import METADATA
from tests.support.meant_node import api_versions, meant
from tests.support.raw import RawClient
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

NODE_ID = 1


@pytest.fixture(scope="module")
def gateway(cluster: Cluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(cluster.bootstrap_servers()) as running:
        yield running


@pytest.fixture(scope="module")
def cluster_id(cluster: Cluster) -> str:
    with RawClient(cluster.bootstrap_servers()) as client:
        return str(client.call(METADATA, 12, {"topics": []})["cluster_id"])


def error_of(address: str, cluster: str | None, node_id: int) -> int:
    with RawClient(address) as client:
        answer = client.ask(api_versions(5, meant(cluster, node_id)))
        # The connection goes on in either case.
        assert client.call(METADATA, 12, {"topics": []})["brokers"]
    return int.from_bytes(answer[4:6], "big")


@pytest.mark.parametrize(
    ("other_cluster", "node_id", "expected"),
    [
        (False, NODE_ID, ErrorCode.none),
        (False, -1, ErrorCode.invalid_request),  # both or neither
        (False, 7, ErrorCode.rebootstrap_required),
        (True, NODE_ID, ErrorCode.rebootstrap_required),
    ],
)
def test_a_nodes_port_answers_as_the_node_does(
    cluster: Cluster,
    gateway: GatewayProcess,
    cluster_id: str,
    other_cluster: bool,
    node_id: int,
    expected: int,
) -> None:
    named = "another-cluster-0000000" if other_cluster else cluster_id
    with RawClient(gateway.bootstrap_servers) as client:
        client.call(METADATA, 12, {"topics": []})  # from here on the node has its port
    port = f"127.0.0.1:{gateway.first_node_port + NODE_ID}"
    assert error_of(cluster.bootstrap_servers(), named, node_id) == expected
    assert error_of(port, named, node_id) == expected


@pytest.mark.parametrize("node_id", [NODE_ID, 7])
def test_at_the_bootstrap_port_any_broker_may_answer(
    gateway: GatewayProcess, cluster_id: str, node_id: int
) -> None:
    assert error_of(gateway.bootstrap_servers, cluster_id, node_id) == ErrorCode.none
