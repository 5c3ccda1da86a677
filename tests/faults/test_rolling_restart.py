"""Two gateways restarted one after the other under load, by SIGTERM: nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pidgate.load.journal import Outcome
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tests.support.running_producers import tokens
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.faults, pytest.mark.slow]

CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python", "java")
RECORDS = 1_200
PARTITIONS = 3
RATE = 100


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(node_ids=(1, 2, 3))) as cluster:
        yield cluster


def test_no_application_notices(brokers: Cluster) -> None:
    servers = brokers.bootstrap_servers()
    topic = create_topic(servers, "rolling-restart", partitions=PARTITIONS)
    gateways = [_gateway(servers, "restart", number) for number in (1, 2)]
    try:
        for gateway in gateways:
            gateway.start()
        running = [
            ClientProcess.produce(client, _load(gateway, topic, number))
            for number, gateway in enumerate(gateways)
            for client in CLIENTS
        ]
        for client in running:
            client.wait_for_acknowledged(RECORDS // 6)
        spent = RATE - tokens(gateways[0])
        # Three tokens come back in two minutes.
        assert len(running) - 2 < spent <= len(running), "each has brought an id"
        for gateway in gateways:
            assert gateway.stop() == 0
            gateway.start()
            time.sleep(3)
        journals = [client.wait() for client in running]
        assert [journal.count(Outcome.ACKNOWLEDGED) for journal in journals] == [RECORDS] * len(running)
        raise_if_bad(check(journals, read_log(servers, topic), only_ours=True))
        for gateway in gateways:
            # A window has not passed: what was spent before the restart is spent.
            assert spent - 3 < RATE - tokens(gateway) <= spent
            assert gateway.log_events("unexpected_error") == []
    finally:
        for gateway in gateways:
            gateway.kill()


def _gateway(servers: str, kind: str, number: int) -> GatewayProcess:
    return GatewayProcess(
        servers,
        quotas={"mode": "enforce", "default": {"producer_ids_rate": RATE}},
        settings={
            "gateway_id": f"gw-{number}",
            "events": {"topic": f"__rolling-{kind}", "replication_factor": 1},
        },
        node_ids=(1, 2, 3),
    )


def _load(gateway: GatewayProcess, topic: str, number: int) -> Load:
    return Load(
        bootstrap_servers=gateway.bootstrap_servers,
        topic=topic,
        records=RECORDS,
        records_per_s=40,
        partitions=PARTITIONS,
        number=number + 1,
    )
