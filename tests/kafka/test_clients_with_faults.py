"""A client that a refused batch would end, before real brokers: its id has its token at every gateway of a fleet."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from pidgate.gateway.clock import wall_ms
from pidgate.protocol.record_batch import record_batch
from tests.support.fleet import fleet_of, quotas_of
from tests.support.frames import NOT_ENOUGH_REPLICAS, framed, produce_request
from tests.support.raw import RawClient, produce_code
from tests.support.rules import rule
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

API_VERSIONS, INIT_PRODUCER_ID = 18, 22
INIT = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
HARMED = ("librdkafka", "2.4.0")
OTHER = ("apache-kafka-java", "4.3.1")
_ids = count(8_000_000_000)
"""Brokers take any producer id, and give none that high."""


def connect(gateway: GatewayProcess, cluster: Cluster, software: tuple[str, str]) -> RawClient:
    """Connect to the only node through this gateway, and claim a library."""
    (node_id,) = cluster.nodes
    client = RawClient(f"127.0.0.1:{gateway.first_node_port + node_id}")
    name, version = software
    client.call(API_VERSIONS, 3, {"client_software_name": name, "client_software_version": version})
    return client


def produce(client: RawClient, topic: str, producer_id: int) -> int:
    batch = record_batch([b"x"], producer_id, 0, 0, wall_ms())
    return produce_code(client.ask(framed(produce_request(9, [(topic, [(0, batch)])]))))


@rule(
    "A client that cannot survive a refused batch is refused at InitProducerId; an id given to it is charged there.",
    "cost",
)
@pytest.mark.parametrize(("software", "code"), [(HARMED, 0), (OTHER, NOT_ENOUGH_REPLICAS)])
def test_an_id_has_its_token_at_the_gateway_that_has_not_heard_of_it(
    cluster: Cluster, topic_name: Callable[[str], str], software: tuple[str, str], code: int
) -> None:
    topic, events = topic_name("paid-at-init"), topic_name("paid-at-init-events")
    create_topic(cluster.bootstrap_servers(), topic)
    with (
        fleet_of(cluster, events, quotas_of(1), gateways=2) as fleet,
        connect(fleet.gateways[0], cluster, software) as here,
        connect(fleet.gateways[1], cluster, software) as there,
        connect(fleet.gateways[1], cluster, OTHER) as other,
    ):
        assert produce(other, topic, next(_ids)) == 0
        fleet.wait_until_heard()
        answer = here.call(INIT_PRODUCER_ID, 4, INIT)
        assert answer["error_code"] == 0
        assert produce(other, topic, next(_ids)) == 0, "what this gateway had left"
        assert produce(there, topic, answer["producer_id"]) == code
        assert fleet.sum_of("pidgate_client_faults_total", fault="librdkafka_2_2") == (2 if code == 0 else 0)
        if code == 0:
            until(lambda: all(tokens < -0.9 for tokens in fleet.tokens()))
            refused = here.call(INIT_PRODUCER_ID, 4, INIT)
            assert refused["error_code"] == 14
            logged = fleet.gateways[0].log_events("client_with_fault")
            assert [event["fault"] for event in logged] == ["librdkafka_2_2"]
