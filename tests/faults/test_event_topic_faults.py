"""The topic of events when its brokers die, hang or move: nobody waits for it, and nothing is lost that had room."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.state import record_accumulator
from pidgate.gateway.state.publisher import EventPublisher
from pidgate.gateway.topics.follower import StartAt
from pidgate.gateway.topics.own_client import OwnClient
from tests.kafka.test_event_topic import Following, client_of, named, run, running, topic_named, until
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

pytestmark = pytest.mark.faults

USERS = 20


@pytest.fixture(autouse=True)
def _nothing_is_left_unlooked_at(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """asyncio complains in the gateway's log of errors that nobody took."""
    yield
    gc.collect()
    records = [*caplog.get_records("call"), *caplog.records]
    assert [record.getMessage() for record in records if record.name == "asyncio"] == []


class Publishing:
    """Publishes numbered events at a steady pace and keeps the longest that one `publish` took."""

    def __init__(self, publisher: EventPublisher, per_s: int = 200) -> None:
        self.publisher = publisher
        self.sent: list[bytes] = []
        self._longest_s = self._longest_cpu_s = 0.0
        self._pause_s = 1 / per_s

    def one(self) -> None:
        value = b"%08d" % len(self.sent) + bytes(600)
        began_s, began_cpu_s = time.monotonic(), time.thread_time()
        self.publisher.publish(f"user-{len(self.sent) % USERS}", value)
        self._longest_cpu_s = max(self._longest_cpu_s, time.thread_time() - began_cpu_s)
        self._longest_s = max(self._longest_s, time.monotonic() - began_s)
        self.sent.append(value)

    def assert_waited_for_nobody(self) -> None:
        """No `publish` worked for long, or waited for a broker. Others may have taken the core from it."""
        assert self._longest_cpu_s < 0.02
        assert self._longest_s < 2

    async def run(self) -> None:
        while True:
            self.one()
            await asyncio.sleep(self._pause_s)


class Stalls:
    """The longest time for which the event loop did not come round."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            self.longest_s = max(self.longest_s, time.perf_counter() - began - 0.005)


@asynccontextmanager
async def under_load(
    kafka: OwnClient, topic_name: str
) -> AsyncIterator[tuple[Publishing, Following, Stalls]]:
    """A gateway's event log at work, followed from the beginning."""
    topic = topic_named(topic_name)
    publisher, following, stalls = EventPublisher(kafka, topic), Following(kafka, topic), Stalls()
    publishing = Publishing(publisher)
    async with running(publisher.run(), following.run()):
        publishing.one()
        await until(lambda: len(following.records) == 1)
        async with running(publishing.run(), stalls.run()):
            yield publishing, following, stalls
        assert await publisher.flush(60)
        # At least once: what was sent again is told by its number.
        await until(lambda: len(set(following.values)) == len(publishing.sent), 60)
        assert set(following.values) == set(publishing.sent)
        offsets = [(record.partition, record.offset) for record in following.records]
        # Nothing is handed over twice, and nothing is left out.
        assert len(offsets) == len(set(offsets)) == sum(following.follower.applied_offsets)
        assert len(following.caught_up_at) == 1
    assert publisher.dropped == 0
    publishing.assert_waited_for_nobody()


def assert_told_once(lines: list[object], doing: str) -> None:
    told = [line for line in named(lines, "events_topic_unavailable") if line["doing"] == doing]  # type: ignore[arg-type]
    assert len(told) <= 3


@pytest.mark.slow
def test_a_killed_broker_comes_back() -> None:
    async def test() -> None:
        async with under_load(client_of(cluster), "killed") as (publishing, following, stalls):
            await asyncio.sleep(2)
            cluster.node(1).kill()
            await until(lambda: bool(publishing.publisher.last_failure), 40)
            await until(lambda: bool(following.follower.last_failure), 60)
            assert not publishing.publisher.is_connected
            assert not following.follower.is_connected
            assert publishing.publisher.buffered > 500
            await asyncio.to_thread(cluster.start_node, 1)
            began = time.monotonic()
            await until(lambda: publishing.publisher.is_connected, 40)
            await until(lambda: following.follower.is_connected, 40)
            print(f"back after {time.monotonic() - began:.1f} s; stall {stalls.longest_s * 1000:.0f} ms")
            before = len(following.records)
            await until(lambda: len(following.records) > before + 500)

    with Cluster() as cluster, capture_logs() as lines:
        run(test())
    for doing in ("writing", "reading"):
        assert_told_once(list(lines), doing)
        available = [line for line in named(lines, "events_topic_available") if line["doing"] == doing]
        assert len(available) == 1
    assert named(lines, "events_dropped") == []


@pytest.mark.slow
def test_a_broker_that_hangs_for_half_a_minute() -> None:
    async def test() -> None:
        async with under_load(client_of(cluster), "hangs") as (publishing, following, _):
            await asyncio.sleep(1)
            cluster.node(1).signal(signal.SIGSTOP)
            await asyncio.sleep(30)
            assert publishing.publisher.buffered > 500
            # Each step of the library's retries may take its 10 s.
            await until(lambda: bool(publishing.publisher.last_failure), 30)
            cluster.node(1).signal(signal.SIGCONT)
            await until(lambda: publishing.publisher.is_connected, 60)
            before = len(following.records)
            await until(lambda: len(following.records) > before + 500, 60)

    with Cluster() as cluster:
        run(test())


@pytest.mark.slow
def test_a_topic_that_is_slower_than_the_events_come() -> None:
    """A byte quota of the brokers on the gateway's own client: each answer comes late."""

    def limit(*change: str) -> None:
        cluster.tools.run(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", cluster.bootstrap_servers(), "--alter"),
            *("--entity-type", "clients", "--entity-name", "pidgate", *change),
        )

    async def test() -> None:
        async with under_load(client_of(cluster), "slow") as (publishing, _, _):
            await asyncio.to_thread(limit, "--add-config", "producer_byte_rate=30000")
            await until(lambda: publishing.publisher.buffered > 1_000, 60)
            await asyncio.to_thread(limit, "--delete-config", "producer_byte_rate")
            await until(lambda: publishing.publisher.buffered < 100, 60)

    with Cluster() as cluster:
        run(test())


@pytest.mark.slow
def test_all_brokers_return_on_other_ports() -> None:
    """What was learnt of them is worth nothing then; the bootstrap servers are asked again."""

    async def test() -> None:
        kafka = client_of(cluster)
        async with under_load(kafka, "moved") as (_, following, _):
            await asyncio.sleep(1)
            cluster.node(1).kill()
            await asyncio.to_thread(cluster.start_node, 1, new_port=True)
            # As a name in DNS that points to the new place.
            kafka.bootstrap_servers[:] = cluster.bootstrap_servers().split(",")  # type: ignore[index]
            before = len(following.records)
            await until(lambda: len(following.records) > before + 1_000, 90)

    with Cluster() as cluster:
        run(test())


@pytest.mark.slow
def test_one_of_three_brokers_dies_and_stays_away() -> None:
    async def test() -> None:
        async with under_load(client_of(cluster), "one-of-three") as (publishing, following, _):
            await asyncio.sleep(2)
            cluster.node(5).kill()
            sent = len(publishing.sent)
            await until(lambda: set(publishing.sent[: sent + 100]) <= set(following.values), 60)
            await asyncio.sleep(10)
            newest = publishing.sent[-1]
            await until(lambda: newest in following.values[-2_000:], 10)

    with Cluster(ClusterSpec(node_ids=(1, 5, 102))) as cluster:
        run(test())


@pytest.mark.slow
def test_without_the_topic_events_are_dropped_when_there_is_no_more_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pidgate.gateway.state.publisher.LOG_DROPPED_EVERY_S", 0.5)

    publisher = EventPublisher(OwnClient(["127.0.0.1:1"]), topic_named("nowhere"))

    async def test() -> None:
        stalls = Stalls()
        publishing = Publishing(publisher)
        async with running(publisher.run(), stalls.run()):
            for _ in range(60):
                for _ in range(1_000):
                    publishing.one()
                await asyncio.sleep(0.02)
            # Each user leaves free as much as it holds.
            most = record_accumulator.MOST_EVENTS * USERS // (USERS + 1)
            assert publisher.buffered == pytest.approx(most, abs=USERS)
            assert publisher.buffered + publisher.dropped == 60_000
            assert not await publisher.flush(0.5)
        publishing.assert_waited_for_nobody()

    with capture_logs() as lines:
        run(test())
    dropped = named(lines, "events_dropped")
    assert sum(line["dropped"] for line in dropped) == publisher.dropped
    assert len(dropped) <= 6
    # Refused at once, 5 times a second: said once.
    assert len(named(lines, "events_topic_unavailable")) == 1


@pytest.mark.slow
def test_a_topic_that_is_deleted_is_made_again_and_followed_from_its_beginning() -> None:
    from confluent_kafka.admin import AdminClient

    async def test() -> None:
        topic, kafka = topic_named("deleted"), client_of(cluster)
        publisher, following = EventPublisher(kafka, topic), Following(kafka, topic)
        async with running(publisher.run(), following.run(StartAt())):
            for n in range(300):
                publisher.publish(f"user-{n % USERS}", b"%d" % n)
            await until(lambda: len(following.records) == 300)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
            future = admin.delete_topics([topic.name])[topic.name]
            await asyncio.to_thread(future.result, 30)
            for n in range(300, 400):
                publisher.publish(f"user-{n % USERS}", b"%d" % n)
            await until(lambda: {b"%d" % n for n in range(300, 400)} <= set(following.values), 120)
            assert await publisher.flush(30)

    with Cluster() as cluster:
        run(test())
