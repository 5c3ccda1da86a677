"""Each client driver directly on a broker: journals are right, and what they say is in the log."""

from collections.abc import Callable

import pytest

from pidgate.load.journal import Outcome
from tests.support.clients.load import ABORTED, Load, Login, Wish
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]

PYTHON_CLIENTS = ["aiokafka", "kafka-python", "confluent-kafka"]
CLIENTS = [*PYTHON_CLIENTS, "java"]


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka", "java"])
def test_everything_is_produced_and_read_back(cluster: Cluster, topic_name: TopicName, client: str) -> None:
    servers = cluster.bootstrap_servers()
    topic = create_topic(servers, topic_name(client), partitions=3)
    load = Load(bootstrap_servers=servers, topic=topic, records=60, partitions=3)
    journal = ClientProcess.produce(client, load).wait()
    log = read_log(servers, topic)
    verdict = check([journal], log, only_ours=True)
    raise_if_bad(verdict)
    assert verdict.acknowledged == verdict.in_log == 60
    wish = Wish(bootstrap_servers=servers, topic=topic, group=f"{topic}-readers", records=60)
    read = ClientProcess.consume(client, wish).records()
    assert sorted(read, key=lambda record: (record.partition, record.offset)) == log


@pytest.mark.parametrize("client", ["confluent-kafka", "java"])
def test_the_new_group_protocol(cluster: Cluster, topic_name: TopicName, client: str) -> None:
    servers = cluster.bootstrap_servers()
    topic = create_topic(servers, topic_name("kip848"))
    ClientProcess.produce("confluent-kafka", Load(bootstrap_servers=servers, topic=topic, records=5)).wait()
    wish = Wish(
        bootstrap_servers=servers, topic=topic, group=f"{topic}-readers", records=5, protocol="consumer"
    )
    assert ClientProcess.consume(client, wish).records() == read_log(servers, topic)


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_transactions_are_committed_or_aborted(cluster: Cluster, topic_name: TopicName, client: str) -> None:
    servers = cluster.bootstrap_servers()
    topic = create_topic(servers, topic_name("transactions"), partitions=2)
    load = Load(
        bootstrap_servers=servers, topic=topic, records=40, partitions=2, transaction_size=10, abort_every=2
    )
    journal = ClientProcess.produce(client, load).wait()
    assert journal.count(Outcome.ACKNOWLEDGED) == 20
    assert journal.errors() == {ABORTED: 20}
    committed = check(
        [journal], read_log(servers, topic, isolation="read_committed"), raised_may_be_written=False
    )
    raise_if_bad(committed)
    assert committed.in_log == 20
    assert len(check([journal], read_log(servers, topic)).raised_but_written) == 20


@pytest.mark.parametrize("client", CLIENTS)
def test_users_log_in(sasl_cluster: Cluster, topic_name: TopicName, client: str) -> None:
    direct = sasl_cluster.bootstrap_servers()
    topic = create_topic(direct, topic_name("users"))
    load = Load(
        bootstrap_servers=sasl_cluster.bootstrap_servers("SASL_PLAINTEXT"),
        topic=topic,
        records=5,
        login=Login(username="alice", password="alice-secret"),
    )
    journal = ClientProcess.produce(client, load).wait()
    verdict = check([journal], read_log(direct, topic))
    raise_if_bad(verdict)
    assert verdict.acknowledged == 5


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_a_producer_ends_in_good_order_when_told_enough(
    cluster: Cluster, topic_name: TopicName, client: str
) -> None:
    servers = cluster.bootstrap_servers()
    topic = create_topic(servers, topic_name("enough"), partitions=2)
    load = Load(bootstrap_servers=servers, topic=topic, records=1_000_000, partitions=2, records_per_s=200)
    with ClientProcess.produce(client, load) as process:
        process.wait_for_acknowledged(20)
        process.enough()
        journal = process.wait(timeout_s=30)
    verdict = check([journal], read_log(servers, topic))
    raise_if_bad(verdict)
    assert verdict.unknown == []
    assert 20 <= verdict.acknowledged < 1_000_000


def test_a_killed_producer_leaves_a_journal(cluster: Cluster, topic_name: TopicName) -> None:
    servers = cluster.bootstrap_servers()
    topic = create_topic(servers, topic_name("killed"))
    load = Load(bootstrap_servers=servers, topic=topic, records=1_000_000, records_per_s=500)
    with ClientProcess.produce("confluent-kafka", load) as process:
        process.wait_for_acknowledged(20)
        process.kill()
        journal = process.journal()
    verdict = check([journal], read_log(servers, topic))
    raise_if_bad(verdict)
    assert verdict.acknowledged >= 20
