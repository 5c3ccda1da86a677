"""Transactional producers that are refused when they add their first partition: they wait, and lose nothing."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pidgate.load.journal import Outcome
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

PRODUCERS, RECORDS = 4, 20
QUOTAS = {
    "mode": "enforce",
    "default": {"producer_ids_rate": 1},
    "producer_ids": {"window": "3s", "grace": "0s", "transactional": "enforce"},
}


def test_who_waits_for_a_token_commits_everything(cluster: Cluster) -> None:
    """kafka-python; tests/clients/test_transactions.py has all the others."""
    topic = create_topic(cluster.bootstrap_servers(), "refused-transactions")
    with GatewayProcess(cluster.bootstrap_servers(), quotas=QUOTAS) as gateway:
        started = [
            ClientProcess.produce(
                "kafka-python",
                Load(
                    bootstrap_servers=gateway.bootstrap_servers,
                    topic=topic,
                    records=RECORDS,
                    number=number,
                    transaction_size=RECORDS // 2,
                    records_per_s=10,  # some while the first is refused: they wake a client that waits
                ),
            )
            for number in range(PRODUCERS)
        ]
        journals = [process.wait() for process in started]
        metrics = gateway.metrics()
    for journal in journals:
        assert journal.count(Outcome.ACKNOWLEDGED) == RECORDS, journal.errors()
    verdict = check(journals, read_log(cluster.bootstrap_servers(), topic, isolation="read_committed"))
    raise_if_bad(verdict)
    assert verdict.in_log == PRODUCERS * RECORDS
    assert metrics.value("pidgate_requests_refused_total") > 0
    assert metrics.value("pidgate_requests_total", api="Produce") == PRODUCERS * RECORDS, "none was refused"


def test_offsets_without_a_record_wait_as_well(cluster: Cluster) -> None:
    topic = create_topic(cluster.bootstrap_servers(), "refused-offsets")
    with GatewayProcess(cluster.bootstrap_servers(), quotas=QUOTAS) as gateway:
        consumer = Consumer(
            {"bootstrap.servers": gateway.bootstrap_servers, "group.id": topic, "enable.auto.commit": False}
        )
        for number in range(1, PRODUCERS + 1):
            producer = Producer(
                {
                    "bootstrap.servers": gateway.bootstrap_servers,
                    "transactional.id": f"{topic}-{number}",
                }
            )
            producer.init_transactions(60)
            producer.begin_transaction()
            offsets = [TopicPartition(topic, 0, number)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
            producer.commit_transaction(60)
            (committed,) = consumer.committed([TopicPartition(topic, 0)], 60)
            assert committed.offset == number
        consumer.close()
        assert gateway.metrics().value("pidgate_requests_refused_total") > 0
