"""Parts of several loads: connections, topics, producer ids, errors, percentiles."""

import os
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pidgate.load.blocking import BlockingConnection
from pidgate.load.cluster import CREATE_TOPICS, CREATE_TOPICS_VERSION
from pidgate.load.exchanges import call, fetch, hello, init_producer_id, produce
from pidgate.load.plan import Address, Login
from pidgate.load.tally import Latency
from pidgate.protocol import record_batch as batches
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.logins import LoginRefused
from pidgate.protocol.messages import METADATA, METADATA_PROBE_VERSION
from pidgate.protocol.record_batch import RecordBatch

CLIENT_ID: Final = "bench"

_PERCENTILES: Final = {"p50_ms": 50.0, "p90_ms": 90.0, "p99_ms": 99.0, "p999_ms": 99.9}
_TIMEOUT_S: Final = 30.0
TIMESTAMP_MS: Final = 1_780_000_000_000
# A broker answers 14 or 15 for a moment after its start; a new topic has no leader for a moment.
_PATIENCE_S: Final = 20.0
_RETRIABLE: Final = frozenset({3, 5, 14, 15, 16})


class LoadError(Exception):
    """A broker or proxy did not answer as the load expects; the run counts for nothing."""


FAILURES: Final = (LoadError, OSError, KafkaProtocolError, LoginRefused)
"""Exceptions that end a load."""


class Through(NamedTuple):
    """The path of a load: address, topics and login; and the process between, whose cost is read."""

    address: Address
    topic_id: bytes = b""
    login: Login | None = None
    watch: int | None = None
    topic: str = ""
    """Its name, for clients that ask for it."""
    further_topic_ids: tuple[bytes, ...] = ()

    def as_json(self) -> list[Any]:
        login = self.login and [self.login.user, self.login.password]
        further = [one.hex() for one in self.further_topic_ids]
        return [list(self.address), self.topic_id.hex(), login, self.watch, self.topic, further]

    @classmethod
    def of_json(cls, told: list[Any]) -> "Through":
        (host, port), topic_id, login, watch, topic, further = told
        further_ids = tuple(bytes.fromhex(one) for one in further)
        login = login and Login(*login)
        return cls((host, port), bytes.fromhex(topic_id), login, watch, topic, further_ids)


def connect(
    address: Address, login: Login | None = None, timeout_s: float = _TIMEOUT_S
) -> BlockingConnection:
    """Connect as every client does: ApiVersions, then the login. Raises OSError, LoginRefused, KafkaProtocolError."""
    connection = BlockingConnection(address, client_id=CLIENT_ID, timeout_s=timeout_s)
    try:
        connection.run(hello(login))
    except BaseException:
        connection.close()
        raise
    return connection


def new_producer_id(connection: BlockingConnection) -> int:
    """Return a fresh producer id, epoch 0. Raises LoadError, OSError, KafkaProtocolError."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        answer = connection.run(init_producer_id())
        if not answer.error_code:
            return answer.producer_id
        if answer.error_code not in _RETRIABLE or time.monotonic() > deadline:
            raise LoadError(f"InitProducerId: error code {answer.error_code}")
        time.sleep(0.2)


def record_batch(producer_id: int, records: int, record_bytes: int) -> bytes:
    """Return an uncompressed batch, epoch 0, base sequence 0; random values, so that nothing can compress them."""
    values = [os.urandom(record_bytes) for _ in range(records)]
    return batches.record_batch(values, producer_id, 0, 0, TIMESTAMP_MS)


def fill(
    address: Address, topic_id: bytes, partitions: int, records: int, record_bytes: int, batches: int
) -> None:
    """Write `batches` batches to each partition, for consumers to read. Raises LoadError, OSError."""
    batch = RecordBatch([os.urandom(record_bytes) for _ in range(records)])
    with connect(address) as connection:
        producer_id, sequence = new_producer_id(connection), 0
        for _ in range(batches):
            stamped = batch.stamped(producer_id, 0, sequence, TIMESTAMP_MS)
            sequence = batch.next_sequence(sequence)
            for partition in range(partitions):
                answer = connection.run(produce(topic_id, [(partition, stamped)], acks=1))
                if answer.error_code:
                    raise LoadError(f"Produce to partition {partition}: error code {answer.error_code}")


def latency_summary(latency: Latency) -> dict[str, float]:
    """Return percentiles in ms. Raises LoadError without measurements."""
    if latency.max_ms is None:
        raise LoadError("nothing was answered")
    found = {name: latency.percentile_ms(percent) or 0.0 for name, percent in _PERCENTILES.items()}
    return {**found, "max_ms": latency.max_ms}


def create_topics(
    connection: BlockingConnection, names: Sequence[str], partitions: int, **settings: str
) -> None:
    """Create topics with one replica. Raises LoadError, OSError, KafkaProtocolError."""
    configs = [{"name": name, "value": value} for name, value in settings.items()]
    topics = [
        {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": configs}
        for name in names
    ]
    body = {"topics": topics, "timeout_ms": 60_000}
    for made in connection.run(call(CREATE_TOPICS, CREATE_TOPICS_VERSION, body)).topics:
        if made.error_code:
            raise LoadError(f"CreateTopics {made.name}: error code {made.error_code} {made.error_message}")


def metadata_of(connection: BlockingConnection, names: Sequence[str] | None) -> Any:
    """Return the topics of a Metadata answer; None asks for all. Raises OSError, KafkaProtocolError."""
    topics = None if names is None else [{"name": name} for name in names]
    body = {"topics": topics, "allow_auto_topic_creation": False}
    return connection.run(call(METADATA, METADATA_PROBE_VERSION, body)).topics


def create_topic(address: Address, name: str, partitions: int, settings: dict[str, str]) -> bytes:
    """Create a topic and wait for its leaders; return its id. Raises LoadError, OSError, KafkaProtocolError."""
    with connect(address) as connection:
        create_topics(connection, [name], partitions, **settings)
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            (topic,) = metadata_of(connection, [name])
            led = sum(partition.error_code == 0 for partition in topic.partitions)
            if topic.error_code == 0 and led == partitions:
                topic_id = bytes(topic.topic_id.bytes)
                if _is_served(connection, topic_id, partitions):
                    return topic_id
            time.sleep(0.1)
    raise LoadError(f"topic {name} has no leaders after {_PATIENCE_S:.0f} s")


def _is_served(connection: BlockingConnection, topic_id: bytes, partitions: int) -> bool:
    # Metadata names a leader a moment before the leader knows it.
    offsets = dict.fromkeys(range(partitions), 0)
    return connection.run(fetch(topic_id, offsets, partition_max_bytes=1)).error_code == 0
