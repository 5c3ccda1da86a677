"""Record what Kafka's own clients do: each way of opening producers once, compressed from days into two minutes.

    python -m tests.support.record_patterns        about three minutes on a machine of its own, needs Java

A gateway that observes stands before a real broker. A user for each pattern, and some that show two. Real clients
(aiokafka, confluent-kafka, kafka-python) play wherever the pattern is about what a program does with its client; a
simple one (`LastingProducer`) where it is about addresses, which those cannot choose. Then the events topic is read and
stored (recordings.py). Clocks, ids and order are those of the run: no two runs give the same bytes.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from pidgate.gateway.clock import wall_ms
from pidgate.load.connection import Connection, connect
from pidgate.load.context import take_id
from pidgate.load.exchanges import log_in, produce
from pidgate.load.plan import Login
from pidgate.load.tally import Tally
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.record_batch import record_batch
from tests.support.recordings import Record, Recording, store
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, SUPER_USER, ClusterSpec
from tools.sandbox.topics import create_topic

NAME, EVENTS_TOPIC = "patterns", "__events-patterns"
ABOUT = "One gateway that observes; each way of opening producers, by real clients, within two minutes"
WITHIN_S = 240.0
PLAY_S = 110.0
"""An hour of the real thing is about a second of it: a rollout in a day, a CronJob every quarter of an hour."""

LABELS: Mapping[str, frozenset[str]] = {
    "steady-app": frozenset({"steady"}),
    "crashing-app": frozenset({"restart_loop"}),
    "per-error-app": frozenset({"producer_per_error"}),
    "per-batch-app": frozenset({"producer_per_batch"}),
    "per-batch-threads": frozenset({"producer_per_batch"}),
    "random-txn-app": frozenset({"random_transactional_ids"}),
    "rolling-app": frozenset({"rolling_deployment"}),
    "scaling-app": frozenset({"autoscaling"}),
    "cron-app": frozenset({"cron_job"}),
    "nat-office": frozenset({"shared_address"}),
    "namesakes": frozenset({"shared_client_id"}),
    "mixed-app": frozenset({"steady", "producer_per_batch"}),
    "seldom-app": frozenset({"unknown"}),
}
ROGUES = frozenset({"crashing", "per-error", "per-batch", "per-batch-threads", "random-txn", "mixed-rogue"})
"""Client ids whose producers are rogue, all of them."""


def password_of(user: str) -> str:
    return f"{user}-secret"


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the clients play."""

    gateway: GatewayProcess
    topic: str
    folder: Path


class LastingProducer:
    """One producer id over one connection, one batch at a time to any partition."""

    def __init__(self, stage: Stage, user: str, client_id: str, *, from_host: str) -> None:
        self._stage = stage
        self._user = user
        self._client_id = client_id
        self._from_host = from_host
        self._connection: Connection | None = None
        self._producer_id = -1
        self._sequences: dict[int, int] = {}

    async def _connected(self) -> Connection:
        if self._connection is None:
            address = ("127.0.0.1", self._stage.gateway.first_node_port + 1)
            self._connection = await connect(address, client_id=self._client_id, from_host=self._from_host)
            await self._connection.run(log_in(Login(self._user, password_of(self._user))))
            self._producer_id = (await take_id(self._connection, Tally())).producer_id
        return self._connection

    async def send(self, partition: int) -> None:
        connection, sequence = await self._connected(), self._sequences.get(partition, 0)
        value = b"x" * random.randrange(100, 400)
        batch = record_batch([value], self._producer_id, 0, sequence, wall_ms())
        answer = await connection.run(produce(self._stage.topic, [(partition, batch)]))
        assert answer.error_code == ErrorCode.NONE, answer
        self._sequences[partition] = sequence + 1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _aiokafka(stage: Stage, user: str, client_id: str, **more: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=stage.gateway.bootstrap_servers,
        client_id=client_id,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=password_of(user),
        **{"enable_idempotence": True, **more},
    )


def _librdkafka(stage: Stage, user: str, client_id: str, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": stage.gateway.bootstrap_servers,
            "client.id": client_id,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password_of(user),
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
            **more,
        }
    )


def _kafka_python(stage: Stage, user: str, client_id: str) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=[stage.gateway.bootstrap_servers],
        client_id=client_id,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=password_of(user),
        enable_idempotence=True,
    )


async def _aio_life(
    stage: Stage, user: str, client_id: str, seconds: float, pause_s: float = 0.5, **more: Any
) -> None:
    """One producer that sends until its time is over, and closes."""
    until_s = time.monotonic() + seconds
    async with _aiokafka(stage, user, client_id, **more) as producer:
        while time.monotonic() < until_s:
            if "transactional_id" in more:
                async with producer.transaction():
                    await producer.send_and_wait(stage.topic, b"x", partition=random.randrange(6))
            else:
                await producer.send_and_wait(stage.topic, b"x", partition=random.randrange(6))
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))


def _thread_life(stage: Stage, user: str, client_id: str, seconds: float, pause_s: float) -> None:
    """The same with the clients that have threads of their own, in turn."""
    until_s = time.monotonic() + seconds
    if client_id.endswith("1"):
        python = _kafka_python(stage, user, client_id)
        while time.monotonic() < until_s:
            python.send(stage.topic, b"x", partition=random.randrange(6)).get(timeout=30)
            time.sleep(pause_s)
        python.close()
        return
    producer = _librdkafka(stage, user, client_id)
    while time.monotonic() < until_s:
        producer.produce(stage.topic, b"x", partition=random.randrange(6))
        producer.flush(30)
        time.sleep(pause_s)
    producer.close()


async def _steady(stage: Stage, user: str, size: int) -> None:
    threads = [
        asyncio.to_thread(_thread_life, stage, user, f"{user}-{number}", PLAY_S, 0.7) for number in range(2)
    ]
    more = [_aio_life(stage, user, f"{user}-{number}", PLAY_S, 0.8) for number in range(2, size)]
    await asyncio.gather(*threads, *more)


async def _crashing(stage: Stage) -> None:
    """A process of its own for each life, with librdkafka, that ends without a word."""
    journal = stage.folder / "crashing.jsonl"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.clients.crash_loop",
        "--bootstrap-server", stage.gateway.bootstrap_servers, "--user", "crashing-app",
        "--password", password_of("crashing-app"), "--topic", stage.topic, "--client-id", "crashing",
        "--journal", str(journal), "--restart-after-s", "2.5",
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    await asyncio.sleep(PLAY_S)
    process.terminate()
    await process.wait()


async def _per_error(stage: Stage) -> None:
    """Each refusal of the broker (a record that is too large for its topic) makes a new producer."""
    until_s = time.monotonic() + PLAY_S
    while time.monotonic() < until_s:
        producer = _aiokafka(stage, "per-error-app", "per-error", max_request_size=4_000_000)
        await producer.start()
        try:
            while time.monotonic() < until_s:
                size = 1_500_000 if random.random() < 0.15 else 100
                await producer.send_and_wait(stage.topic, b"x" * size, partition=random.randrange(6))
                await asyncio.sleep(0.3)
        except KafkaError:
            await asyncio.sleep(0.1)
        finally:
            await producer.stop()


async def _per_batch(stage: Stage, user: str, client_id: str, pause_s: float) -> None:
    until_s = time.monotonic() + PLAY_S
    while time.monotonic() < until_s:
        async with _aiokafka(stage, user, client_id) as producer:
            await producer.send_and_wait(stage.topic, b"x", partition=0)
        await asyncio.sleep(pause_s * random.uniform(0.3, 1.7))


async def _per_batch_in_threads(stage: Stage) -> None:
    def one() -> None:
        until_s = time.monotonic() + PLAY_S
        while time.monotonic() < until_s:
            producer = _librdkafka(stage, "per-batch-threads", "per-batch-threads")
            producer.produce(stage.topic, b"x", partition=1)
            producer.flush(30)
            producer.close()
            time.sleep(1.5 * random.uniform(0.5, 1.5))

    await asyncio.gather(*(asyncio.to_thread(one) for _ in range(2)))


async def _random_txn(stage: Stage) -> None:
    until_s = time.monotonic() + PLAY_S
    while time.monotonic() < until_s:
        await _aio_life(
            stage, "random-txn-app", "random-txn", 1.5, 0.4, transactional_id=f"app-{uuid.uuid4()}"
        )
        await asyncio.sleep(random.uniform(0.2, 1.5))


async def _rolling(stage: Stage) -> None:
    """Six pods; all are replaced twice, one after the other."""

    async def pod(number: int) -> None:
        for version in range(3):
            begins_s, ends_s = version * 36.0 + number * 1.5, (version + 1) * 36.0 + number * 1.5
            if version == 0:
                begins_s = 0.0
            await _aio_life(stage, "rolling-app", f"rolling-v{version}-{number}", ends_s - begins_s, 0.8)

    await asyncio.gather(*(pod(number) for number in range(6)))


async def _scaling(stage: Stage) -> None:
    """Two waves of load: up to eight pods, and down to two."""

    async def pod(number: int) -> None:
        if number < 2:
            await _aio_life(stage, "scaling-app", f"scaling-{number}", PLAY_S, 0.8)
            return
        for wave in range(2):
            begins_s = wave * 55.0 + 3.0 * number
            await asyncio.sleep(max(0.0, began_s + begins_s - time.monotonic()))
            await _aio_life(stage, "scaling-app", f"scaling-{wave}-{number}", 50.0 - 6.0 * number, 0.8)

    began_s = time.monotonic()
    await asyncio.gather(*(pod(number) for number in range(8)))


async def _cron(stage: Stage) -> None:
    """Every ten seconds by the clock, two short jobs."""
    until_s = time.monotonic() + PLAY_S - 5
    run = 0
    while time.monotonic() < until_s:
        await asyncio.sleep(10.0 - time.monotonic() % 10.0)
        run += 1
        await asyncio.gather(*(_aio_life(stage, "cron-app", f"cron-{run}-{one}", 1.5, 0.3) for one in (0, 1)))


async def _at_addresses(stage: Stage, user: str, client_ids: list[str], hosts: list[str]) -> None:
    """Many processes that come one after the other, from so many addresses, and stay."""

    async def one(client_id: str, host: str, waits_s: float) -> None:
        await asyncio.sleep(waits_s)
        producer = LastingProducer(stage, user, client_id, from_host=host)
        until_s = time.monotonic() + PLAY_S - waits_s
        try:
            while time.monotonic() < until_s:
                await producer.send(random.randrange(6))
                await asyncio.sleep(1.5 * random.uniform(0.5, 1.5))
        finally:
            producer.close()

    each = enumerate(zip(client_ids, hosts, strict=True))
    await asyncio.gather(*(one(client_id, host, number * 4.0) for number, (client_id, host) in each))


async def _seldom(stage: Stage) -> None:
    await asyncio.sleep(40)
    await _aio_life(stage, "seldom-app", "seldom", 2.0)


async def _all(stage: Stage) -> None:
    # Looking up names takes a thread, too, and those that are there by default all play.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    async with asyncio.TaskGroup() as group:
        for play in (
            _steady(stage, "steady-app", 4),
            _crashing(stage),
            _per_error(stage),
            _per_batch(stage, "per-batch-app", "per-batch", 0.5),
            _per_batch_in_threads(stage),
            _random_txn(stage),
            _rolling(stage),
            _scaling(stage),
            _cron(stage),
            _at_addresses(stage, "nat-office", [f"desk-{n}" for n in range(20)], ["127.0.20.1"] * 20),
            _at_addresses(stage, "namesakes", ["agent"] * 20, [f"127.0.21.{n + 1}" for n in range(20)]),
            _steady(stage, "mixed-app", 4),
            _per_batch(stage, "mixed-app", "mixed-rogue", 1.0),
            _seldom(stage),
        ):
            group.create_task(play)


def read_topic(bootstrap_servers: str, topic: str, within_s: float = 30.0) -> list[Record]:
    """Return all records, partition by partition. Raises TimeoutError, KafkaException."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "recorder"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    found: dict[int, list[Record]] = {}
    try:
        open_partitions = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in sorted(open_partitions)])
        give_up_s = time.monotonic() + within_s
        while open_partitions:
            if time.monotonic() > give_up_s:
                raise TimeoutError(
                    f"{topic}: the end of partitions {sorted(open_partitions)} was not reached"
                )
            for message in consumer.consume(num_messages=10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    record = Record(partition, offset, message.timestamp()[1], message.value() or b"")
                    found.setdefault(record.partition, []).append(record)
                elif error.code() == ConfluentError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return [record for partition in sorted(found) for record in found[partition]]


def record(cluster: Cluster, folder: Path) -> Recording:
    """Let the clients play, end the gateway with a drain, and read the events topic."""
    servers, direct = cluster.bootstrap_servers(SASL_PLAINTEXT), cluster.bootstrap_servers()
    (folder / "own-password").write_text(password_of(SUPER_USER))
    settings = {
        "gateway_id": "gw-0",
        "events": {"topic": EVENTS_TOPIC, "replication_factor": 1},
        "own_client": {
            "mechanism": "PLAIN",
            "username": SUPER_USER,
            "password_file": str(folder / "own-password"),
        },
        "cluster": {"name": "recorded", "bootstrap_servers": [servers]},
    }
    topic = create_topic(direct, "records-patterns", partitions=6)
    with GatewayProcess(servers, quotas={"mode": "observe"}, settings=settings) as gateway:
        # A gateway opens a broker's port when it has heard of that broker.
        login = {"sasl.username": SUPER_USER, "sasl.password": password_of(SUPER_USER)}
        AdminClient(
            {
                "bootstrap.servers": gateway.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                **login,
            }
        ).list_topics(timeout=10)
        asyncio.run(asyncio.wait_for(_all(Stage(gateway, topic, folder)), WITHIN_S))
        assert gateway.stop() == 0, gateway.log_tail()
    story = {"about": ABOUT, "gateways": ["gw-0"], "rogue_clients": sorted(ROGUES)}
    labels = {user: sorted(patterns) for user, patterns in LABELS.items()}
    return Recording(NAME, read_topic(direct, EVENTS_TOPIC), labels, story)


def main() -> None:
    users = {user: password_of(user) for user in sorted({*LABELS, SUPER_USER})}
    with (
        Cluster(ClusterSpec(sasl=True, users=users)) as cluster,
        tempfile.TemporaryDirectory(prefix="recording-") as folder,
    ):
        recording = record(cluster, Path(folder))
    store(recording)
    print(f"{len(recording.records)} events stored", file=sys.stderr)


if __name__ == "__main__":
    main()
