"""Every type of event, out of the topic of a real broker: made by real clients' traffic, with the right values."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaProducer

from pidgate.events.definitions import (
    ConfigEvent,
    ConnectionEvent,
    DecisionEvent,
    Event,
    IdUsageEvent,
    InitProducerIdEvent,
    LifecycleEvent,
    ProduceErrorEvent,
    RefusalOutcomeEvent,
    TopologyEvent,
)
from pidgate.events.reading import from_json
from tests.support.clients.load import Load, Login
from tests.support.clients.process import ClientProcess
from tests.support.frames import ONE_RECORD, framed, produce_request, record_batch
from tests.support.raw import RawClient, decoded, request
from tests.support.topic_values import every_value
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

_E = TypeVar("_E", bound=Event)
SASL_HANDSHAKE, SASL_AUTHENTICATE, INIT_PRODUCER_ID = 17, 36, 22
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
RECORDS = 30
FIRST_ATTEMPTS = 3
"""A rate of 2 a window admits two ids at once, and a third one into debt."""


class Story:
    """What was told in the course of one gateway's life."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def of(self, kind: type[_E], **fields: object) -> list[_E]:
        found = [event for event in self.events if isinstance(event, kind)]
        return [event for event in found if all(getattr(event, key) == fields[key] for key in fields)]

    def one(self, kind: type[_E], **fields: object) -> _E:
        (event,) = self.of(kind, **fields)
        return event


async def every_event(bootstrap_servers: str, topic: str) -> list[Event]:
    """All that is in the topic now, in the order in which it was told."""
    values = await every_value(bootstrap_servers, topic)
    return sorted(map(from_json, values), key=lambda event: event.seq)


def sasl_producer(gateway: GatewayProcess, client_id: str, **more: object) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=gateway.bootstrap_servers, client_id=client_id, security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN", sasl_plain_username="alice", sasl_plain_password="alice-secret", **more,
    )  # fmt: skip


async def steady(gateway: GatewayProcess, topic: str) -> None:
    """One producer, thirty records over three partitions."""
    async with sasl_producer(gateway, "steady", enable_idempotence=True) as producer:
        for number in range(RECORDS):
            await producer.send_and_wait(topic, b"%d" % number, partition=number % 3)


async def one_each(gateway: GatewayProcess, topic: str, producers: int) -> None:
    """As many new ids at a time, until each of them has come through."""

    async def one(number: int) -> None:
        async with sasl_producer(gateway, f"burst-{number}", enable_idempotence=True) as producer:
            await producer.send_and_wait(topic, b"x", partition=0)

    await asyncio.gather(*(one(number) for number in range(producers)))


async def transaction(gateway: GatewayProcess, topic: str) -> None:
    async with (
        sasl_producer(gateway, "payments", transactional_id="payments-7") as producer,
        producer.transaction(),
    ):
        await producer.send_and_wait(topic, b"x", partition=1)


def out_of_order(gateway: GatewayProcess, topic: str) -> int:
    """bob's id: its first batch is fine, the next one leaves a gap. Returns the id."""
    with RawClient(("127.0.0.1", gateway.first_node_port + 1)) as client:
        client.ask(request(18, 3))
        client.ask(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
        client.ask(request(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0bob\0bob-secret"}))
        asked = {
            "transactional_id": None,
            "transaction_timeout_ms": 0,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        producer_id = int(client.call(INIT_PRODUCER_ID, 4, asked)["producer_id"])
        for sequence, code in ((0, 0), (7, OUT_OF_ORDER_SEQUENCE_NUMBER), (9, OUT_OF_ORDER_SEQUENCE_NUMBER)):
            batch = record_batch(producer_id, base_sequence=sequence, records=ONE_RECORD)
            frame = produce_request(9, [(topic, [(2, batch)])], client_id="raw")
            answer = decoded(0, 9, client.ask(framed(frame)))
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == code
    return producer_id


class Traffic:
    """The names of one run, and what it left in the topic."""

    def __init__(self, topic: str, story: Story, raw_id: int) -> None:
        self.topic = topic
        self.story = story
        self.raw_id = raw_id


@pytest.fixture(scope="module")
def traffic(sasl_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traffic]:
    direct = sasl_cluster.bootstrap_servers()
    topic, events_topic = create_topic(direct, "told-of", partitions=3), "__events-of-traffic"
    password: Path = tmp_path_factory.mktemp("own") / "password"
    password.write_text("admin-secret")
    quotas = {
        "mode": "enforce",
        "producer_ids": {"window": "4s", "max_throttle": "1s"},
        "users": {"alice": {"producer_ids_rate": 2, "owner": "team-a"}},
    }
    sasl = {"mechanism": "PLAIN", "username": "admin", "password_file": str(password)}
    settings = {
        "events": {"topic": events_topic, "replication_factor": 1},
        "own_client": sasl,
        "cluster": {
            "name": "told",
            "bootstrap_servers": [sasl_cluster.bootstrap_servers(SASL_PLAINTEXT)],
        },
    }
    with GatewayProcess(
        sasl_cluster.bootstrap_servers(SASL_PLAINTEXT), quotas=quotas, settings=settings
    ) as gateway:
        asyncio.run(steady(gateway, topic))
        asyncio.run(one_each(gateway, topic, FIRST_ATTEMPTS + 1))
        asyncio.run(transaction(gateway, topic))
        raw_id = out_of_order(gateway, topic)
        login = Login(username="alice", password="alice-secret", mechanism="SCRAM-SHA-256")
        load = Load(bootstrap_servers=gateway.bootstrap_servers, topic=topic, records=3, login=login)
        ClientProcess.produce("kafka-python", load).wait()
        time.sleep(1.1)  # the cluster's shape is looked at once a second
        assert gateway.stop() == 0
        yield Traffic(topic, Story(asyncio.run(every_event(direct, events_topic))), raw_id)


def test_nothing_is_missing_and_everything_says_who_told_it(traffic: Traffic) -> None:
    events = traffic.story.events
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len({(event.gateway_id, event.incarnation) for event in events}) == 1
    assert {event.type for event in events} == {
        "decision", "refusal_outcome", "id_usage", "init_producer_id", "produce_error", "connection", "config",
        "lifecycle", "topology",
    }  # fmt: skip
    now_ms = time.time_ns() // 1_000_000
    assert all(now_ms - 300_000 < event.wall_time_ms <= now_ms for event in events)


def test_a_steady_producer(traffic: Traffic) -> None:
    story = traffic.story
    given = story.one(InitProducerIdEvent, client_id="steady")
    assert (given.user, given.error, given.transactional, given.answered_epoch) == ("alice", 0, False, 0)
    mine = given.answered_producer_id
    decided = story.one(DecisionEvent, producer_id=mine)
    assert (decided.decision, decided.reason, decided.user) == ("admit", "first_seen", "alice")
    assert (decided.topic, decided.base_sequence, decided.request_partitions) == (traffic.topic, 0, 1)
    assert decided.tokens_before is not None
    assert decided.token_units == 4_000 * 1_000
    assert decided.tokens_after == decided.tokens_before - decided.token_units
    usages = story.of(IdUsageEvent, producer_id=mine)
    assert sum(usage.records for usage in usages) == RECORDS
    assert sum(usage.requests for usage in usages) == sum(usage.batches for usage in usages) == RECORDS
    assert {(usage.partitions, usage.user, usage.client_id) for usage in usages} == {(3, "alice", "steady")}
    assert all(given.wall_time_ms - 50 <= usage.first_ms <= usage.last_ms for usage in usages)
    assert all(usage.bytes > 60 * usage.records for usage in usages)


def test_who_was_refused_came_through_in_the_end(traffic: Traffic) -> None:
    story = traffic.story
    refused = {event.producer_id for event in story.of(DecisionEvent, decision="refuse")}
    assert refused
    outcomes = story.of(RefusalOutcomeEvent, outcome="admitted")
    assert {event.producer_id for event in outcomes} == refused
    for outcome in outcomes:
        refusals = story.of(DecisionEvent, producer_id=outcome.producer_id, decision="refuse")
        (admitted,) = story.of(DecisionEvent, producer_id=outcome.producer_id, decision="admit")
        assert outcome.attempts == len(refusals)
        assert outcome.waited_ms == admitted.waited_ms
        assert abs(admitted.wall_time_ms - refusals[0].wall_time_ms - outcome.waited_ms) < 100
        assert all(refusal.throttle_time_ms > 0 for refusal in refusals)


def test_a_transaction(traffic: Traffic) -> None:
    story = traffic.story
    given = story.of(InitProducerIdEvent, client_id="payments")[-1]
    assert given.transactional
    decided = story.one(DecisionEvent, producer_id=given.answered_producer_id)
    assert (decided.transactional, decided.decision, decided.reason) == (True, "admit", "observe")
    assert decided.transactional_id_hash is not None
    assert decided.transactional_id_hash.startswith("h:")


def test_errors_of_the_broker(traffic: Traffic) -> None:
    error = traffic.story.one(ProduceErrorEvent)
    assert (error.producer_id, error.code, error.count) == (traffic.raw_id, OUT_OF_ORDER_SEQUENCE_NUMBER, 2)
    assert (error.user, error.client_id, error.node_id) == ("bob", "raw", 1)
    usage = traffic.story.one(IdUsageEvent, producer_id=traffic.raw_id)
    assert (usage.requests, usage.records, usage.connections) == (3, 3, 1)
    given = traffic.story.one(InitProducerIdEvent, user="bob")
    assert (given.answered_producer_id, given.node_id) == (traffic.raw_id, 1)


def test_connections_with_their_mechanism_and_software(traffic: Traffic) -> None:
    story = traffic.story
    opened, closed = story.of(ConnectionEvent, phase="open"), story.of(ConnectionEvent, phase="close")
    assert {event.connection_id for event in opened} == {event.connection_id for event in closed}
    assert all(event.requests > 0 and event.bytes_in > 0 and event.bytes_out > 0 for event in closed)
    raw = story.one(ConnectionEvent, phase="close", user="bob")
    assert (raw.software_name, raw.software_version, raw.close_reason) == ("raw", "1", "client")
    assert (raw.principal_mechanism, raw.node_id, raw.requests, raw.address) == ("PLAIN", 1, 7, "127.0.0.1")
    scram = [event for event in closed if event.principal_mechanism == "SCRAM-SHA-256"]
    assert scram
    assert {(event.user, event.software_name) for event in scram} == {("alice", "kafka-python")}


def test_the_quotas_and_the_shape_of_the_cluster(traffic: Traffic, sasl_cluster: Cluster) -> None:
    story = traffic.story
    config = story.one(ConfigEvent)
    (alice,) = config.quotas
    assert (config.mode, config.window_ms, config.quota_version) == ("enforce", 4_000, 1)
    assert (alice.user, alice.rate_milli, alice.owner) == ("alice", 2_000, "team-a")
    assert {event.quota_version for event in story.of(DecisionEvent)} == {1}
    phases = [event.phase for event in story.of(LifecycleEvent)]
    assert (phases[0], phases[-1]) == ("start", "stop")
    topics = {topic.topic: topic for event in story.of(TopologyEvent) for topic in event.topics}
    assert (topics[traffic.topic].leaders, topics[traffic.topic].replicas) == ([1, 1, 1], [[1], [1], [1]])
    (broker,) = story.of(TopologyEvent)[-1].brokers
    assert f"{broker.host}:{broker.port}" == sasl_cluster.bootstrap_servers(SASL_PLAINTEXT)
    assert story.of(DecisionEvent)[-1].cluster not in ("", "told")


def crash_loop(gateway: GatewayProcess, topic: str, times: int) -> None:
    """One client that connects, asks for an id, sends one record and is gone, again and again."""
    asked = {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1}
    for _ in range(times):
        with RawClient(("127.0.0.1", gateway.first_node_port + 1)) as client:
            producer_id = int(client.call(INIT_PRODUCER_ID, 4, asked)["producer_id"])
            frame = produce_request(
                9, [(topic, [(0, record_batch(producer_id, records=ONE_RECORD))])], client_id="raw"
            )
            client.ask(framed(frame))


def test_a_crash_loop_redacted_and_summed(cluster: Cluster, topic_name: Callable[[str], str]) -> None:
    times, admitted = 120, 11
    topic = create_topic(cluster.bootstrap_servers(), topic_name("crashes"))
    events_topic = topic_name("__events-of-a-crash-loop")
    settings = {
        "events": {
            "topic": events_topic, "replication_factor": 1, "redact": ["user", "client_id", "address"],
        },
    }  # fmt: skip
    quotas = {
        "mode": "enforce",
        "default": {"producer_ids_rate": admitted - 1},
        "producer_ids": {"window": "10h"},
    }
    with GatewayProcess(cluster.bootstrap_servers(), quotas=quotas, settings=settings) as gateway:
        crash_loop(gateway, topic, times)
        assert gateway.stop() == 0
    story = Story(asyncio.run(every_event(cluster.bootstrap_servers(), events_topic)))

    for incarnation in {event.incarnation for event in story.events}:
        numbers = [event.seq for event in story.events if event.incarnation == incarnation]
        assert numbers == list(range(1, len(numbers) + 1)), incarnation
    traffic = [event for event in story.events if event.type not in ("config", "lifecycle", "topology")]
    assert {event.user[:2] for event in traffic} == {event.client_id[:2] for event in traffic} == {"h:"}

    assert sum(event.count for event in story.of(InitProducerIdEvent)) == times
    for phase in ("open", "close"):
        assert sum(event.count for event in story.of(ConnectionEvent, phase=phase)) == times
    decided = story.of(DecisionEvent)
    refused = [event for event in decided if event.decision == "refuse"]
    assert len(decided) - len(refused) == len(story.of(IdUsageEvent)) == admitted
    assert 0 < len(refused) <= times - admitted
    assert max(event.count for event in story.of(ConnectionEvent)) > 1
    assert len(traffic) < 2 * times
