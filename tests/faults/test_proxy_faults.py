"""The gateway as a process when its peers misbehave: memory bounded, others go on, ends in time."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from pidgate.load.journal import Outcome
from tests.hostile.cost import memory_bytes
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.frames import framed, produce_request, record_batch, zigzag
from tests.support.log_checks import raise_if_bad
from tests.support.raw import Closed, RawClient, decoded, request
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
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
    value = bytes(size)
    body = b"\0\0\0\x01" + zigzag(len(value)) + value + b"\0"
    batch = record_batch(producer_id, records=zigzag(len(body)) + body)
    return framed(produce_request(9, [(topic, [(0, batch)])], correlation_id=correlation_id, acks=acks))


def outcome(frame: bytes) -> int:
    (topic,) = decoded(0, 9, frame)["responses"]
    return int(topic["partition_responses"][0]["error_code"])


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
            assert outcome(client.ask(produce(topic, 900_000))) == 0
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
                assert outcome(client.frame()) == 0


def test_a_consumer_that_reads_slowly_is_not_read_ahead_of(broker: Cluster) -> None:
    topic = create_topic(broker.bootstrap_servers(), "large", config={"max.message.bytes": "20000000"})
    with GatewayProcess(broker.bootstrap_servers()) as gateway:
        with RawClient(gateway.bootstrap_servers) as client:
            for _ in range(10):
                assert outcome(client.ask(produce(topic, 9 * MB))) == 0
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
            assert outcome(client.ask(produce(topic, 9 * MB))) == 0
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
                assert outcome(other.ask(produce(topic, 1000))) == 0
                other.socket.settimeout(60)
                assert outcome(other.ask(produce(topic, 5 * MB))) == 0
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


def test_a_frame_above_the_limit_is_named(broker: Cluster) -> None:
    settings = {"limits": {"frame": "100KB"}}
    with GatewayProcess(broker.bootstrap_servers(), settings=settings) as gateway:
        topic = create_topic(broker.bootstrap_servers(), "limits")
        with RawClient(gateway.bootstrap_servers) as client:
            assert outcome(client.ask(produce(topic, 90_000))) == 0
            client.send(produce(topic, 100_000))
            assert client.is_closed()
        (line,) = [line for line in gateway.log_events("connection_closed") if line["cause"] == "protocol"]
        assert "limits.frame allows 100000" in line["reason"]


def test_idle_connections_are_closed_muted_ones_too(broker: Cluster) -> None:
    settings = {"limits": {"idle": "1500ms"}}
    quotas = {"mode": "enforce", "default": {"producer_ids_rate": 0}, "producer_ids": {"max_throttle": "60s"}}
    with GatewayProcess(broker.bootstrap_servers(), settings=settings, quotas=quotas) as gateway:
        topic = create_topic(broker.bootstrap_servers(), "idle")
        with RawClient(gateway.bootstrap_servers) as idle, RawClient(gateway.bootstrap_servers) as muted:
            assert outcome(muted.ask(produce(topic, 10, producer_id=700_000))) == 19
            began = time.monotonic()
            assert idle.is_closed()
            assert muted.is_closed()
            assert 0.5 < time.monotonic() - began < 5
        assert gateway.metrics().value("pidgate_connections_closed_total", cause="idle") == 2


def test_sigterm_lets_what_is_in_flight_be_answered_and_waits_for_no_mute(broker: Cluster) -> None:
    quotas = {"mode": "enforce", "default": {"producer_ids_rate": 0}, "producer_ids": {"max_throttle": "60s"}}
    with GatewayProcess(
        broker.bootstrap_servers(), quotas=quotas, settings={"drain_timeout": "10s"}
    ) as gateway:
        topic = create_topic(broker.bootstrap_servers(), "drain")
        with RawClient(gateway.bootstrap_servers) as waiting, RawClient(gateway.bootstrap_servers) as muted:
            # A record first, so that the broker is sure to have the partition; then wait for the next one.
            assert outcome(waiting.ask(produce(topic, 10))) == 0
            partition = {"partition": 0, "partition_max_bytes": 1000, "fetch_offset": 1}
            long_poll = {
                "max_wait_ms": 3000,
                "min_bytes": 1,
                "topics": [{"topic": topic, "partitions": [partition]}],
            }
            waiting.send(request(FETCH, 11, long_poll))
            assert outcome(muted.ask(produce(topic, 10, producer_id=700_001))) == 19
            time.sleep(0.3)
            began = time.monotonic()
            gateway.signal(signal.SIGTERM)
            assert muted.is_closed()
            assert time.monotonic() - began < 2
            assert decoded(FETCH, 11, waiting.frame())["error_code"] == 0
            assert waiting.is_closed()
            assert within(8, lambda: gateway.exit_code is not None)
            assert gateway.exit_code == 0


def test_sigterm_ends_in_time_although_a_client_reads_nothing(broker: Cluster) -> None:
    topic = create_topic(broker.bootstrap_servers(), "stuck", config={"max.message.bytes": "20000000"})
    with GatewayProcess(broker.bootstrap_servers(), settings={"drain_timeout": "1s"}) as gateway:
        with RawClient(gateway.bootstrap_servers) as client:
            for _ in range(3):
                assert outcome(client.ask(produce(topic, 9 * MB))) == 0
            partition = {"partition": 0, "partition_max_bytes": 95 * MB}
            body = {"max_bytes": 95 * MB, "topics": [{"topic": topic, "partitions": [partition]}]}
            client.send(request(FETCH, 12, body))
            time.sleep(1)
            began = time.monotonic()
            assert gateway.stop() == 0
            assert time.monotonic() - began < 5
        (stopped,) = gateway.log_events("stopped")
        assert stopped["connections_cut"] == 1


def test_a_broker_killed_in_mid_answer() -> None:
    with Cluster() as cluster, GatewayProcess(cluster.bootstrap_servers()) as gateway:
        topic = create_topic(cluster.bootstrap_servers(), "killed")
        with RawClient(gateway.bootstrap_servers) as client:
            # A broker that has just been told of a topic may not lead it yet.
            assert within(8, lambda: outcome(client.ask(produce(topic, 10))) == 0)
            partition = {"partition": 0, "partition_max_bytes": 1000, "fetch_offset": 1}
            body = {
                "max_wait_ms": 20_000,
                "min_bytes": 1,
                "topics": [{"topic": topic, "partitions": [partition]}],
            }
            client.send(request(FETCH, 11, body))
            time.sleep(0.5)
            cluster.node(1).kill()
            with pytest.raises(Closed):
                client.frame()
        metrics = gateway.metrics()
        assert metrics.value("pidgate_connections_closed_total", cause="upstream") == 1
        assert metrics.value("pidgate_upstream_failures_total") >= 1
        (line,) = [line for line in gateway.log_events("connection_closed") if line["cause"] == "upstream"]
        assert "1 requests in flight" in line["reason"]
        with RawClient(gateway.bootstrap_servers) as refused:
            refused.send(request(METADATA, 9, {"topics": []}))
            assert refused.is_closed()
        assert gateway.metrics().value("pidgate_upstream_failures_total", cause="refused") >= 1


@pytest.mark.slow
def test_a_gateway_killed_and_started_again_under_load(broker: Cluster) -> None:
    topic = create_topic(broker.bootstrap_servers(), "gateway-restart", partitions=3)
    with GatewayProcess(broker.bootstrap_servers()) as gateway:
        load = Load(
            bootstrap_servers=gateway.bootstrap_servers,
            topic=topic,
            records=600,
            records_per_s=60,
            partitions=3,
        )
        running = [ClientProcess.produce(client, load) for client in ("aiokafka", "confluent-kafka")]
        time.sleep(3)
        gateway.kill()
        gateway.start()
        time.sleep(2)
        assert gateway.stop() == 0
        gateway.start()
        journals = [client.wait() for client in running]
        raise_if_bad(check(journals, read_log(broker.bootstrap_servers(), topic), only_ours=True))
        assert [journal.count(Outcome.ACKNOWLEDGED) for journal in journals] == [600, 600]


def test_half_closed_by_a_real_client_program(broker: Cluster) -> None:
    """`printf ... | nc` style: everything is sent, the sending side is closed, then the answers are read."""
    with GatewayProcess(broker.bootstrap_servers()) as gateway:
        script = (
            "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
            "s.sendall(bytes.fromhex(sys.argv[2])); s.shutdown(socket.SHUT_WR);"
            "print(len(b''.join(iter(lambda: s.recv(65536), b''))))"
        )
        one = request(HEARTBEAT, 0, {"group_id": "g", "member_id": "m"})
        answered = subprocess.run(
            [sys.executable, "-c", script, str(gateway.port), (one * 20).hex()],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
        assert int(answered.stdout) == 20 * 10


def test_a_socket_that_is_reset_with_answers_on_the_way(broker: Cluster) -> None:
    with GatewayProcess(broker.bootstrap_servers()) as gateway:
        for _ in range(50):
            with RawClient(gateway.bootstrap_servers) as client:
                client.send(request(METADATA, 9, {"topics": []}) * 10)
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        with RawClient(gateway.bootstrap_servers) as client:
            assert client.call(METADATA, 9, {"topics": []})["brokers"]
        assert within(5, lambda: gateway.metrics().value("pidgate_connections") == 0)
        assert gateway.log_events("unexpected_error") == []
