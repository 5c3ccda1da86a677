"""Kafka's own tools, run directly on brokers of both versions: the harness' view of what each should say."""

from collections.abc import Callable

import pytest

from tests.support.clients import java_tools
from tests.support.clients.load import Load, Login
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.performance import consume_performance, produce_performance
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]


@pytest.fixture(params=["cluster", "old_cluster"])
def either(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


def test_a_transactional_copy_holds_everything_once(either: Cluster, topic_name: TopicName) -> None:
    servers = either.bootstrap_servers()
    source = create_topic(servers, topic_name("source"))
    target = create_topic(servers, topic_name("target"))
    load = Load(bootstrap_servers=servers, topic=source, records=100)
    journal = ClientProcess.produce("confluent-kafka", load).wait()
    consumed = java_tools.copy_transactionally(either.tools, servers, source, target, random_aborts=True)
    assert consumed >= 100
    copy = read_log(servers, target, isolation="read_committed")
    verdict = check([journal], copy, only_ours=True, same_offsets=False)
    raise_if_bad(verdict)
    assert verdict.in_log == 100


def test_performance_tools_write_and_read(either: Cluster, topic_name: TopicName) -> None:
    servers = either.bootstrap_servers()
    topic = create_topic(servers, topic_name("performance"), partitions=2)
    written = produce_performance(either.tools, servers, topic, 500)
    assert written.records == len(read_log(servers, topic)) == 500
    assert 0 <= written.p50_ms <= written.p99_ms
    read = consume_performance(either.tools, servers, topic, 500)
    assert read.records == 500
    assert read.mebibytes == pytest.approx(500 * 100 / 2**20, rel=0.01)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("TopicCommand", ["--describe", "--topic", "{topic}"], "PartitionCount: 2"),
        ("ConfigCommand", ["--describe", "--topic", "{topic}", "--all"], "retention.ms="),
        ("ConsumerGroupCommand", ["--list"], ""),
        ("BrokerApiVersionsCommand", [], "Produce(0): "),
        ("GetOffsetShell", ["--topic", "{topic}"], "{topic}:0:0"),
        ("ClusterTool", ["cluster-id"], "Cluster ID: "),
        ("LogDirsCommand", ["--describe", "--topic-list", "{topic}"], '"partition":"{topic}-0"'),
        ("TransactionsCommand", ["list"], "TransactionalId"),
        ("FeatureCommand", ["describe"], "metadata.version"),
        ("MetadataQuorumCommand", ["describe", "--status"], "LeaderId:"),
    ],
)
def test_command_line_tools(
    either: Cluster, topic_name: TopicName, name: str, arguments: list[str], expected: str
) -> None:
    servers = either.bootstrap_servers()
    topic = create_topic(servers, topic_name("administered"), partitions=2)
    filled = [argument.format(topic=topic) for argument in arguments]
    if name == "ClusterTool":
        # The only one whose verb comes first.
        result = either.tools.run(java_tools.ADMIN_TOOLS[name], *filled, "--bootstrap-server", servers)
    else:
        result = java_tools.admin(either.tools, name, servers, *filled)
    assert expected.format(topic=topic) in result.stdout


def test_delegation_tokens_can_be_had(sasl_cluster: Cluster) -> None:
    result = java_tools.admin(
        sasl_cluster.tools,
        "DelegationTokenCommand",
        sasl_cluster.bootstrap_servers("SASL_PLAINTEXT"),
        *("--create", "--max-life-time-period", "-1"),
        login=Login(username="alice", password="alice-secret"),
    )
    assert "User:alice" in result.stdout
