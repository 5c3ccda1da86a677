"""What model clients send through a simulated gateway is sent through a real one, before a real broker.

Pipelines of Java, librdkafka, kafka-python and franz-go, of ids that are refused: the same requests in the same order,
each behind the answers that its client had read by then, cut where they were cut. Every answer's error codes are the
same, and so are the logs, producer by producer. Producer ids, the topic and the batches' times are mapped.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from uuid import UUID

import crc32c
import pytest

from pidgate.cli.admin_address import of_text
from pidgate.cli.admin_client import Gateway as AdminClient
from pidgate.gateway.config.local_token import token_of
from pidgate.load.connection import ConnectionLost
from pidgate.protocol.headers import peek_request
from tests.simulator.brokers.batches import BatchHead, read_batch
from tests.simulator.brokers.wire import read_produce
from tests.simulator.clients import frames
from tests.simulator.fleet import quotas_config
from tests.simulator.gateway import PORT
from tests.simulator.recording import PARTITIONS, Event, Recording, recorded, scripted
from tests.simulator.story import setting
from tests.simulator.world import TOPIC
from tests.support.broker_logs import fetched, whole_batches
from tests.support.raw import RawClient
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

PRODUCE, INIT_PRODUCER_ID = 0, 22
REFUSED = 19
AT_ONCE = 4
"""Each with a gateway of its own."""
PROCESSED_S = 0.03
"""Until a gateway has read what was sent, before its connection is reset."""
BETWEEN_CLIENTS_S = 0.005
"""Two connections' requests are read in the order of sending."""
_TIMES = struct.Struct(">qqq")

Log = dict[int, list[tuple[int, ...]]]
"""By producer id: epoch, base sequence and records of its batches, in order."""


class Replay:
    """One recording, played to a gateway. Times between events are as they were, or longer: never shorter."""

    def __init__(self, recording: Recording, gateway: GatewayProcess, topic: bytes, topic_id: bytes) -> None:
        self.recording, self.gateway = recording, gateway
        self.ids: dict[int, int] = {}
        self.codes: Counter[int] = Counter()
        self._topic, self._topic_id = topic, topic_id
        self._asked: dict[str, dict[int, bytes]] = {}
        self._connections: dict[str, RawClient] = {}
        self._last = ""

    def play(self) -> None:
        """Raise AssertionError where an answer is another one."""
        late_s = time.monotonic() - self.recording.events[0].at_s
        try:
            for event in self.recording.events:
                time.sleep(max(0.0, event.at_s + late_s - time.monotonic()))
                self._happens(event)
                late_s = max(late_s, time.monotonic() - event.at_s)
        finally:
            for connection in self._connections.values():
                connection.close()

    def _happens(self, event: Event) -> None:
        if event.is_enforced is not None:
            self._set_mode("enforce" if event.is_enforced else "observe")
        elif event.is_end:
            self._ends(event)
        elif event.is_answer:
            self._compare(event)
        else:
            self._send(event)

    def _set_mode(self, mode: str) -> None:
        address = of_text(f"127.0.0.1:{self.gateway.admin_port}", None)
        client = AdminClient(address, token_of(self.gateway.admin_port))
        change = {"action": "set", "setting": "mode", "user": None, "value": mode}
        client.post("/v1/quotas/changes", {"changes": [change], "set_by": "test"})

    def _send(self, event: Event) -> None:
        if event.link != self._last:
            time.sleep(BETWEEN_CLIENTS_S)
        self._last = event.link
        connection = self._connections.get(event.link)
        if connection is None:
            # The bootstrap port is the one before the first node's.
            port = (
                self.gateway.port
                if event.port == PORT
                else self.gateway.first_node_port + event.port - PORT - 1
            )
            connection = self._connections[event.link] = RawClient(("127.0.0.1", port))
        asked = self._asked.setdefault(event.link, {})
        asked[peek_request(event.frame, 0, len(event.frame)).correlation_id] = event.frame
        frame = self._mapped(event.frame)
        connection.send(struct.pack(">i", len(frame)) + frame)

    def _ends(self, event: Event) -> None:
        connection = self._connections.pop(event.link, None)
        if connection is None:
            return
        if event.is_answer:
            with pytest.raises(ConnectionLost):
                connection.frame()
        else:
            time.sleep(PROCESSED_S)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    def _mapped(self, frame: bytes) -> bytes:
        """Return the request with the topic, the ids and the time as they are here."""
        found = frame.replace(TOPIC.encode(), self._topic).replace(self.recording.topic_id, self._topic_id)
        if frame[:2] == INIT_PRODUCER_ID.to_bytes(2, "big"):
            for here, there in self.ids.items():
                found = found.replace(here.to_bytes(8, "big"), there.to_bytes(8, "big"))
        if frame[:2] != b"\0\0":
            return found
        head = peek_request(found, 0, len(found))
        for _, partitions in read_produce(found, head).topics:
            for _, raw in partitions:
                assert raw is not None
                found = found.replace(raw, self._batch(raw))
        return found

    def _batch(self, raw: bytes) -> bytes:
        head = read_batch(raw)
        assert isinstance(head, BatchHead)
        made = bytearray(raw)
        now_ms = time.time_ns() // 1_000_000
        _TIMES.pack_into(made, 27, now_ms, now_ms, self.ids[head.producer_id])
        struct.pack_into(">I", made, 17, crc32c.crc32c(bytes(made[21:])))
        return bytes(made)

    def _compare(self, event: Event) -> None:
        found = self._connections[event.link].frame()
        assert found[:4] == event.frame[:4], "another request's answer"
        asked = self._asked[event.link].pop(int.from_bytes(found[:4], "big"))
        head = peek_request(asked, 0, len(asked))
        if head.api_key == INIT_PRODUCER_ID:
            expected_id, got_id = (_identity(frame, head.api_version) for frame in (event.frame, found))
            assert got_id[0] == expected_id[0]
            self.ids[expected_id[1]] = got_id[1]
        elif head.api_key == PRODUCE:
            expected, got = (_outcomes(frame, head.api_version) for frame in (event.frame, found))
            assert got == expected, f"{event.at_s:.4f} {event.link}"
            self.codes.update(code for _, code in got)


def _identity(frame: bytes, version: int) -> tuple[int, int]:
    found = frames.read(INIT_PRODUCER_ID, version, frame)
    return found.error_code, found.producer_id


def _outcomes(frame: bytes, version: int) -> list[tuple[int, int]]:
    return sorted((one.partition, one.error_code) for one in frames.read_produce(frame, version)[0])


def _fit(seeds: Iterator[int], count: int) -> list[Recording]:
    """Return the first recordings that can be played."""
    found: list[Recording] = []
    while len(found) < count:
        recording = recorded(scripted(next(seeds)))
        if recording.is_fit:
            found.append(recording)
    return found


def _played(cluster: Cluster, recording: Recording) -> Counter[int]:
    servers = cluster.bootstrap_servers()
    # As long as the model's: it takes its place in the frames.
    name = f"r{recording.schedule.seed:04d}"
    assert len(name) == len(TOPIC)
    create_topic(servers, name, PARTITIONS)
    with ExitStack() as stack:
        gateway = GatewayProcess(servers, quotas=quotas_config(recording.schedule.setup.quotas))
        gateway.config["admin"]["writable"] = True
        stack.enter_context(gateway)
        direct = stack.enter_context(RawClient(servers, timeout_s=30))
        found = direct.call(3, 12, {"topics": [{"topic_id": UUID(int=0), "name": name}]})
        topic_id = UUID(str(found["topics"][0]["topic_id"])).bytes
        while direct.call(INIT_PRODUCER_ID, 1, {"transactional_id": None, "transaction_timeout_ms": 1})[
            "error_code"
        ]:
            time.sleep(0.1)
        replay = Replay(recording, gateway, name.encode(), topic_id)
        try:
            replay.play()
            time.sleep(PROCESSED_S)
            for partition in range(PARTITIONS):
                assert _real_log(direct, name, partition) == _model_log(replay, partition)
        except AssertionError as error:
            error.add_note(setting(recording.schedule))
            raise
        return replay.codes


def _model_log(replay: Replay, partition: int) -> Log:
    return _by_producer(
        (replay.ids[entry.producer_id], entry.epoch, entry.base_sequence, entry.records)
        for entry in replay.recording.logs[partition]
    )


def _real_log(client: RawClient, topic: str, partition: int) -> Log:
    heads: list[BatchHead] = []
    while records := fetched(client, topic, partition, sum(head.records for head in heads)).records:
        for raw in whole_batches(records):
            head = read_batch(raw)
            assert isinstance(head, BatchHead)
            heads.append(head)
    return _by_producer((head.producer_id, head.epoch, head.base_sequence, head.records) for head in heads)


def _by_producer(batches: Iterable[tuple[int, int, int, int]]) -> Log:
    found: Log = {}
    for producer_id, *place in batches:
        found.setdefault(producer_id, []).append(tuple(place))
    return found


@pytest.mark.parametrize(
    ("first", "count"), [(1, 4), pytest.param(100, 200, marks=pytest.mark.nightly)], ids=["4", "200"]
)
def test_a_real_gateway_does_with_model_clients_what_the_simulated_one_does(
    cluster: Cluster, first: int, count: int
) -> None:
    recordings = _fit(itertools.count(first), count)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        codes = sum(threads.map(lambda one: _played(cluster, one), recordings), Counter[int]())
    print("error codes compared:", dict(codes))
    assert codes[REFUSED] > 2 * count, "the gateways had something to refuse"
    assert codes[0] > 2 * count, "and something to let pass"


def test_a_gateway_with_another_quota_is_noticed(cluster: Cluster) -> None:
    (recording,) = _fit(itertools.count(55), 1)
    quotas = replace(recording.schedule.setup.quotas, rate=20, burst=1.0)
    recording.schedule = replace(recording.schedule, setup=replace(recording.schedule.setup, quotas=quotas))
    with pytest.raises(AssertionError):
        _played(cluster, recording)
