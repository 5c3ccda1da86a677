"""The model broker of the refusal tests is the real one: the same frames, the same answers, the same log.

Random schedules are played in the model with real producer ids and a real topic; then everything that its brokers
were handed is sent to a real broker, byte by byte, in the same order. (Leaders do not move here: what the model's
broker turned away as not its leader's is left out.) Read back with librdkafka.
"""

from __future__ import annotations

import random
import socket
import struct

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from pidgate.sandbox.kafka import Cluster
from pidgate.sandbox.log_checker import read_log
from pidgate.sandbox.topics import create_topic
from tests.simulator.clients.batches import ModelViolation
from tests.unit.gateway.model.steps import apply, random_setup, random_steps
from tests.unit.gateway.model.wire import BY_ID, NAMED, NOT_LEADER, Outcome, read_answer
from tests.unit.gateway.model.world import Sent, World

pytestmark = pytest.mark.kafka

SCHEDULES = 60
INIT_PRODUCER_ID = 22


class Wire:
    """One connection to the broker: framed requests out, framed answers in, in order."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, port = bootstrap_servers.split(",")[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=30)

    def ask(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        prefix = self._read(4)
        return prefix + self._read(struct.unpack(">i", prefix)[0])

    def _read(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = self._socket.recv(length - len(parts))
            assert part, "the broker closed the connection"
            parts += part
        return bytes(parts)

    def new_producer_id(self) -> int:
        body = struct.pack(">hhihhi", INIT_PRODUCER_ID, 0, 1, -1, -1, 60_000)
        answer = self.ask(struct.pack(">i", len(body)) + body)
        error_code, producer_id = struct.unpack_from(">hq", answer, 12)
        assert error_code == 0
        return int(producer_id)

    def close(self) -> None:
        self._socket.close()


def _topic_id(bootstrap_servers: str, topic: str) -> bytes:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(timeout=30).topic_id
    high, low = described.get_most_significant_bits(), described.get_least_significant_bits()
    return struct.pack(">qq", high, low)


def _played(number: int, wire: Wire, topic: str, topic_id: bytes) -> World:
    """The schedule in the model, to its end."""
    chooser = random.Random(number)
    setup = random_setup(chooser, routes=((0, 0),))
    producer_ids = [wire.new_producer_id() for _ in setup.producers]
    world = setup.world(
        producer_ids=producer_ids, name=f"s{number}-p", topic=topic.encode(), topic_id=topic_id
    )
    try:
        for step in random_steps(world, chooser, chooser.randint(15, 50)):
            apply(world, step)
        world.drain()
    except ModelViolation as violation:
        pytest.fail(f"schedule {number}: {violation}\n{world.story()}")
    return world


def _replayed(wire: Wire, sent: Sent, expected: list[Outcome]) -> list[Outcome] | None:
    """The real broker's answer; None for what the model's broker was not the leader of."""
    if any(error_code == NOT_LEADER for _, error_code in expected):
        return None
    version = struct.unpack_from(">h", sent.frame, 6)[0]
    assert version in (NAMED, BY_ID)
    correlation_id, outcomes, _ = read_answer(wire.ask(sent.frame), version)
    assert correlation_id == sent.correlation_id
    return outcomes


def test_a_real_broker_answers_and_holds_what_the_model_says(cluster: Cluster) -> None:
    bootstrap_servers = cluster.bootstrap_servers()
    topic = create_topic(bootstrap_servers, "refusal-schedules", 2)
    topic_id = _topic_id(bootstrap_servers, topic)
    wire = Wire(bootstrap_servers)
    wanted: dict[int, list[bytes]] = {0: [], 1: []}
    compared = answered_45 = 0
    try:
        for number in range(SCHEDULES):
            world = _played(number, wire, topic, topic_id)
            skipped = False
            for sent, expected in world.taken:
                outcomes = _replayed(wire, sent, expected)
                skipped |= outcomes is None and len(expected) > 1
                if outcomes is not None and not skipped:
                    # A real broker answers for partitions in an order of its own.
                    assert dict(outcomes) == dict(expected), f"schedule {number}\n{world.story()}"
                    compared += 1
                    answered_45 += any(error_code == 45 for _, error_code in outcomes)
            if not skipped:
                _want(world, wanted)
    finally:
        wire.close()
    print(f"{compared} requests compared, {answered_45} of them out of order")
    assert compared > 3 * SCHEDULES
    names = {value.split(b"|")[0] for values in wanted.values() for value in values}
    for partition, values in wanted.items():
        held = [
            record.value for record in read_log(bootstrap_servers, topic) if record.partition == partition
        ]
        assert [value for value in held if value.split(b"|")[0] in names] == values


def _want(world: World, wanted: dict[int, list[bytes]]) -> None:
    """The records that the log must hold after this world, in order."""
    by_id = {producer.producer_id: producer for producer in world.producers}
    for partition, log in sorted(world.broker.log.items()):
        for producer_id, number in log:
            producer = by_id[producer_id]
            records = producer.partitions[partition].batches[number].records
            wanted[partition] += [b"%s|%d|%d" % (producer.name.encode(), partition, number)] * records
