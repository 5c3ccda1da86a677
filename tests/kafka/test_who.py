"""`pidgate who` against real brokers: the command as its users run it, before a topic as gateways fill it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from pidgate.events.definitions import Event
from pidgate.events.writing import key_of, to_json
from tests.support.who_events import HOUR_MS, Client, Stream
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

PIDGATE = Path(sys.executable).with_name("pidgate")
TopicName = Callable[[str], str]
MINUTE_MS = 60_000


def who(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PIDGATE, "who", *arguments], capture_output=True, text=True, timeout=90, check=False
    )


def told(*arguments: str | Path) -> dict[str, Any]:
    answer = who(*arguments, "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def fill(bootstrap_servers: str, topic: str, events: Iterable[Event]) -> None:
    """As gateways do it: keyed; with the time of the event, which a topic with LogAppendTime replaces."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
    for event in events:
        producer.produce(topic, to_json(event), key_of(event), timestamp=event.wall_time_ms)
    assert producer.flush(60) == 0


def hour_of(now_ms: int) -> Stream:
    """An hour, up to now: a restart loop, an id per batch, two ids that went around, and quiet people."""
    stream, from_ms = Stream(), now_ms - HOUR_MS
    stream.config(from_ms + 1_000, 100, billing=5)
    for start in range(300):
        stream.producer(
            Client(user="etl"),
            from_ms + 2_000 + 11_900 * start,
            life_ms=1_000,
            requests=3,
            would_refuse=start > 99,
        )
    stream.next_id += 2
    pool = stream.connection()
    for number in range(100):
        client = Client(user="mallory", client_id=f"producer-{number}", address="10.0.9.9")
        stream.producer(client, now_ms - 20 * MINUTE_MS + 700 * number, life_ms=0, connection=pool)
    for number in range(5):
        client = Client(user="billing", address=f"10.0.1.{number}")
        stream.decide(client, from_ms + number * 1_000 + 5_000, number, reason="refresh")
    return stream


@pytest.fixture(scope="module")
def now_ms() -> int:
    # 15 s ago, as everything nearer than 10 s to the end is not judged.
    return time.time_ns() // 1_000_000 - 15_000


@pytest.fixture(scope="module")
def filled(cluster: Cluster, now_ms: int) -> str:
    """A topic with three events lost and ten twice."""
    servers = cluster.bootstrap_servers()
    name = create_topic(servers, "who-filled", 3, config={"message.timestamp.type": "CreateTime"})
    events = hour_of(now_ms).events()
    lost = {events[200].seq, events[400].seq, events[401].seq}
    came = [event for event in events if event.seq not in lost]
    fill(servers, name, came)
    fill(servers, name, came[500:510])
    return name


def test_everything_is_told_from_a_topic(cluster: Cluster, filled: str) -> None:
    found = told("--bootstrap-servers", cluster.bootstrap_servers(), "--topic", filled, "--since", "61m")

    users = {user["user"]: user for user in found["users"]}
    assert list(users) == ["etl", "mallory", "billing"]
    kinds = {name: [finding["kind"] for finding in user["findings"]] for name, user in users.items()}
    assert kinds == {"etl": ["restart_loop"], "mallory": ["producer_per_batch"], "billing": ["steady"]}
    assert 298 <= users["etl"]["new_ids"] <= 300
    assert users["etl"]["quota"]["producer_ids_rate"] == 100
    assert users["billing"]["quota"]["producer_ids_rate"] == 5
    assert users["billing"]["quota"]["source"] == "gw-a:9290"
    assert users["mallory"]["ids_per_connection"]["max"] >= 98
    assert (found["lost_events"], found["events"]["duplicates"]) == (3, 10)
    assert found["schema_version"] == 1
    assert found["coverage"]["missing"] == 2
    assert found["coverage"]["hidden"] == 2


def test_a_topic_with_the_brokers_clock(cluster: Cluster, topic_name: TopicName) -> None:
    servers = cluster.bootstrap_servers()
    topic = create_topic(
        servers, topic_name("who-append"), 2, config={"message.timestamp.type": "LogAppendTime"}
    )
    stream, at_ms = Stream(), time.time_ns() // 1_000_000
    for number in range(9):
        stream.producer(Client(address=f"10.0.0.{number}"), at_ms - 90_000 + number)
    events = stream.events()
    fill(servers, topic, [*events[:4], *events[9:]])
    found = told("--bootstrap-servers", servers, "--topic", topic)

    assert found["users"][0]["new_ids"] >= 4
    # Just written: what is missing may be on its way.
    assert found["lost_events"] == 0
    assert (
        found["notes"][0] == "What was read begins within the time asked for: nothing is known from before."
    )


def test_a_missing_topic_is_told_and_not_created(cluster: Cluster, topic_name: TopicName) -> None:
    servers, topic = cluster.bootstrap_servers(), topic_name("who-missing")
    answer = who("--bootstrap-servers", servers, "--topic", topic)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert f"topic {topic} does not exist, or may not be described" in answer.stderr
    assert "start a gateway with events enabled" in answer.stderr
    assert topic not in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics


# Behind a real gateway


def producer(bootstrap_servers: str, user: str, client_id: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        client_id=client_id,
        enable_idempotence=True,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=f"{user}-secret",
    )


async def send_some(bootstrap_servers: str, topic: str, user: str, client_id: str, records: int) -> None:
    async with producer(bootstrap_servers, user, client_id) as opened:
        for _ in range(records):
            await opened.send_and_wait(topic, b"x", partition=0)


async def live(gateway: str, around: str, topic: str) -> None:
    """alice opens a producer for each of her records, mallory goes around the gateway, bob just works."""
    async with producer(gateway, "bob", "billing") as bobs:
        for number in range(30):
            await send_some(gateway, topic, "alice", "ingest", 1)
            if number % 10 == 5:
                await send_some(around, topic, "admin", "around", 1)
            await bobs.send_and_wait(topic, b"x", partition=0)


def test_behind_a_real_gateway(sasl_cluster: Cluster, topic_name: TopicName, tmp_path: Path) -> None:
    topic = create_topic(sasl_cluster.bootstrap_servers(), topic_name("who-traffic"))
    around = sasl_cluster.bootstrap_servers(SASL_PLAINTEXT)
    events = {"topic": topic_name("who-events"), "replication_factor": 1}
    login = {"mechanism": "PLAIN", "username": "admin", "password_file": str(tmp_path / "secret")}
    (tmp_path / "secret").write_text("admin-secret")
    with GatewayProcess(
        around,
        quotas={"mode": "observe", "default": {"producer_ids_rate": 5}},
        settings={"events": events, "own_client": login},
    ) as gateway:
        asyncio.run(live(gateway.bootstrap_servers, around, topic))
        # Its drain tells what became of every id.
        assert gateway.stop() == 0
        assert gateway.directory is not None
        found = told("--config", gateway.directory / "pidgate.yaml")

    users = {user["user"]: user for user in found["users"]}
    assert users["alice"]["new_ids"] == 30
    assert users["alice"]["would_refuse_ids"] == 24
    assert users["alice"]["requests_per_id"]["max"] == 1
    assert users["alice"]["client_ids"]["top"] == [{"name": "ingest", "ids": 30}]
    assert users["alice"]["addresses"]["top"] == [{"name": "127.0.0.1", "ids": 30}]
    assert users["alice"]["quota"]["producer_ids_rate"] == 5
    [finding] = users["alice"]["findings"]
    assert finding["kind"] == "producer_per_batch"
    assert users["bob"]["new_ids"] == 1
    assert (found["coverage"]["allocated"], found["coverage"]["around"]) == (34, 3)
    assert (found["lost_events"], found["events"]["unreadable"]) == (0, 0)


# Permissions


def allow(cluster: Cluster, topic: str, user: str, operation: Any) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([binding]).values():
        future.result(timeout=30)
