"""The gateway as a process when its peers misbehave: memory bounded, others go on, ends in time."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.hostile.cost import memory_bytes
from tests.support.frames import batch_of_values, framed, produce_request
from tests.support.raw import RawClient, produce_code, request
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.faults

HEARTBEAT, METADATA, FETCH = 12, 3, 1
MB = 1_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(properties={"message.max.bytes": "20000000"})) as cluster:
        yield cluster


def rss_mb(gateway: GatewayProcess) -> float:
    assert gateway.pid is not None
    return memory_bytes(gateway.pid, "VmRSS") / MB


def produce(
    topic: str, size: int, correlation_id: int = 1, *, acks: int = -1, producer_id: int = -1
) -> bytes:
    """One valid batch with one record of about this size."""
    batch = batch_of_values(producer_id, 0, 0, 1, bytes(size))
    return framed(produce_request(9, [(topic, [(0, batch)])], correlation_id=correlation_id, acks=acks))


def within(seconds: float, is_true: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if is_true():
            return True
        time.sleep(0.05)
    return False


def test_a_broker_that_hangs_bounds_what_is_read_from_its_producers() -> None:
    with Cluster() as cluster, GatewayProcess(cluster.bootstrap_servers()) as gateway:
        topic = create_topic(cluster.bootstrap_servers(), "hangs")
        with RawClient(gateway.bootstrap_servers) as client:
            assert produce_code(client.ask(produce(topic, 900_000))) == 0
            base = rss_mb(gateway)
            cluster.node(1).signal(signal.SIGSTOP)
            client.socket.settimeout(0.5)
            sent, frame = 0, produce(topic, 900_000)
            with contextlib.suppress(TimeoutError):
                for _ in range(200):
                    client.socket.sendall(frame)
                    sent += len(frame)
            # What went out lies in the kernel's buffers; the gateway has stopped reading.
            assert sent < 60 * MB
            assert rss_mb(gateway) < base + 10
            # Another connection's own work goes on: it is answered by the gateway itself.
            with RawClient(gateway.bootstrap_servers) as other:
                assert other.ask(bytes.fromhex("0000000a00120063000000070000"))[4:6] == bytes.fromhex("0023")
            cluster.node(1).signal(signal.SIGCONT)
            client.socket.settimeout(30)
            for _ in range(sent // len(frame)):
                assert produce_code(client.frame()) == 0


def test_a_consumer_that_reads_slowly_is_not_read_ahead_of(broker: Cluster) -> None:
    topic = create_topic(broker.bootstrap_servers(), "large", config={"max.message.bytes": "20000000"})
    with GatewayProcess(broker.bootstrap_servers()) as gateway:
        with RawClient(gateway.bootstrap_servers) as client:
            for _ in range(10):
                assert produce_code(client.ask(produce(topic, 9 * MB))) == 0
            found = client.call(METADATA, 9, {"topics": [{"name": topic}]})
            assert found["topics"][0]["error_code"] == 0
        base = rss_mb(gateway)
        partition = {"partition": 0, "partition_max_bytes": 95 * MB}
        body = {"max_bytes": 95 * MB, "topics": [{"topic": topic, "partitions": [partition]}]}
        for version in (4, 12):
            with RawClient(gateway.bootstrap_servers) as slow:
                slow.send(request(FETCH, version, body))
                time.sleep(2)
                assert rss_mb(gateway) < base + 15
                # The broker's fetch.max.bytes is 55 MiB.
                assert len(slow.frame()) > 50 * MB
                assert rss_mb(gateway) < base + 15


def test_stalled_half_frames_and_length_bombs(broker: Cluster) -> None:
    topic = create_topic(broker.bootstrap_servers(), "bombs", config={"max.message.bytes": "20000000"})
    limits = {"limits": {"frame": "20MB", "buffered_total": "40MB"}}
    with GatewayProcess(broker.bootstrap_servers(), settings=limits) as gateway:
        with RawClient(gateway.bootstrap_servers) as client:
            assert produce_code(client.ask(produce(topic, 9 * MB))) == 0
        base = rss_mb(gateway)
        half = produce(topic, 240_000)[:230_000]
        stalled = [RawClient(gateway.bootstrap_servers) for _ in range(800)]
        try:
            for number, client in enumerate(stalled):
                client.socket.setblocking(False)
                data = half if number % 2 else (19 * MB).to_bytes(4, "big") + half[4:8000]
                with contextlib.suppress(BlockingIOError):
                    client.socket.send(data)
            time.sleep(1)
            assert rss_mb(gateway) < base + 40 + 30
            assert gateway.metrics().value("pidgate_buffered_bytes") > 0
            with RawClient(gateway.bootstrap_servers) as other:
                # Small requests pass at once, a large one when the stalled ones have been found out.
                assert other.call(METADATA, 9, {"topics": []})["brokers"]
                assert produce_code(other.ask(produce(topic, 1000))) == 0
                other.socket.settimeout(60)
                assert produce_code(other.ask(produce(topic, 5 * MB))) == 0
            assert gateway.metrics().value("pidgate_connections_closed_total", cause="limit") > 0
            assert rss_mb(gateway) < base + 40 + 30
        finally:
            for client in stalled:
                client.socket.close()
        assert within(10, lambda: gateway.metrics().value("pidgate_connections") == 0)
        assert within(3, lambda: gateway.metrics().value("pidgate_buffered_bytes") == 0)


def test_a_thousand_clients_that_ask_and_never_read(broker: Cluster) -> None:
    with (
        GatewayProcess(broker.bootstrap_servers()) as gateway,
        RawClient(gateway.bootstrap_servers) as client,
    ):
        base = rss_mb(gateway)
        flood = bytes.fromhex("0000000a00120063000000070000") * 50_000
        client.socket.settimeout(1)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 200:
                client.socket.sendall(flood)
                sent += 1
        assert sent < 200
        assert rss_mb(gateway) < base + 20
