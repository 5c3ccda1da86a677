"""Transactions under `transactional: enforce`: refused, then admitted, all of it committed once and in order.

Four producers of each client share a token in four seconds, so that two of them wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from pidgate.load.journal import Outcome
from tests.clients.roster import OTHERS, VERSIONS, Client
from tests.support.clients import java_tools
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import class_path
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import Verdict, check, read_log
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.tools import JavaTools
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.clients]

PRODUCERS: Final = 4
RECORDS: Final = 20
SIZE: Final = 5
WITHIN_S: Final = 240.0
QUOTAS: Final = {
    "mode": "enforce",
    "default": {"producer_ids_rate": 1},
    "producer_ids": {"window": "4s", "grace": "0s", "transactional": "enforce"},
}
HAVE_NONE: Final = {Client("kafka-python", release="2.0.2")}
CLIENTS: Final = [
    client
    for client in dict.fromkeys((*VERSIONS, *OTHERS, Client("aiokafka"), Client("kafka-python")))
    if client not in HAVE_NONE
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    with Cluster(ClusterSpec()) as cluster:
        yield cluster


def commit_all(broker: Cluster, gateway: GatewayProcess, client: Client, topic: str) -> Verdict:
    """Have the producers commit all their records. Raises ClientFailed."""
    running = [
        ClientProcess.produce(
            client.driver,
            Load(
                bootstrap_servers=gateway.bootstrap_servers,
                topic=topic,
                records=RECORDS,
                number=number,
                transaction_size=SIZE,
            ),
            release=client.release,
        )
        for number in range(PRODUCERS)
    ]
    journals = [one.wait(WITHIN_S) for one in running]
    assert [one.count(Outcome.ACKNOWLEDGED) for one in journals] == [RECORDS] * PRODUCERS
    committed = read_log(broker.bootstrap_servers(), topic, isolation="read_committed")
    # kafkajs is not told offsets of a transaction's records.
    return check(journals, committed, only_ours=True, same_offsets=client.driver != "kafkajs")


def copy_all(broker: Cluster, gateway: GatewayProcess, client: Client, topic: str) -> Verdict:
    """Have Java's copiers copy a topic of the records into one of their own each, all at the same time."""
    direct = broker.bootstrap_servers()
    source = create_topic(direct, f"{topic}-source")
    load = Load(bootstrap_servers=direct, topic=source, records=RECORDS)
    journal = ClientProcess.produce("confluent-kafka", load).wait()
    targets = [create_topic(direct, f"{topic}-{number}") for number in range(PRODUCERS)]
    class_path(client.java_version)  # Once, before the threads: it links the jars anew.
    with ThreadPoolExecutor() as running:
        for copied in [
            running.submit(
                java_tools.copy_transactionally,
                JavaTools(client.java_version),
                gateway.bootstrap_servers,
                source,
                target,
                transaction_size=SIZE,
            )
            for target in targets
        ]:
            copied.result()
    verdict = Verdict()
    for target in targets:
        committed = read_log(direct, target, isolation="read_committed")
        one = check([journal], committed, only_ours=True, same_offsets=False)
        raise_if_bad(one)
        verdict.in_log += one.in_log
    return verdict


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", CLIENTS, ids=str)
def test_refused_then_admitted_all_is_committed_once(
    broker: Cluster, family: Client, record_property: Callable[[str, object], None]
) -> None:
    if family.why_missing:
        pytest.skip(family.why_missing)
    topic = create_topic(broker.bootstrap_servers(), f"transactions-{family}")
    with GatewayProcess(broker.bootstrap_servers(), quotas=QUOTAS) as gateway:
        run = copy_all if family.is_java else commit_all
        verdict = run(broker, gateway, family, topic)
        metrics = gateway.metrics()
    raise_if_bad(verdict)
    assert verdict.in_log == PRODUCERS * RECORDS
    refused = metrics.value("pidgate_requests_refused_total")
    record_property("note", f"{refused:.0f} refusals")
    assert refused > 0
    assert metrics.value("pidgate_quota_failed_open_total") == 0
