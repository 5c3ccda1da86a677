"""The gateway's own topic behind a real gateway: hidden in lists, refused where it is asked for, never written."""

import asyncio
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError as AiokafkaNotAuthorized

from pidgate.protocol import codec
from tests.support.frames import framed, produce_request, record_batch
from tests.support.raw import RawClient, decoded
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST, OLDEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]

PRODUCE, FETCH, METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 0, 1, 3, 19, 20, 37
LIST_OFFSETS, OFFSET_FETCH, FIND_COORDINATOR, ALTER_CONFIGS = 2, 9, 10, 44
CONSUMER_GROUP_HEARTBEAT, DESCRIBE_TOPIC_PARTITIONS = 68, 75
REFUSED = 29
OWN = "__pidgate_events"
QUOTAS = "__pidgate_events_quotas"
"""The other one; the gateway makes it."""
TOPIC_RESOURCE = 2
MARKER = b"a client's own words"
RECORDS = bytes([2 * (6 + len(MARKER)), 0, 0, 0, 1, 2 * len(MARKER)]) + MARKER + b"\x00"


@pytest.fixture(scope="module", params=["newest", "oldest"])
def broker(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A broker that makes the topics it is asked for, with the own topic and one that looks like it."""
    version = NEWEST if request.param == "newest" else OLDEST
    with Cluster(ClusterSpec(version=version, properties={"auto.create.topics.enable": "true"})) as running:
        create_topic(running.bootstrap_servers(), OWN, partitions=3)
        create_topic(running.bootstrap_servers(), f"us.{OWN}", partitions=2)
        yield running


@pytest.fixture(scope="module")
def gateway(broker: Cluster) -> Iterator[GatewayProcess]:
    settings = {"events": {"enabled": True, "topic": OWN, "replication_factor": 1}}
    with GatewayProcess(broker.bootstrap_servers(), settings=settings) as running:
        yield running


def id_of(broker: Cluster, topic: str) -> UUID:
    with RawClient(broker.bootstrap_servers()) as client:
        answer = client.call(METADATA, 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
    return UUID(answer["topics"][0]["topic_id"])


@pytest.fixture(scope="module")
def own_id(broker: Cluster) -> UUID:
    return id_of(broker, OWN)


def listed(address: str, version: int) -> dict[str | None, dict[str, Any]]:
    with RawClient(address) as client:
        topics = client.call(METADATA, version, {"topics": [] if version == 0 else None})["topics"]
    return {topic["name"]: topic for topic in topics}


@pytest.mark.parametrize("version", range(13))
def test_it_is_in_no_list_of_topics(broker: Cluster, gateway: GatewayProcess, version: int) -> None:
    def is_all_the_rest() -> bool:
        everything = listed(broker.bootstrap_servers(), version)
        assert {OWN, QUOTAS} <= everything.keys()
        del everything[OWN], everything[QUOTAS]
        assert f"us.{OWN}" in everything
        return listed(gateway.bootstrap_servers, version) == everything

    # The gateway may ask another broker, which hears a little later what earlier tests made and deleted.
    assert eventually(is_all_the_rest, within_s=20)


@pytest.mark.parametrize("version", range(13))
def test_the_topic_of_quotas_is_refused_as_well(gateway: GatewayProcess, version: int) -> None:
    with RawClient(gateway.bootstrap_servers) as client:
        answer = client.call(
            METADATA, version, {"topics": [{"name": QUOTAS}], "allow_auto_topic_creation": True}
        )
        assert [(topic["name"], topic["error_code"]) for topic in answer["topics"]] == [(QUOTAS, REFUSED)]
        frame = produce_request(9, [(QUOTAS, [(0, record_batch(-1, records=RECORDS))])])
        produced = client.ask(framed(frame))
        (topic,) = decoded(PRODUCE, 9, produced)["responses"]
        assert [partition["error_code"] for partition in topic["partition_responses"]] == [REFUSED]


@pytest.mark.parametrize("version", range(13))
def test_by_name_it_is_not_authorised_and_others_are_answered(gateway: GatewayProcess, version: int) -> None:
    topics = [{"name": OWN}, {"name": f"us.{OWN}"}]
    with RawClient(gateway.bootstrap_servers) as client:
        answer = client.call(METADATA, version, {"topics": topics, "allow_auto_topic_creation": True})
    found = {topic["name"]: topic for topic in answer["topics"]}
    assert found.keys() == {OWN, f"us.{OWN}"}
    assert found[OWN]["error_code"] == REFUSED
    assert found[OWN]["partitions"] == []
    assert not found[OWN].get("topic_id")
    assert found[f"us.{OWN}"]["error_code"] == 0
    assert len(found[f"us.{OWN}"]["partitions"]) == 2


def test_by_id_it_is_not_authorised(gateway: GatewayProcess, own_id: UUID) -> None:
    with RawClient(gateway.bootstrap_servers) as client:
        answer = client.call(METADATA, 12, {"topics": [{"topic_id": own_id, "name": None}]})
    (topic,) = answer["topics"]
    assert (topic["error_code"], topic["name"], UUID(topic["topic_id"])) == (REFUSED, None, own_id)
    assert topic["partitions"] == []


def test_asking_for_it_does_not_make_it(broker: Cluster, topic_name: TopicName) -> None:
    missing, other = topic_name("__not-there-yet"), topic_name("made-by-asking")
    # The gateway makes it, sooner or later, and then it has twelve partitions, not the broker's default of one.
    settings = {"events": {"enabled": True, "topic": missing, "replication_factor": 1}}
    with GatewayProcess(broker.bootstrap_servers(), settings=settings) as running:
        for version in range(13):
            topics = [{"name": missing}, {"name": other}]
            with RawClient(running.bootstrap_servers) as client:
                client.call(METADATA, version, {"topics": topics, "allow_auto_topic_creation": True})
        running.stop()  # a request to make the topic that is under way would outlive a kill
    everything = listed(broker.bootstrap_servers(), 12)
    assert other in everything
    assert missing not in everything or len(everything[missing]["partitions"]) == 12
    assert not [name for name in everything if name and name.startswith("!")]
    delete(broker, missing)


def test_its_id_is_known_soon_after_it_was_made(broker: Cluster, topic_name: TopicName) -> None:
    name = topic_name("__made-later")
    settings = {"events": {"enabled": True, "topic": name, "replication_factor": 1}}
    with GatewayProcess(broker.bootstrap_servers(), settings=settings) as running:
        topic = eventually(lambda: listed(broker.bootstrap_servers(), 12).get(name), within_s=20)
        body = {"topics": [{"topic_id": UUID(topic["topic_id"]), "partitions": [{"partition": 0}]}]}

        def is_refused() -> bool:
            codes = set()
            for _ in range(12):
                with RawClient(running.bootstrap_servers) as client:
                    ((partition,),) = (
                        topic["partitions"] for topic in client.call(FETCH, 13, body)["responses"]
                    )
                    codes.add(partition["error_code"])
            return codes == {REFUSED}

        assert eventually(is_refused, within_s=20)
        running.stop()
    delete(broker, name)


def delete(broker: Cluster, topic: str) -> None:
    """Delete what a gateway made that has ended: nobody hides it from the clients of other gateways."""

    def is_gone() -> bool:
        with RawClient(broker.bootstrap_servers()) as client:
            client.call(DELETE_TOPICS, 5, {"topic_names": [topic], "timeout_ms": 20_000})
        return topic not in listed(broker.bootstrap_servers(), 12)

    assert eventually(is_gone, within_s=30)


def eventually(ask: Callable[[], Any], within_s: float) -> Any:
    """The first answer that is not nothing. Raises TimeoutError."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if found := ask():
            return found
        time.sleep(0.25)
    raise TimeoutError(f"nothing within {within_s} s")


def test_descriptions_page_by_page(broker: Cluster, gateway: GatewayProcess) -> None:
    asked = {
        "topics": [{"name": OWN}, {"name": f"us.{OWN}"}],
        "response_partition_limit": 2000,
        "cursor": None,
    }
    everything = {**asked, "topics": []}
    with RawClient(gateway.bootstrap_servers) as client, RawClient(broker.bootstrap_servers()) as direct:
        answer = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, asked)
        found = {topic["name"]: topic["error_code"] for topic in answer["topics"]}
        # As in every API but Metadata, a request that names it is refused as a whole.
        assert found == {OWN: REFUSED, f"us.{OWN}": REFUSED}
        other = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, {**asked, "topics": [{"name": f"us.{OWN}"}]})
        assert {topic["name"]: topic["error_code"] for topic in other["topics"]} == {f"us.{OWN}": 0}

        def is_all_the_rest() -> bool:
            through, directly = (
                [topic["name"] for topic in node.call(DESCRIBE_TOPIC_PARTITIONS, 0, everything)["topics"]]
                for node in (client, direct)
            )
            assert {OWN, QUOTAS} <= set(directly)
            return through == [name for name in directly if name not in (OWN, QUOTAS)]

        # The gateway may ask another broker, which hears a little later what earlier tests made and deleted.
        assert eventually(is_all_the_rest, within_s=20)


def test_a_pattern_that_the_broker_resolves_assigns_it_to_nobody(
    broker: Cluster, gateway: GatewayProcess, own_id: UUID, topic_name: TopicName
) -> None:
    if broker.spec.version == OLDEST:
        pytest.skip("groups whose patterns the broker resolves came with Kafka 4.0")
    listed(gateway.bootstrap_servers, 12)
    through, directly = (
        assigned_by_pattern(address, topic_name("pattern-group"))
        for address in (gateway.bootstrap_servers, broker.bootstrap_servers())
    )
    own_ids = {own_id, id_of(broker, QUOTAS)}
    assert own_ids <= directly
    assert through == directly - own_ids


def assigned_by_pattern(address: str, group: str) -> set[UUID]:
    """The topics that the one member of a group is assigned who subscribes to all there are."""
    joining = {
        "group_id": group,
        "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [],
        "subscribed_topic_regex": ".*pidgate.*",
        "topic_partitions": [],
        "server_assignor": "uniform",
    }
    assigned: set[UUID] = set()
    with RawClient(address) as client:
        answer: dict[str, Any] = {"error_code": 15}
        for _ in range(100):
            client.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
            answer = client.call(CONSUMER_GROUP_HEARTBEAT, 1, {**joining, "member_epoch": 0})
            if answer["error_code"] == 0:
                break
            time.sleep(0.2)
        for _ in range(60):
            assignment = answer["assignment"]
            if assignment and assignment["topic_partitions"]:
                assigned = {UUID(topic["topic_id"]) for topic in assignment["topic_partitions"]}
                break
            time.sleep(0.2)
            beat = {**joining, "member_epoch": answer["member_epoch"]}
            answer = client.call(CONSUMER_GROUP_HEARTBEAT, 1, beat)
        client.call(CONSUMER_GROUP_HEARTBEAT, 1, {**joining, "member_epoch": -1})
    return assigned


# ---- clients -----------------------------------------------------------------------------------------------


def kafka_python() -> Any:
    """Its import warns of what it uses of Python, and the codec's own loader knows how to bear that."""
    codec.message_class(METADATA, "request")
    return importlib.import_module("kafka")


@pytest.fixture
def topic(broker: Cluster, topic_name: TopicName) -> str:
    """A topic with a record that a pattern consumer has to find."""
    name = create_topic(broker.bootstrap_servers(), topic_name("seen-by-pattern"))
    with RawClient(broker.bootstrap_servers()) as client:
        partitions: list[tuple[int, bytes | None]] = [(0, record_batch(-1, -1, -1, records=RECORDS))]
        frame = produce_request(9, [(name, partitions)])
        client.ask(framed(frame))
    return name


def test_a_pattern_consumer_of_aiokafka_works_on(gateway: GatewayProcess, topic: str) -> None:
    async def consume() -> tuple[set[str], set[str]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=gateway.bootstrap_servers, group_id=f"{topic}-a", auto_offset_reset="earliest"
        )
        consumer.subscribe(pattern=".*")
        await consumer.start()
        try:
            seen: set[str] = set()
            async with asyncio.timeout(40):
                while topic not in seen:
                    seen |= {partition.topic for partition in await consumer.getmany(timeout_ms=500)}
            return seen, {partition.topic for partition in consumer.assignment()}
        finally:
            await consumer.stop()

    seen, assigned = asyncio.run(consume())
    assert f"us.{OWN}" in assigned
    assert OWN not in assigned | seen


def test_a_pattern_consumer_of_librdkafka_works_on(gateway: GatewayProcess, topic: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": gateway.bootstrap_servers,
            "group.id": f"{topic}-l",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([f"^({topic}|.*{OWN})$"])  # other tests have hundreds of topics
        seen: set[str] = set()
        deadline = time.monotonic() + 40
        while topic not in seen and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen.add(str(message.topic()))
        assert topic in seen
        assigned = {partition.topic for partition in consumer.assignment()}
        assert f"us.{OWN}" in assigned
        assert OWN not in assigned | seen
    finally:
        consumer.close()


def test_clients_are_told_that_they_are_not_authorised(gateway: GatewayProcess) -> None:
    kafka = kafka_python()
    producer = kafka.KafkaProducer(bootstrap_servers=gateway.bootstrap_servers, max_block_ms=10_000)
    try:
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            producer.send(OWN, MARKER).get(timeout=10)
    finally:
        producer.close()

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=gateway.bootstrap_servers) as aio:
            await aio.send_and_wait(OWN, MARKER)

    with pytest.raises(AiokafkaNotAuthorized):
        asyncio.run(produce())

    failed: list[object] = []
    librdkafka = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap_servers})
    librdkafka.produce(OWN, MARKER, on_delivery=lambda error, _message: failed.append(error and error.code()))
    librdkafka.flush(20)
    assert failed == [REFUSED]


def test_a_producer_of_java_is_refused_at_once(broker: Cluster, gateway: GatewayProcess) -> None:
    result = broker.tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", OWN, "--num-records", "1", "--record-size", "10", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={gateway.bootstrap_servers}", "max.block.ms=20000"),
        check=False,
    )
    assert "TopicAuthorizationException" in result.stdout + result.stderr
    assert "TimeoutException" not in result.stdout + result.stderr


# ---- by hand -----------------------------------------------------------------------------------------------


def framed_produce(version: int, topic: str | UUID, acks: int = -1) -> bytes:
    partitions: list[tuple[int, bytes | None]] = [(0, record_batch(-1, -1, -1, records=RECORDS))]
    return framed(produce_request(version, [(topic, partitions)], acks=acks))


def test_nothing_is_written_to_it_or_done_to_it(
    broker: Cluster, gateway: GatewayProcess, own_id: UUID
) -> None:
    newest = broker.spec.version != OLDEST
    with RawClient(gateway.bootstrap_servers) as client:
        for version in range(3, 14 if newest else 12):
            answer = client.ask(framed_produce(version, own_id if version >= 13 else OWN))
            ((partition,),) = (
                topic["partition_responses"] for topic in decoded(PRODUCE, version, answer)["responses"]
            )
            assert partition["error_code"] == REFUSED
        setting = {"name": "retention.ms", "value": "1", "config_operation": 0}
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": OWN, "configs": [setting]}
        answers = [
            client.call(DELETE_TOPICS, 5, {"topic_names": [OWN], "timeout_ms": 5_000}),
            client.call(
                DELETE_TOPICS, 6, {"topics": [{"topic_id": own_id, "name": None}], "timeout_ms": 5_000}
            ),
            client.call(CREATE_PARTITIONS, 3, {"topics": [{"name": OWN, "count": 9}], "timeout_ms": 5_000}),
            client.call(
                CREATE_TOPICS, 5, {"topics": [{"name": OWN, "num_partitions": 1, "replication_factor": 1}]}
            ),
            client.call(ALTER_CONFIGS, 1, {"resources": [resource]}),
            client.call(LIST_OFFSETS, 7, {"topics": [{"name": OWN, "partitions": [{"partition_index": 0}]}]}),
            client.call(FETCH, 13, {"topics": [{"topic_id": own_id, "partitions": [{"partition": 0}]}]}),
        ]
        assert all(f"'error_code': {REFUSED}" in str(answer) for answer in answers), answers
    for acks_0 in (framed_produce(9, OWN, acks=0), framed_produce(3, OWN, acks=0)):
        with RawClient(gateway.bootstrap_servers) as client:
            client.send(acks_0)
            assert client.is_closed()
    servers = broker.bootstrap_servers()
    with RawClient(servers) as client:
        asked = {"topics": [{"name": OWN}], "allow_auto_topic_creation": False}
        (topic,) = client.call(METADATA, 12, asked)["topics"]
    assert UUID(topic["topic_id"]) == own_id
    assert len(topic["partitions"]) == 3
    assert all(MARKER not in record.value for record in read_log(servers, OWN))
    refused = gateway.metrics()
    assert refused.value("pidgate_gateway_topic_refused_total", api="Produce") > 10
    assert refused.value("pidgate_gateway_topic_refused_total", api="DeleteTopics") >= 2
    assert refused.value("pidgate_connections_closed_total", cause="gateway_topic") >= 2
    assert gateway.log_events("gateway_topic_refused")
