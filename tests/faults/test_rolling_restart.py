"""Two gateways restarted one after the other under load, by SIGTERM: no application notices, nothing lost or doubled.

Also into this release from the one before the house was redrawn, with the fleet's quota kept in the topic.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

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

ROOT = Path(__file__).parents[2]
BEFORE_THE_HOUSE = "ae380a1"
COMMAND_OF_THEN = "gateway.cli.app"
CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python", "java")
RECORDS = 1_200
PARTITIONS = 3
RATE = 100


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(node_ids=(1, 2, 3))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def earlier_release(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment in which COMMAND_OF_THEN is that of the commit."""
    archive = subprocess.run(["git", "archive", BEFORE_THE_HOUSE], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"commit {BEFORE_THE_HOUSE} is not in this clone: {archive.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("earlier-release")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize("is_upgrade", [False, True], ids=["restart", "upgrade"])
def test_no_application_notices(brokers: Cluster, request: pytest.FixtureRequest, is_upgrade: bool) -> None:
    servers = brokers.bootstrap_servers()
    kind = "upgrade" if is_upgrade else "restart"
    topic = create_topic(servers, f"rolling-{kind}", partitions=PARTITIONS)
    gateways = [_gateway(servers, kind, number) for number in (1, 2)]
    if is_upgrade:
        for gateway in gateways:
            gateway.run_as(COMMAND_OF_THEN, request.getfixturevalue("earlier_release"))
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
            gateway.run_as("pidgate", None)
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
