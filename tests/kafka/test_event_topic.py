"""The topic of events on real brokers: made as wanted, written without loss, followed without gap or repeat."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewPartitions
from structlog.testing import capture_logs

from pidgate.gateway.config.settings import SaslSettings
from pidgate.gateway.state.events_topic import EventTopic
from pidgate.gateway.state.publisher import EventPublisher
from pidgate.gateway.topics.follower import EventFollower, EventRecord, StartAt
from pidgate.gateway.topics.own_client import OwnClient
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]
Lines = list[MutableMapping[str, Any]]
DAY_MS = 86_400_000


def run(test: Coroutine[Any, Any, None]) -> None:
    """On the event loop that the gateway uses."""
    uvloop.run(test)


async def until(is_true: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_true():  # noqa: ASYNC110 - what is waited for is told by no event
            await asyncio.sleep(0.01)


def topic_named(name: str, partitions: int = 3) -> EventTopic:
    return EventTopic(name, partitions, 3, 7 * DAY_MS, DAY_MS)


def client_of(cluster: Cluster) -> OwnClient:
    return OwnClient(cluster.bootstrap_servers().split(","))


class Following:
    """A follower that keeps what it is handed."""

    def __init__(self, kafka: OwnClient, topic: EventTopic) -> None:
        self.follower = EventFollower(kafka, topic)
        self.records: list[EventRecord] = []
        self.chunks: list[int] = []
        self.caught_up_at: list[int] = []

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in self.records]

    def on_records(self, records: list[EventRecord]) -> None:
        self.records += records
        self.chunks.append(len(records))

    async def run(self, start: StartAt = StartAt()) -> None:  # noqa: B008 - frozen
        await self.follower.run(start, self.on_records, lambda: self.caught_up_at.append(len(self.records)))


@asynccontextmanager
async def running(*works: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ended] == [asyncio.CancelledError] * len(tasks)


async def publish_all(kafka: OwnClient, topic: EventTopic, values: list[tuple[str, bytes]]) -> None:
    publisher = EventPublisher(kafka, topic)
    for key, value in values:
        publisher.publish(key, value)
    async with running(publisher.run()):
        assert await publisher.flush(30)
    assert (publisher.published, publisher.dropped, publisher.buffered) == (len(values), 0, 0)


def named(lines: Lines, event: str) -> Lines:
    return [line for line in lines if line["event"] == event]


def test_a_remember_that_differs_from_the_brokers_is_warned_of_once(
    cluster: Cluster, topic_name: TopicName
) -> None:
    topic = topic_named(topic_name("expiration"))
    heard: list[int] = []
    topic.on_expiration = heard.append
    topic.remember_ms = 2 * 3_600_000
    with capture_logs() as lines:
        run(topic.ensure_topic(client_of(cluster)))
        run(topic.ensure_topic(client_of(cluster)))
    assert heard == [86_400_000], "Kafka's default"
    [warned] = named(lines, "config_warning")
    assert warned["key"] == "quotas.producer_ids.remember"
    assert warned["text"].startswith("is 2h, and the brokers' producer.id.expiration.ms is 24h:")
    assert warned["text"].endswith("Write remember: 24h")


def test_a_missing_topic_is_made_as_the_shared_state_needs_it(
    cluster: Cluster, topic_name: TopicName
) -> None:
    topic = topic_named(topic_name("made"), partitions=5)
    with capture_logs() as lines:
        run(topic.ensure_topic(client_of(cluster)))
        run(topic.ensure_topic(client_of(cluster)))
    (made,) = named(lines, "events_topic_created")
    assert (made["partitions"], made["replication_factor"], made["wanted"]) == (5, 1, 3)
    assert named(lines, "events_topic_unsafe") == []

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
    assert len(admin.list_topics(topic.name, timeout=10).topics[topic.name].partitions) == 5
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic.name)
    settings = admin.describe_configs([asked])[asked].result(timeout=10)
    found = {name: settings[name].value for name in topic._wanted(1)}
    assert found == topic._wanted(1)
    assert found["message.timestamp.type"] == "LogAppendTime"
    assert found["retention.ms"] == str(7 * DAY_MS)


def test_three_brokers_hold_three_copies(three_brokers: Cluster, topic_name: TopicName) -> None:
    topic = topic_named(topic_name("wide"), partitions=6)
    kafka = client_of(three_brokers)

    async def test() -> None:
        await publish_all(kafka, topic, [(f"user-{n % 20}", b"%d" % n) for n in range(1_000)])
        following = Following(kafka, topic)
        async with running(following.run()):
            await until(lambda: len(following.records) == 1_000)
        assert sorted(following.values) == sorted(b"%d" % n for n in range(1_000))

    run(test())
    admin = AdminClient({"bootstrap.servers": three_brokers.bootstrap_servers()})
    partitions = admin.list_topics(topic.name, timeout=10).topics[topic.name].partitions.values()
    assert {len(partition.replicas) for partition in partitions} == {3}


def test_an_existing_topic_is_taken_as_it_is_and_what_is_unsafe_is_said_once(
    cluster: Cluster, topic_name: TopicName
) -> None:
    config = {
        "cleanup.policy": "compact,delete",
        "retention.ms": "3600000",
        "retention.bytes": "1000000",
        "message.timestamp.type": "CreateTime",
        "compression.type": "zstd",
    }
    name = create_topic(cluster.bootstrap_servers(), topic_name("unsafe"), 2, config=config)
    topic = topic_named(name)
    with capture_logs() as lines:
        for _ in range(2):
            run(topic.ensure_topic(client_of(cluster)))
    found = {line["setting"]: line["value"] for line in named(lines, "events_topic_unsafe")}
    assert found == config
    assert all(name in line["remedy"] for line in named(lines, "events_topic_unsafe"))
    assert len(named(lines, "events_topic_unsafe")) == len(config)


def test_timestamps_of_gateways_are_noticed_by_reading_too(cluster: Cluster, topic_name: TopicName) -> None:
    config = {"message.timestamp.type": "CreateTime"}
    topic = topic_named(create_topic(cluster.bootstrap_servers(), topic_name("create"), config=config))
    kafka = client_of(cluster)

    async def test() -> None:
        await publish_all(kafka, topic, [("user", b"%d" % n) for n in range(10)])
        following = Following(kafka, replace(topic, _logged=set(), _is_checked=True))
        async with running(following.run()):
            await until(lambda: len(following.records) == 10)
        assert abs(following.records[0].append_ms / 1000 - time.time()) < 60  # noqa: TID251 - the broker's

    with capture_logs() as lines:
        run(test())
    assert [line["setting"] for line in named(lines, "events_topic_unsafe")] == ["message.timestamp.type"] * 2


def test_events_of_one_user_arrive_once_in_order_with_the_brokers_time(
    cluster: Cluster, topic_name: TopicName
) -> None:
    topic, kafka = topic_named(topic_name("order"), partitions=12), client_of(cluster)
    rng = random.Random(4)
    sent = [(f"user-{rng.randrange(50)}", b"%d" % n) for n in range(20_000)]

    async def test() -> None:
        await publish_all(kafka, topic, sent[:15_000])
        following = Following(kafka, topic)
        publisher = EventPublisher(kafka, topic)
        async with running(following.run(), publisher.run()):
            await until(lambda: bool(following.caught_up_at))
            for key, value in sent[15_000:]:
                publisher.publish(key, value)
            await until(lambda: len(following.records) == len(sent))
        assert following.caught_up_at == [15_000]
        assert max(following.chunks) <= 200
        offsets = following.follower.applied_offsets
        assert (len(offsets), sum(offsets)) == (12, len(sent))
        user_of = {value: key for key, value in sent}
        by_user: dict[str, list[int]] = {}
        for record in following.records:
            by_user.setdefault(user_of[record.value], []).append(int(record.value))
        assert len(following.records) == len(set(following.values))
        assert all(numbers == sorted(numbers) for numbers in by_user.values())
        now_ms = time.time() * 1000  # noqa: TID251 - append_ms is wall clock
        assert all(now_ms - 120_000 < record.append_ms <= now_ms + 5 for record in following.records)

    run(test())


def test_a_flood_of_one_user_keeps_no_event_of_another_from_the_topic(
    cluster: Cluster, topic_name: TopicName
) -> None:
    """One observed user has 100,000 ids admitted, another 27 meanwhile; both are in one partition."""
    topic = topic_named(topic_name("flooded"), partitions=1)
    kafka = client_of(cluster)

    async def test() -> None:
        publisher, following = EventPublisher(kafka, topic), Following(kafka, topic)
        async with running(publisher.run(), following.run()):
            await until(lambda: publisher.is_connected)
            for number in range(100_000):
                publisher.publish("observed", b"%d" % number)
                if number % 3_700 == 0 and number:
                    publisher.publish("other", b"other %d" % number)
                    await asyncio.sleep(0)
            assert publisher.dropped > 0, "the flood is faster than the topic"
            assert await publisher.flush(30)
            await until(lambda: len(following.records) == publisher.published)
        values = following.values
        assert sum(value.startswith(b"other") for value in values) == 27
        assert publisher.published + publisher.dropped == 100_027

    run(test())


def test_reading_begins_at_offsets_or_at_a_time_or_at_the_earliest(
    cluster: Cluster, topic_name: TopicName
) -> None:
    topic, kafka = topic_named(topic_name("start"), partitions=1), client_of(cluster)

    async def read(start: StartAt, most: int) -> tuple[list[bytes], list[int]]:
        following = Following(kafka, topic)
        async with running(following.run(start)):
            await until(lambda: bool(following.caught_up_at) and len(following.records) >= most)
            await asyncio.sleep(0.2)
        return following.values, following.caught_up_at

    async def test() -> None:
        await publish_all(kafka, topic, [("user", b"%d" % n) for n in range(5)])
        await asyncio.sleep(0.05)
        between_ms = int(time.time() * 1000)  # noqa: TID251 - append_ms is wall clock
        await asyncio.sleep(0.05)
        await publish_all(kafka, topic, [("user", b"%d" % n) for n in range(5, 8)])
        every = [b"%d" % n for n in range(8)]
        assert await read(StartAt(), 8) == (every, [8])
        assert await read(StartAt({0: 6}), 2) == (every[6:], [2])
        assert await read(StartAt({0: 8}), 0) == ([], [0])
        assert await read(StartAt(wall_ms=between_ms), 3) == (every[5:], [3])
        assert await read(StartAt({0: 7}, wall_ms=between_ms), 1) == (every[7:], [1])
        assert await read(StartAt(wall_ms=between_ms + DAY_MS), 0) == ([], [0])

    run(test())
    with capture_logs() as lines:
        # From a longer topic of the same name, or one whose end was lost.
        assert uvloop.run(read(StartAt({0: 9}), 8))[0] == [b"%d" % n for n in range(8)]
    (gone,) = named(lines, "events_offsets_gone")
    assert (gone["partition"], gone["offset"], gone["earliest"]) == (0, 9, 0)


@pytest.mark.faults  # too long for `make test`
def test_partitions_that_are_added_are_followed_too(cluster: Cluster, topic_name: TopicName) -> None:
    topic, kafka = topic_named(topic_name("grows"), partitions=1), client_of(cluster)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})

    async def test() -> None:
        publisher, following = EventPublisher(kafka, topic), Following(kafka, topic)
        async with running(following.run(), publisher.run()):
            publisher.publish("user", b"before")
            await until(lambda: following.values == [b"before"])
            future = admin.create_partitions([NewPartitions(topic.name, 4)])[topic.name]
            await asyncio.to_thread(future.result, 30)
            # Another gateway, started later, knows the new ones from the beginning.
            await publish_all(kafka, topic, [(f"user-{n}", b"%d" % n) for n in range(40)])
            await until(lambda: len(following.records) == 41, 90)
        assert len(following.follower.applied_offsets) == 4
        assert len(set(following.values)) == 41
        assert len(following.caught_up_at) == 1

    run(test())


def test_an_event_that_the_topic_does_not_take_is_dropped_and_all_others_arrive(
    cluster: Cluster, topic_name: TopicName
) -> None:
    config = {"max.message.bytes": "20000", "message.timestamp.type": "LogAppendTime"}
    topic = topic_named(create_topic(cluster.bootstrap_servers(), topic_name("small"), config=config))
    kafka = client_of(cluster)

    async def test() -> None:
        publisher, following = EventPublisher(kafka, topic), Following(kafka, topic)
        sent = [b"%04d" % n + bytes(900) for n in range(100)]
        for value in [*sent[:50], bytes(30_000), bytes(2_000_000), *sent[50:]]:
            publisher.publish("user", value)
        async with running(following.run(), publisher.run()):
            assert await publisher.flush(30)
            await until(lambda: len(following.records) >= 100)
        assert following.values == sent
        assert (publisher.published, publisher.dropped) == (100, 2)

    with capture_logs() as lines:
        run(test())
    assert sum(line["dropped"] for line in named(lines, "events_dropped")) == 2


REPLAYED = 1_000_000
READY_WITHIN_S = 15.0


class TestWithoutRights:
    """The gateway is alice, and gets her rights while it runs."""

    @pytest.fixture
    def password(self, tmp_path: Path) -> Path:
        file = tmp_path / "password"
        file.write_text("alice-secret\n")
        return file

    def alice(self, cluster: Cluster, password: Path, mechanism: Any = "SCRAM-SHA-256") -> OwnClient:
        sasl = SaslSettings(mechanism=mechanism, username="alice", password_file=str(password))
        return OwnClient(cluster.bootstrap_servers(SASL_PLAINTEXT).split(","), sasl)

    async def allow(self, cluster: Cluster, topic: str, *operations: AclOperation) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
        bindings = [
            AclBinding(
                ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:alice", "*", operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]  # fmt: skip
        for future in admin.create_acls(bindings).values():
            await asyncio.to_thread(future.result, 30)

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
    def test_create_read_and_write_are_enough(self, guarded: Cluster, password: Path, mechanism: str) -> None:
        topic = topic_named(f"enough-{mechanism.lower()}")
        kafka = self.alice(guarded, password, mechanism)

        async def test() -> None:
            await self.allow(guarded, topic.name, AclOperation.CREATE, AclOperation.WRITE, AclOperation.READ)
            publisher, following = EventPublisher(kafka, topic), Following(kafka, topic)
            publisher.publish("user", b"1")
            async with running(publisher.run(), following.run()):
                await until(lambda: following.values == [b"1"])

        with capture_logs() as lines:
            run(test())
        assert len(named(lines, "events_topic_created")) == 1

    def test_each_missing_right_is_named_and_what_waited_is_sent_when_it_is_given(
        self, guarded: Cluster, password: Path
    ) -> None:
        topic, kafka = topic_named("rights"), self.alice(guarded, password)

        async def test() -> None:
            publisher, following = EventPublisher(kafka, topic), Following(kafka, topic)
            async with running(publisher.run(), following.run()):
                for n in range(100):
                    publisher.publish(f"user-{n}", b"%d" % n)
                await until(lambda: bool(publisher.last_failure and following.follower.last_failure))
                assert not publisher.is_connected
                await asyncio.to_thread(create_topic, guarded.bootstrap_servers(), topic.name, 3)
                await self.allow(guarded, topic.name, AclOperation.DESCRIBE)
                await until(lambda: "Write" in self.remedies(lines, "writing")[-1])
                await until(lambda: "Read" in self.remedies(lines, "reading")[-1])
                assert publisher.buffered == 100
                await self.allow(guarded, topic.name, AclOperation.WRITE)
                await until(lambda: publisher.buffered == 0)
                await self.allow(guarded, topic.name, AclOperation.READ)
                await until(lambda: len(following.records) == 100)
                assert (publisher.dropped, publisher.last_failure) == (0, "")
                await until(lambda: following.follower.last_failure == "")

        with capture_logs() as lines:
            run(test())
        assert {line["doing"] for line in named(lines, "events_topic_available")} == {"writing", "reading"}
        # Told when it changes, not at each of the retries.
        assert len(named(lines, "events_topic_unavailable")) < 10

    @staticmethod
    def remedies(lines: Lines, doing: str) -> list[str]:
        said = named(lines, "events_topic_unavailable")
        return [line["remedy"] for line in said if line["doing"] == doing] or [""]

    def test_wrong_credentials_are_named_and_a_new_password_is_read(
        self, guarded: Cluster, password: Path
    ) -> None:
        topic, kafka = topic_named("credentials"), self.alice(guarded, password)
        password.write_text("hunter2")

        async def test() -> None:
            await self.allow(guarded, topic.name, AclOperation.ALL)
            publisher, following = EventPublisher(kafka, topic), Following(kafka, topic)
            publisher.publish("user", b"1")
            async with running(publisher.run(), following.run()):
                await until(lambda: "own_client" in self.remedies(lines, "writing")[-1])
                await until(lambda: "own_client" in self.remedies(lines, "reading")[-1])
                await asyncio.to_thread(password.unlink)
                await until(lambda: "file readable" in self.remedies(lines, "writing")[-1])
                await asyncio.to_thread(password.write_text, "alice-secret")
                await until(lambda: following.values == [b"1"])

        with capture_logs() as lines:
            run(test())
        assert "alice-secret" not in str(lines)
        assert "hunter2" not in str(lines)
