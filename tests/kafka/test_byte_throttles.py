"""Byte quotas request by request, before real brokers: what is told, how long it holds, and what goes on afterwards.

Every client id has a bucket of its own here, and ten seconds' worth at once is free: 100,000 bytes. What is above makes
a throttle of a few hundred milliseconds, which KIP-13's formula tells to the millisecond. Versions are those in which
a layout changes; tests/unit/protocol/test_throttle.py has them all.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.kafka.test_proxy_apis import await_coordinator
from tests.support import share_group
from tests.support.byte_quotas import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    SHARE_FETCH,
    FetchHead,
    FetchOf,
    alter_client_quota,
    batch_of,
    fetch_head,
    fill,
    produce,
    produce_of_size,
    produce_throttle,
    throttle_ms,
    topic_id_of,
    wait_for_answer_ms,
)
from tests.support.raw import RawClient, decoded, request
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]

NOT_LEADER = 6

RATE = 10_000
FREE = 10 * RATE
ABOVE = 103_000
"""One request of so many bytes is 300 ms above what is free."""
FAR_ABOVE = 150_000
"""One of so many is 5 s above: no machine is so slow that nothing of it is left when its answer comes."""
HALF = 52_000
"""Two fetches of so many bytes of records are a bit more than that."""
RATES = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
QUOTAS: dict[str, Any] = {"mode": "enforce", "users": {"ANONYMOUS": {"clients": {"<default>": RATES}}}}

EARLY_MS = 3.0
"""Clocks of two processes are read in whole milliseconds."""
LATE_MS = 1_500.0
"""How much later than due an answer may come on a machine that does other things."""


@pytest.fixture(scope="module")
def gateway(cluster: Cluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(cluster.bootstrap_servers(), quotas=QUOTAS) as running:
        yield running


@pytest.fixture(scope="module")
def old_gateway(old_cluster: Cluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(old_cluster.bootstrap_servers(), quotas=QUOTAS) as running:
        yield running


class Scene:
    """A topic with 400 kB in batches of 10 kB, and the gateway before its broker."""

    def __init__(self, cluster: Cluster, gateway: GatewayProcess, topic: str) -> None:
        self.broker = cluster.bootstrap_servers()
        self.gateway = gateway
        self.topic = create_topic(self.broker, topic)
        fill(self.broker, topic, 400_000, batch_bytes=10_000)
        self.topic_id: UUID = topic_id_of(self.broker, topic)

    def client(self) -> RawClient:
        return RawClient(self.gateway.bootstrap_servers)

    def produce_above(self, version: int, client_id: str) -> bytes:
        return produce_of_size(ABOVE, version, self.topic, self.topic_id, client_id)

    def fetch(self, client_id: str, **fields: Any) -> FetchOf:
        wanted = {"partition_max_bytes": HALF, **fields}
        return FetchOf(topic=self.topic, topic_id=self.topic_id, client_id=client_id, **wanted)


@pytest.fixture(scope="module")
def scene(cluster: Cluster, gateway: GatewayProcess) -> Scene:
    return Scene(cluster, gateway, "throttled")


@pytest.fixture(scope="module")
def old_scene(old_cluster: Cluster, old_gateway: GatewayProcess) -> Scene:
    return Scene(old_cluster, old_gateway, "throttled")


@pytest.fixture
def client_id(topic_name: TopicName) -> str:
    """A bucket of its own."""
    return topic_name("client")


def check_mute(client: RawClient, client_id: str, left_ms: float) -> None:
    """The next request is answered when the throttle is over, not before."""
    waited_ms = wait_for_answer_ms(client, client_id)
    assert left_ms - EARLY_MS <= waited_ms <= left_ms + LATE_MS
    assert wait_for_answer_ms(client, client_id) < max(left_ms, 200.0), "and then it is over"


def check_produce(scene: Scene, version: int, client_id: str) -> None:
    framed = scene.produce_above(version, client_id)
    expected_ms = throttle_ms(len(framed) - 4, RATE)
    assert expected_ms > 250
    with scene.client() as client:
        began_s = time.monotonic()
        told_ms = produce_throttle(client.ask(framed), version)
        took_ms = (time.monotonic() - began_s) * 1000
        if version == 0:
            assert told_ms is None
        else:
            assert told_ms is not None
            assert expected_ms - took_ms - EARLY_MS <= told_ms <= expected_ms + EARLY_MS
        check_mute(client, client_id, expected_ms - (time.monotonic() - began_s) * 1000)


@pytest.mark.parametrize("version", [3, 7, 8, 9, 10, 12, 13])
def test_produce(scene: Scene, client_id: str, version: int) -> None:
    check_produce(scene, version, client_id)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_of_old_brokers(old_scene: Scene, client_id: str, version: int) -> None:
    """Version 0 has no field: the mute alone holds the client."""
    check_produce(old_scene, version, client_id)


def check_fetch(scene: Scene, version: int, client_id: str) -> None:
    framed = scene.fetch(client_id).framed(version)
    with scene.client() as client:
        began_s = time.monotonic()
        first = client.ask(framed)
        assert fetch_head(first, version).throttle_time_ms in (0, None)
        assert len(first) > HALF - 10_000
        second = client.ask(framed)
        got_s = time.monotonic()
        total = len(first) + len(second)
        expected_ms = throttle_ms(total, RATE, (got_s - began_s) * 1000)
        least_ms, most_ms = expected_ms, throttle_ms(total, RATE)
        assert least_ms > 100
        head = fetch_head(second, version)
        if version == 0:
            assert head == FetchHead(None)
        else:
            assert head.throttle_time_ms is not None
            assert least_ms - EARLY_MS <= head.throttle_time_ms <= most_ms + EARLY_MS
            assert head.error_code == 0
        # Muted since the head was seen.
        check_mute(client, client_id, least_ms - (got_s - began_s) * 1000)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 15, 16, 18])
def test_fetch(scene: Scene, client_id: str, version: int) -> None:
    check_fetch(scene, version, client_id)


@pytest.mark.parametrize("version", range(4))
def test_fetch_of_old_brokers(old_scene: Scene, client_id: str, version: int) -> None:
    """Version 0 has no field: the mute alone holds the client."""
    check_fetch(old_scene, version, client_id)


def test_what_is_below_the_quota_waits_for_nothing(scene: Scene, client_id: str) -> None:
    with scene.client() as client:
        for size in (FREE // 2, FREE // 2 - 2_000):
            framed = produce_of_size(size, 9, scene.topic, scene.topic_id, client_id)
            assert produce_throttle(client.ask(framed), 9) == 0
        assert wait_for_answer_ms(client, client_id) < 200


def test_all_connections_of_a_client_share_its_quota(scene: Scene, client_id: str) -> None:
    framed = produce_of_size(HALF, 9, scene.topic, scene.topic_id, client_id)
    with scene.client() as one, scene.client() as other:
        assert produce_throttle(one.ask(framed), 9) == 0
        told_ms = produce_throttle(other.ask(framed), 9)
        assert told_ms is not None
        assert 100 < told_ms <= throttle_ms(2 * (len(framed) - 4), RATE) + EARLY_MS
        # Only who went above it waits: KIP-219 mutes channels.
        assert wait_for_answer_ms(one, client_id) < told_ms - EARLY_MS


def test_what_is_pipelined_behind_a_throttle_is_answered_in_order(scene: Scene, client_id: str) -> None:
    small = batch_of(200)
    with scene.client() as client:
        began_s = time.monotonic()
        client.send(scene.produce_above(9, client_id))
        for number in range(5):
            client.send(produce(9, scene.topic, None, small, client_id, correlation_id=1000 + number))
        assert produce_throttle(client.frame(), 9) is not None
        assert time.monotonic() - began_s < throttle_ms(ABOVE, RATE) / 1000, (
            "the answer itself is not held back"
        )
        for number in range(5):
            frame = client.frame()
            assert struct.unpack_from(">i", frame) == (1000 + number,)
            assert produce_throttle(frame, 9) is not None
        # Each of the small ones is above the quota as well, by its own 300 bytes.
        assert time.monotonic() - began_s >= (throttle_ms(ABOVE, RATE) - EARLY_MS) / 1000


def test_acks_0_is_held_by_the_mute_alone(scene: Scene, client_id: str) -> None:
    records = batch_of(ABOVE)
    framed = produce(9, scene.topic, scene.topic_id, records, client_id, acks=0, correlation_id=5)
    with scene.client() as client:
        began_s = time.monotonic()
        client.send(framed)
        body = {"client_software_name": "raw", "client_software_version": "1"}
        frame = client.ask(request(API_VERSIONS, 3, body, correlation_id=6, client_id=client_id))
        waited_ms = (time.monotonic() - began_s) * 1000
        assert struct.unpack_from(">i", frame) == (6,), "nothing is answered to acks=0"
        expected_ms = throttle_ms(len(framed) - 4, RATE)
        assert expected_ms - EARLY_MS <= waited_ms <= expected_ms + LATE_MS


# Together with the brokers' own quotas


def await_quota(broker: str, framed: bytes) -> None:
    """Brokers learn of a quota a moment after it was set."""
    for _ in range(50):
        with RawClient(broker) as client:
            if produce_throttle(client.ask(framed), 9):
                return
        time.sleep(0.1)
    raise TimeoutError("the broker does not throttle")


@pytest.mark.parametrize(("brokers_rate", "who"), [(9_900, "broker"), (10_150, "gateway")])
def test_the_larger_throttle_is_told(
    scene: Scene, client_id: str, brokers_rate: int, who: str, topic_name: TopicName
) -> None:
    probe = topic_name("probe")
    alter_client_quota(
        scene.broker,
        {probe: {"producer_byte_rate": brokers_rate}, client_id: {"producer_byte_rate": brokers_rate}},
    )
    await_quota(scene.broker, produce_of_size(150_000, 9, scene.topic, None, probe))
    framed = scene.produce_above(9, client_id)
    sizes = len(framed) - 4
    ours_ms, theirs_ms = throttle_ms(sizes, RATE), throttle_ms(sizes, brokers_rate)
    with scene.client() as client:
        began_s = time.monotonic()
        told_ms = produce_throttle(client.ask(framed), 9)
        took_ms = (time.monotonic() - began_s) * 1000
        assert told_ms is not None
        if who == "broker":
            assert theirs_ms > ours_ms + 50
            assert abs(told_ms - theirs_ms) <= EARLY_MS
        else:
            assert theirs_ms < ours_ms - 50
            assert ours_ms - took_ms - EARLY_MS <= told_ms <= ours_ms + EARLY_MS
        # The broker holds its end of the connection as well.
        left_ms = max(ours_ms, theirs_ms) - (time.monotonic() - began_s) * 1000
        check_mute(client, client_id, left_ms)


def test_an_empty_answer_of_a_throttling_broker_keeps_its_throttle(
    scene: Scene, client_id: str, topic_name: TopicName
) -> None:
    """A broker answers a fetch above its own quota with nothing and a throttle: ours does not shorten it."""
    probe = topic_name("probe")
    of_both = {"producer_byte_rate": 9_000.0, "consumer_byte_rate": 9_000.0}
    alter_client_quota(scene.broker, {probe: of_both, client_id: of_both})
    await_quota(scene.broker, produce_of_size(150_000, 9, scene.topic, None, probe))
    with scene.client() as client:
        first = client.ask(scene.fetch(client_id).framed(12))
        assert len(first) > HALF - 10_000
        second = client.ask(scene.fetch(client_id, offset=1).framed(12))
        head = fetch_head(second, 12)
        assert len(second) < 1_000
        assert head.throttle_time_ms is not None
        assert head.throttle_time_ms > 500


# What a fetch is


@pytest.mark.parametrize("version", [7, 13, 18])
def test_a_fetch_session_goes_on_after_a_throttle(scene: Scene, client_id: str, version: int) -> None:
    with scene.client() as client:
        full = fetch_head(client.ask(scene.fetch(client_id, session_epoch=0).framed(version)), version)
        assert full.error_code == 0
        assert full.session_id > 0
        in_session = {"session_id": full.session_id}
        framed = scene.fetch(client_id, offset=5, session_epoch=1, **in_session).framed(version)
        throttled = fetch_head(client.ask(framed), version)
        assert throttled.error_code == 0
        assert throttled.session_id == full.session_id
        assert throttled.throttle_time_ms is not None
        assert throttled.throttle_time_ms > 100
        began_s = time.monotonic()
        framed = scene.fetch(
            client_id, offset=10, session_epoch=2, partition_max_bytes=1_000, **in_session
        ).framed(version)
        third = client.ask(framed)
        assert (time.monotonic() - began_s) * 1000 >= throttled.throttle_time_ms - 20
        assert fetch_head(third, version).error_code == 0
        assert fetch_head(third, version).session_id == full.session_id
        assert len(third) > 1_000
        # Nothing is named: the partition of the session is meant.
        framed = scene.fetch(client_id, session_epoch=3, forget_nothing_new=True, **in_session).framed(
            version
        )
        fourth = client.ask(framed)
        assert fetch_head(fourth, version).error_code == 0
        assert len(fourth) > 1_000


def empty_poll(scene: Scene, client_id: str) -> FetchOf:
    """A long poll of 400 ms that nothing comes to."""
    empty = create_topic(scene.broker, f"empty-{client_id}")
    topic_id = topic_id_of(scene.broker, empty)
    return FetchOf(topic=empty, topic_id=topic_id, client_id=client_id, max_wait_ms=400)


def test_a_long_poll_waits_as_long_as_it_says(scene: Scene, client_id: str) -> None:
    poll = empty_poll(scene, client_id)
    with scene.client() as client:
        told_ms = produce_throttle(client.ask(scene.produce_above(9, client_id)), 9)
        assert told_ms is not None
        began_s = time.monotonic()
        frame = client.ask(poll.framed(12))
        waited_ms = (time.monotonic() - began_s) * 1000
        assert fetch_head(frame, 12) == FetchHead(0), "producing and consuming have quotas of their own"
        assert told_ms + 400 - 20 <= waited_ms <= told_ms + 400 + LATE_MS
        began_s = time.monotonic()
        assert fetch_head(client.ask(poll.framed(12)), 12) == FetchHead(0)
        assert 0.39 <= time.monotonic() - began_s <= 0.4 + LATE_MS / 1000


def test_a_long_poll_begins_when_the_throttle_is_over(scene: Scene, client_id: str) -> None:
    poll = empty_poll(scene, client_id)
    with scene.client() as client:
        client.ask(scene.fetch(client_id).framed(12))
        left_ms = fetch_head(client.ask(scene.fetch(client_id).framed(12)), 12).throttle_time_ms
        assert left_ms is not None
        assert left_ms > 100
        began_s = time.monotonic()
        client.ask(poll.framed(12))
        waited_ms = (time.monotonic() - began_s) * 1000
        assert left_ms + 400 - 20 <= waited_ms <= left_ms + 400 + LATE_MS


@pytest.mark.parametrize("version", [4, 11, 14, 15, 18])
def test_one_fetch_gets_what_the_quota_allows_in_its_window(
    scene: Scene, client_id: str, version: int
) -> None:
    framed = scene.fetch(client_id, partition_max_bytes=50_000_000).framed(version)
    with RawClient(scene.broker) as direct, scene.client() as client:
        assert len(direct.ask(framed)) > 390_000
        frame = client.ask(framed)
        print(f"Fetch v{version}: asked for 50 MB at {RATE} B/s, got {len(frame)} bytes")
        assert FREE * 0.85 <= len(frame) <= FREE + 300
        told_ms = fetch_head(frame, version).throttle_time_ms
        assert told_ms is not None
        assert told_ms <= 50


def test_a_fetch_without_max_bytes_is_held_afterwards(old_scene: Scene, client_id: str) -> None:
    """Fetch v2 has none: all of it comes, and all of it is counted."""
    framed = old_scene.fetch(client_id, partition_max_bytes=FREE + 4_000).framed(2)
    with old_scene.client() as client:
        frame = client.ask(framed)
        assert len(frame) > FREE + 3_000
        told_ms = fetch_head(frame, 2).throttle_time_ms
        assert told_ms is not None
        assert abs(told_ms - throttle_ms(len(frame), RATE)) <= EARLY_MS


class ShareMember:
    """A consumer of a share group (KIP-932), by hand."""

    def __init__(self, scene: Scene, version: int, client_id: str) -> None:
        self.scene = scene
        self.version = version
        self.client_id = client_id
        self.member_id = str(uuid4())
        self.epoch = 0

    def fetch(self, client: RawClient, max_bytes: int) -> bytes:
        partition = {"partition_index": 0, "acknowledgement_batches": []}
        body = {
            "group_id": self.client_id,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": max_bytes,
            "max_records": 1_000,
            "batch_size": 1_000,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [{"topic_id": self.scene.topic_id, "partitions": [partition]}]
            if not self.epoch
            else [],
            "forgotten_topics_data": [],
        }
        frame = client.ask(request(SHARE_FETCH, self.version, body, client_id=self.client_id))
        assert struct.unpack_from(">h", frame, 9) == (0,)
        self.epoch += 1
        return frame

    def fetch_records(self, client: RawClient, max_bytes: int) -> tuple[list[bytes], float]:
        """Until some come, and when the last fetch was asked for: a share partition is made ready at the first one."""
        frames: list[bytes] = []
        for _ in range(50):
            asked_s = time.monotonic()
            frames.append(self.fetch(client, max_bytes))
            if len(frames[-1]) > 5_000:
                return frames, asked_s
        raise TimeoutError("no records")


@pytest.mark.parametrize("version", [1, 2])
def test_share_fetch(scene: Scene, client_id: str, version: int) -> None:
    await_coordinator(scene.broker, 0)
    member = ShareMember(scene, version, client_id)
    with RawClient(scene.broker) as direct, scene.client() as client:
        share_group.join(direct, client_id, member.member_id, scene.topic)
        frames, asked_s = member.fetch_records(client, HALF)
        assert all(struct.unpack_from(">i", frame, 5) == (0,) for frame in frames)
        second = member.fetch(client, HALF + 9_000)  # whole batches: six of them
        got_s = time.monotonic()
        total = sum(map(len, frames)) + len(second)
        (told_ms,) = struct.unpack_from(">i", second, 5)
        print(f"ShareFetch v{version}: {total} bytes in {len(frames) + 1} answers, told {told_ms} ms")
        elapsed_ms = (got_s - asked_s) * 1000
        assert (
            throttle_ms(total, RATE, elapsed_ms) - EARLY_MS <= told_ms <= throttle_ms(total, RATE) + EARLY_MS
        )
        # It is much above what is free; how much of that has passed meanwhile depends on the machine.
        assert throttle_ms(total, RATE) > 500
        assert told_ms > 0
        check_mute(client, client_id, told_ms - 20)
        assert len(member.fetch(client, 1_000)) > 60, "the share session goes on"


def test_one_share_fetch_gets_what_the_quota_allows_in_its_window(scene: Scene, client_id: str) -> None:
    await_coordinator(scene.broker, 0)
    member = ShareMember(scene, 2, client_id)
    with RawClient(scene.broker) as direct, scene.client() as client:
        share_group.join(direct, client_id, member.member_id, scene.topic)
        frames, _ = member.fetch_records(client, 50_000_000)
        print(f"ShareFetch: asked for 50 MB at {RATE} B/s, got {len(frames[-1])} bytes")
        assert FREE * 0.85 <= len(frames[-1]) <= FREE + 300


# Together with what else is done to answers


def await_topic(broker: tuple[str, int], topic: str) -> dict[str, Any]:
    """What this broker says of the topic, once it has heard of it."""
    for _ in range(100):
        with RawClient(broker) as client:
            found: dict[str, Any] = client.call(METADATA, 12, {"topics": [{"name": topic}]})["topics"][0]
        if found["partitions"]:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{broker} does not know {topic}")


@pytest.mark.parametrize("version", [10, 13])
def test_a_throttled_answer_still_hides_the_brokers(
    three_brokers: Cluster, topic_name: TopicName, client_id: str, version: int
) -> None:
    """KIP-951: who produces to another broker is told the leader's address, ours, behind the throttle."""
    brokers = three_brokers.bootstrap_servers()
    topic = create_topic(brokers, topic_name("elsewhere"))
    node_ids = tuple(three_brokers.nodes)
    for node_id in node_ids:
        found = await_topic(three_brokers.nodes[node_id], topic)
    leader = found["partitions"][0]["leader_id"]
    elsewhere = next(node_id for node_id in node_ids if node_id != leader)
    with (
        GatewayProcess(brokers, quotas=QUOTAS, node_ids=node_ids) as gateway,
        RawClient(("127.0.0.1", gateway.first_node_port + elsewhere)) as client,
    ):
        framed = produce_of_size(FAR_ABOVE, version, topic, UUID(found["topic_id"]), client_id)
        began_s = time.monotonic()
        answer = decoded(PRODUCE, version, client.ask(framed))
        took_ms = (time.monotonic() - began_s) * 1000
        (outcome,) = answer["responses"][0]["partition_responses"]
        assert outcome["error_code"] == NOT_LEADER
        expected_ms = throttle_ms(len(framed) - 4, RATE)
        assert expected_ms - took_ms - EARLY_MS <= answer["throttle_time_ms"] <= expected_ms + EARLY_MS
        shown = [(node["node_id"], node["host"], node["port"]) for node in answer["node_endpoints"]]
        assert shown == [(leader, "127.0.0.1", gateway.first_node_port + leader)]


# Who is not throttled


@pytest.mark.parametrize(
    "quotas",
    [
        {**QUOTAS, "mode": "observe"},
        {**QUOTAS, "users": {"ANONYMOUS": {"clients": {"<default>": RATES}, "mode": "observe"}}},
        {**QUOTAS, "users": {"ANONYMOUS": {"clients": {"<default>": RATES}, "exempt": ["bytes"]}}},
    ],
    ids=["observe", "observed user", "exempt"],
)
def test_who_is_not_throttled_is_counted(
    cluster: Cluster, scene: Scene, client_id: str, quotas: dict[str, Any]
) -> None:
    with GatewayProcess(cluster.bootstrap_servers(), quotas=quotas) as gateway:
        with RawClient(gateway.bootstrap_servers) as client:
            assert produce_throttle(client.ask(scene.produce_above(9, client_id)), 9) == 0
            frame = client.ask(scene.fetch(client_id, partition_max_bytes=50_000_000).framed(12))
            assert len(frame) > 390_000, "max_bytes is not lowered"
            assert fetch_head(frame, 12).throttle_time_ms == 0
            assert wait_for_answer_ms(client, client_id) < 250
            assert decoded(PRODUCE, 9, client.ask(produce(9, scene.topic, None, batch_of(200), client_id)))
        check_counted(gateway, client_id, throttled=0)


def check_counted(gateway: GatewayProcess, client_id: str, *, throttled: int) -> None:
    """What was counted is published all the same, in Kafka's words, with what would have happened."""
    metrics = gateway.metrics()
    for kind, least_bytes, requests in (("produce", ABOVE, 2), ("fetch", 390_000, 1)):
        labels = {"kind": kind, "user": "ANONYMOUS", "client_id": client_id}
        assert metrics.value("pidgate_byte_counted_total", **labels) >= least_bytes
        assert metrics.value("pidgate_byte_would_throttle_total", **labels) == requests
        assert metrics.value("pidgate_byte_throttled_total", **labels) == throttled
        assert metrics.value("pidgate_byte_quota", **labels) == RATE
        assert metrics.value("pidgate_byte_rate", **labels) > RATE
