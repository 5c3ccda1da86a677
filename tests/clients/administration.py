"""Each client's way of administering: make a topic, change it, look at the cluster, remove the topic.

    seen = administer(client, servers, "orders-1")

What it returns is what the client was told, to be compared with the truth. A Python client runs in a process of
its own, as `python -m tests.clients.administration DRIVER SERVERS TOPIC`.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from tests.clients.roster import Client
from tests.support.clients import java_tools
from tools.sandbox.jars import tools_version
from tools.sandbox.tools import JavaTools

PARTITIONS: Final = 4
"""After one was added to three."""

RETENTION_MS: Final = "86400000"

SETTLED_WITHIN_S: Final = 10.0

T = TypeVar("T")

_NODE = re.compile(r"^(\S+):(\d+) \(id: (\d+) ", re.MULTILINE)


@dataclass(slots=True)
class Seen:
    """What a client was told of the cluster and of its topic, before it deleted it and after."""

    nodes: list[tuple[int, str, int]]
    partitions: int
    retention_ms: str
    groups: list[str]
    topics_left: list[str] = field(default_factory=list)


def administer(client: Client, servers: str, topic: str) -> Seen:
    """One round with topic `topic`, which exists neither before nor after it. Raises AssertionError with the
    client's own error.
    """
    if client.is_java:
        return _java(JavaTools(tools_version(client.java_version)), servers, topic)
    command = [sys.executable, "-m", "tests.clients.administration", client.driver, servers, topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 0, ended.stderr[-4_000:]
    fields = json.loads(ended.stdout)
    return Seen(**{**fields, "nodes": [tuple(node) for node in fields["nodes"]]})


def _settled(look: Callable[[], T], is_settled: Callable[[T], bool]) -> T:
    """What `look` returns when it is as it should be, or after some seconds as it is: brokers learn of a change
    a moment after the client was told that it is made.
    """
    give_up_s = time.monotonic() + SETTLED_WITHIN_S
    while not is_settled(seen := look()) and time.monotonic() < give_up_s:
        time.sleep(0.2)
    return seen


def _is_changed(seen: Seen) -> bool:
    return (seen.partitions, seen.retention_ms) == (PARTITIONS, RETENTION_MS)


def _aiokafka(servers: str, topic: str) -> Seen:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    async def look() -> Seen:
        question = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})
        configs = (await admin.describe_configs([question]))[0].to_object()
        described = await admin.describe_topics([topic])
        return Seen(
            nodes=[
                (node["node_id"], node["host"], node["port"])
                for node in (await admin.describe_cluster())["brokers"]
            ],
            partitions=len(described[0]["partitions"]),
            retention_ms=configs["resources"][0]["config_entries"][0]["config_value"],
            groups=[name for name, _ in await admin.list_consumer_groups()],
        )

    with asyncio.Runner() as runner:
        admin = runner.run(_started(AIOKafkaAdminClient, servers))
        try:
            made = runner.run(admin.create_topics([NewTopic(topic, PARTITIONS - 1, 1)]))
            assert made.topic_errors[0][1] == 0, made
            added = runner.run(admin.create_partitions({topic: NewPartitions(PARTITIONS)}))
            assert added.topic_errors[0][1] == 0, added
            changes = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": RETENTION_MS})
            changed = runner.run(admin.alter_configs([changes]))
            assert changed[0].resources[0][0] == 0, changed
            seen = _settled(lambda: runner.run(look()), _is_changed)
            runner.run(admin.delete_topics([topic]))
            seen.topics_left = _settled(
                lambda: runner.run(admin.list_topics()), lambda names: topic not in names
            )
            return seen
        finally:
            runner.run(admin.close())


async def _started(admin_client: Any, servers: str) -> Any:
    # It looks for a running loop when it is made.
    admin = admin_client(bootstrap_servers=servers)
    await admin.start()
    return admin


def _kafka_python(servers: str, topic: str) -> Seen:
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource, ConfigResourceType

    admin: Any = KafkaAdminClient(bootstrap_servers=servers.split(","))

    def look() -> Seen:
        question = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})
        configs = admin.describe_configs([question], config_filter="all")
        brokers = admin.describe_cluster()["brokers"]
        return Seen(
            nodes=[(node["broker_id"], node["host"], node["port"]) for node in brokers],
            partitions=len(admin.describe_topics([topic])[0]["partitions"]),
            retention_ms=next(iter(configs.values()))[topic]["retention.ms"]["value"],
            groups=[group["group_id"] for group in admin.list_groups()],
        )

    try:
        wanted = {"num_partitions": PARTITIONS - 1, "replication_factor": 1}
        admin.create_topics({topic: wanted}, wait_for_metadata=True)
        admin.create_partitions({topic: PARTITIONS})
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": RETENTION_MS})])
        seen = _settled(look, _is_changed)
        admin.delete_topics([topic])
        seen.topics_left = _settled(lambda: list(admin.list_topics()), lambda names: topic not in names)
        return seen
    finally:
        admin.close()


def _confluent(servers: str, topic: str) -> Seen:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.admin._resource import ResourceType
    from confluent_kafka.cimpl import NewPartitions, NewTopic

    admin: Any = AdminClient({"bootstrap.servers": servers})

    def result(futures: dict[Any, Any]) -> Any:
        return next(iter(futures.values())).result(timeout=60)

    def look() -> Seen:
        configs = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return Seen(
            nodes=[
                (node.id, node.host, node.port) for node in admin.describe_cluster().result(timeout=60).nodes
            ],
            partitions=len(admin.list_topics(topic, timeout=30).topics[topic].partitions),
            retention_ms=configs["retention.ms"].value,
            groups=[group.group_id for group in admin.list_consumer_groups().result(timeout=60).valid],
        )

    result(admin.create_topics([NewTopic(topic, PARTITIONS - 1, 1)], operation_timeout=30))
    result(admin.create_partitions([NewPartitions(topic, PARTITIONS)], operation_timeout=30))
    change = ConfigEntry("retention.ms", RETENTION_MS, incremental_operation=AlterConfigOpType.SET)
    changes = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    result(admin.incremental_alter_configs([changes]))
    seen = _settled(look, _is_changed)
    result(admin.delete_topics([topic], operation_timeout=30))
    seen.topics_left = _settled(
        lambda: list(admin.list_topics(timeout=30).topics), lambda names: topic not in names
    )
    return seen


def _java(tools: JavaTools, servers: str, topic: str) -> Seen:
    def run(name: str, *arguments: str) -> str:
        return java_tools.admin(tools, name, servers, *arguments).stdout

    entity = ("--entity-type", "topics", "--entity-name", topic)
    run("TopicCommand", "--create", "--topic", topic, "--partitions", str(PARTITIONS - 1))
    # Each command may ask a broker that has not heard yet of what the one before it changed.
    _settled(lambda: run("TopicCommand", "--list").split(), lambda names: topic in names)
    run("TopicCommand", "--alter", "--topic", topic, "--partitions", str(PARTITIONS))
    run("ConfigCommand", "--alter", *entity, "--add-config", f"retention.ms={RETENTION_MS}")
    configs = _settled(
        lambda: run("ConfigCommand", "--describe", *entity), lambda text: "retention.ms=" in text
    )
    nodes = _NODE.findall(run("BrokerApiVersionsCommand"))
    seen = Seen(
        nodes=[(int(node_id), host, int(port)) for host, port, node_id in nodes],
        partitions=_settled(
            lambda: run("TopicCommand", "--describe", "--topic", topic).count("Partition: "),
            lambda count: count == PARTITIONS,
        ),
        retention_ms=configs.partition("retention.ms=")[2].split()[0],
        groups=run("ConsumerGroupCommand", "--list").split(),
    )
    run("TopicCommand", "--delete", "--topic", topic)
    seen.topics_left = _settled(
        lambda: run("TopicCommand", "--list").split(), lambda names: topic not in names
    )
    return seen


_PYTHON_CLIENTS: Final = {
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
    "confluent-kafka": _confluent,
}

if __name__ == "__main__":
    driver, *where = sys.argv[1:]
    print(json.dumps(asdict(_PYTHON_CLIENTS[driver](*where))))
