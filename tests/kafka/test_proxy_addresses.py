"""No byte of a broker's real address reaches a client, whatever the client does.

A relay between client and gateway records what the gateway sends. Its ports are the gateway's own with another
loopback address in front, and the gateway advertises that address, so that every client goes through it.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from uuid import UUID

import pytest

from tests.kafka.conftest import DISTINCTIVE_HOST
from tests.support.clients.load import Load, Wish
from tests.support.clients.process import ClientProcess
from tests.support.frames import ONE_RECORD, record_batch
from tests.support.log_checks import raise_if_bad
from tests.support.raw import RawClient
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]

RELAY_HOST = "127.55.44.33"
NODE_IDS = (1, 5, 102)
"""As in the fixture `three_brokers`: with gaps."""


class Recorder:
    """Relays ports of RELAY_HOST to the same ports of 127.0.0.1 and keeps every byte that comes back."""

    def __init__(self, ports: Sequence[int], target_host: str = "127.0.0.1") -> None:
        self._ports = ports
        self._target_host = target_host
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self.streams: list[bytearray] = []
        """What was sent to each client connection."""
        self.ports_used: set[int] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        for port in self._ports:
            self._servers.append(
                await asyncio.start_server(self._relaying(port), RELAY_HOST, port, backlog=100)
            )

    def _relaying(
        self, port: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], "asyncio.Future[None]"]:
        def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> "asyncio.Future[None]":
            return asyncio.ensure_future(self._relay(port, reader, writer))

        return relay

    async def _relay(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ports_used.add(port)
        stream = bytearray()
        self.streams.append(stream)
        try:
            from_gateway, to_gateway = await asyncio.open_connection(self._target_host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, to_gateway, None), _copy(from_gateway, writer, stream))

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def found(self, needle: bytes) -> list[str]:
        """Every place where the needle was sent to a client, with its surroundings."""
        places = []
        for stream in self.streams:
            at = stream.find(needle)
            if at >= 0:
                places.append(bytes(stream[max(at - 60, 0) : at + 60]).hex(" ", 4))
        return places


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray | None) -> None:
    try:
        while data := await reader.read(65536):
            if record is not None:
                record += data
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@pytest.fixture(scope="module")
def scanned(three_brokers: Cluster) -> Iterator[tuple[str, Recorder, GatewayProcess]]:
    """(where clients connect, what they were sent, the gateway)."""
    with running(three_brokers) as found:
        yield found


@contextmanager
def running(cluster: Cluster) -> Iterator[tuple[str, Recorder, GatewayProcess]]:
    gateway = GatewayProcess(
        cluster.bootstrap_servers(), listener={"advertise": RELAY_HOST}, node_ids=NODE_IDS
    )
    node_ports = [gateway.first_node_port + node_id for node_id in NODE_IDS]
    with gateway, Recorder([gateway.port, *node_ports]) as recorder:
        yield f"{RELAY_HOST}:{gateway.port}", recorder, gateway


def assert_nothing_shown(cluster: Cluster, recorder: Recorder) -> None:
    assert recorder.streams
    assert recorder.found(RELAY_HOST.encode())
    assert recorder.found(DISTINCTIVE_HOST.encode()) == []
    for _, port in cluster.nodes.values():
        assert recorder.found(f":{port}".encode()) == []


def test_the_scan_finds_the_name_on_a_direct_connection(three_brokers: Cluster) -> None:
    host, port = three_brokers.nodes[5]
    with Recorder([port], host) as recorder, RawClient((RELAY_HOST, port)) as client:
        client.call(3, 12, {"topics": []})
        assert recorder.found(DISTINCTIVE_HOST.encode())


@pytest.mark.parametrize("client", ["aiokafka", "kafka-python", "confluent-kafka", "java"])
def test_producing_and_consuming_in_groups(
    three_brokers: Cluster,
    scanned: tuple[str, Recorder, GatewayProcess],
    topic_name: TopicName,
    client: str,
) -> None:
    servers, recorder, gateway = scanned
    topic = create_topic(servers, topic_name("scan"), partitions=6, replication_factor=3)
    journal = ClientProcess.produce(
        client, Load(bootstrap_servers=servers, topic=topic, records=60, partitions=6)
    ).wait()
    log = read_log(three_brokers.bootstrap_servers(), topic)
    raise_if_bad(check([journal], log, only_ours=True))
    protocols = {"confluent-kafka": ["classic", "consumer"], "java": ["consumer", "share"]}
    for protocol in protocols.get(client, ["classic"]):
        wish = Wish(
            bootstrap_servers=servers, topic=topic, group=f"{topic}-{protocol}", records=60, protocol=protocol
        )
        read = ClientProcess.consume(client, wish).records()
        assert sorted(read, key=lambda record: (record.partition, record.offset)) == log
    assert recorder.ports_used >= {gateway.first_node_port + node_id for node_id in NODE_IDS}
    assert_nothing_shown(three_brokers, recorder)


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka"])
def test_transactions(
    three_brokers: Cluster,
    scanned: tuple[str, Recorder, GatewayProcess],
    topic_name: TopicName,
    client: str,
) -> None:
    servers, recorder, _ = scanned
    topic = create_topic(servers, topic_name("transactions"), partitions=3, replication_factor=3)
    load = Load(
        bootstrap_servers=servers, topic=topic, records=60, partitions=3, transaction_size=20, abort_every=3
    )
    journal = ClientProcess.produce(client, load).wait()
    log = read_log(three_brokers.bootstrap_servers(), topic, isolation="read_committed")
    verdict = check([journal], log, only_ours=True)
    raise_if_bad(verdict)
    assert verdict.in_log == 40
    assert_nothing_shown(three_brokers, recorder)


def test_the_admin_tools(three_brokers: Cluster, scanned: tuple[str, Recorder, GatewayProcess]) -> None:
    servers, recorder, _ = scanned
    bootstrap = ("--bootstrap-server", servers)
    cluster = three_brokers.tools.run("org.apache.kafka.tools.ClusterTool", "list-endpoints", *bootstrap)
    assert RELAY_HOST in cluster.stdout
    configs = three_brokers.tools.run(
        "kafka.admin.ConfigCommand", *bootstrap, "--entity-type", "brokers", "--entity-name", "5", "--all",
        "--describe",
    )  # fmt: skip
    assert "num.io.threads" in configs.stdout
    quorum = three_brokers.tools.run(
        "org.apache.kafka.tools.MetadataQuorumCommand", *bootstrap, "describe", "--replication"
    )
    assert "Leader" in quorum.stdout
    assert DISTINCTIVE_HOST not in cluster.stdout + configs.stdout + quorum.stdout
    assert_nothing_shown(three_brokers, recorder)


def test_a_quorum_is_described_without_its_listeners(
    three_brokers: Cluster, scanned: tuple[str, Recorder, GatewayProcess]
) -> None:
    """Controllers listen there: Java's admin asks for version 2, which shows them (KIP-853)."""
    servers, recorder, _ = scanned
    described = []
    for address in (three_brokers.bootstrap_servers().split(",")[0], servers):
        with RawClient(address) as client:
            asked = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
            described.append(client.call(DESCRIBE_QUORUM, 2, {"topics": [asked]}))
    direct, through = described
    assert [node["listeners"] for node in through["nodes"]] == [[]] * len(NODE_IDS)
    assert all(node["listeners"] for node in direct["nodes"])
    assert sorted(node["node_id"] for node in through["nodes"]) == list(NODE_IDS)
    (topic,) = through["topics"]
    assert sorted(voter["replica_id"] for voter in topic["partitions"][0]["current_voters"]) == list(NODE_IDS)
    status = three_brokers.tools.run(
        "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", servers, "describe", "--status"
    )
    assert "LeaderId:" in status.stdout
    assert_nothing_shown(three_brokers, recorder)


PRODUCE, FETCH, METADATA, SHARE_FETCH, SHARE_ACKNOWLEDGE = 0, 1, 3, 78, 79
DESCRIBE_QUORUM = 55
NOT_LEADER = 6
HINTING = [
    (PRODUCE, 10),
    (PRODUCE, 12),
    (PRODUCE, 13),
    (FETCH, 16),
    (FETCH, 18),
    (SHARE_FETCH, 1),
    (SHARE_FETCH, 2),
]


@pytest.fixture(scope="module")
def known_everywhere(three_brokers: Cluster) -> tuple[str, UUID, int]:
    """(name, id, leader) of a topic of one replica that every broker has heard of."""
    topic = create_topic(three_brokers.bootstrap_servers(), "elsewhere")
    seen = set()
    for address in three_brokers.nodes.values():
        for _ in range(100):
            with RawClient(address) as client:
                (found,) = client.call(METADATA, 12, {"topics": [{"name": topic}]})["topics"]
            if found["partitions"]:
                seen.add((topic, UUID(found["topic_id"]), found["partitions"][0]["leader_id"]))
                break
            time.sleep(0.1)
    (one,) = seen
    return one


@pytest.mark.parametrize(("api_key", "version"), HINTING)
def test_hints_at_new_leaders(
    three_brokers: Cluster,
    scanned: tuple[str, Recorder, GatewayProcess],
    known_everywhere: tuple[str, UUID, int],
    api_key: int,
    version: int,
) -> None:
    """KIP-951, KIP-932: a request that reaches another broker is told the leader's address, ours."""
    _, recorder, gateway = scanned
    topic, topic_id, leader = known_everywhere
    partition = {
        "index": 0,
        "partition": 0,
        "partition_index": 0,
        "records": record_batch(-1, -1, -1, records=ONE_RECORD),
        "partition_max_bytes": 1000,
    }
    topics = [{"name": topic, "topic_id": topic_id, "partitions": [partition]}]
    body = {
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{**topics[0], "partition_data": [partition]}],
        "topics": topics,
        "max_bytes": 1000,
        "max_wait_ms": 100,
        "group_id": topic,
        "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "max_records": 10,
        "batch_size": 10,
    }
    for node_id in set(NODE_IDS) - {leader}:
        with RawClient((RELAY_HOST, gateway.first_node_port + node_id)) as client:
            answer = client.call(api_key, version, body)
            (answered,) = answer["responses"]
            (outcome,) = answered.get("partitions") or answered["partition_responses"]
            assert outcome["error_code"] == NOT_LEADER
            shown = [(node["node_id"], node["host"], node["port"]) for node in answer["node_endpoints"]]
            assert shown == [(leader, RELAY_HOST, gateway.first_node_port + leader)]
    assert_nothing_shown(three_brokers, recorder)
