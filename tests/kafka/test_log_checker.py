"""The log checker on real brokers: faults that were really written are found."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer

from pidgate.load.journal import ProducerJournal, record_value
from tests.support.log_checks import LogCheckFailed, raise_if_bad
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]


def write(bootstrap_servers: str, topic: str, records: list[tuple[int, int]]) -> None:
    """Write values of the producer "p": (partition, number) in this order."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for partition, n in records:
        producer.produce(topic, record_value("p", partition, n, 50), partition=partition)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ([(0, 0), (0, 1), (1, 0), (1, 1)], None),
        ([(0, 0), (0, 1), (1, 0)], "1 missing"),
        ([(0, 0), (0, 1), (1, 0), (1, 1), (1, 1)], "1 doubled"),
        ([(0, 0), (0, 1), (1, 1), (1, 0)], "1 out of order"),
    ],
)
def test_what_was_written_is_what_is_judged(
    three_brokers: Cluster, topic_name: TopicName, records: list[tuple[int, int]], fault: str | None
) -> None:
    servers = three_brokers.bootstrap_servers()
    topic = create_topic(servers, topic_name("judged"), partitions=2, replication_factor=3)
    journal = ProducerJournal("p", topic)
    for partition, n in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        journal.acknowledged(partition, n)
    write(servers, topic, records)
    verdict = check([journal], read_log(servers, topic), only_ours=True)
    if fault is None:
        raise_if_bad(verdict)
    else:
        with pytest.raises(LogCheckFailed, match=fault):
            raise_if_bad(verdict)


def test_a_topic_that_is_not_there_is_no_empty_log(cluster: Cluster) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        read_log(cluster.bootstrap_servers(), "nowhere")


def test_an_empty_topic_is_an_empty_log(cluster: Cluster, topic_name: TopicName) -> None:
    servers = cluster.bootstrap_servers()
    assert read_log(servers, create_topic(servers, topic_name("empty"), partitions=4)) == []
