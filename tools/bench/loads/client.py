"""Parts that a load makes once: connections, topics, producer ids, frames that are patched later."""

import os
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import crc32c

from pidgate.load.blocking import BlockingConnection
from pidgate.load.cluster import CREATE_TOPICS, CREATE_TOPICS_VERSION
from pidgate.load.exchanges import call, hello, init_producer_id
from pidgate.load.plan import Address, Login
from pidgate.load.prebuilt import FetchFrame, LoadError, ProduceFrame, read_fetch_answer
from pidgate.protocol import record_batch as batches
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.messages import METADATA, METADATA_PROBE_VERSION
from pidgate.protocol.producer_requests import produce_request

CLIENT_ID: Final = "bench"

_TIMEOUT_S: Final = 30.0
_TIMESTAMP_MS: Final = 1_780_000_000_000
# A broker answers 14 or 15 for a moment after its start; a new topic has no leader for a moment.
_PATIENCE_S: Final = 20.0
_RETRIABLE: Final = frozenset({3, 5, 14, 15, 16})


class Through(NamedTuple):
    """The way of a load: where it sends, into which topics, as whom; and the process between, whose cost is read."""

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
    return batches.record_batch(values, producer_id, 0, 0, _TIMESTAMP_MS)


def produce_frame(topic_id: bytes, partitions: Sequence[int], batch: bytes, *, acks: int) -> ProduceFrame:
    """Return a frame that sends the batch to each of the partitions."""
    request = produce_request(
        0, CLIENT_ID, topic_id, [(partition, batch) for partition in partitions], acks=acks
    )
    return ProduceFrame(request, [batch] * len(partitions), checksum=crc32c.crc32c)


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
    frame = FetchFrame(CLIENT_ID, topic_id, range(partitions), partition_max_bytes=1)
    frame.patch(0, [0] * partitions)
    try:
        read_fetch_answer(memoryview(connection.ask(bytes(frame.buffer))), 0)
    except LoadError:
        return False
    return True


FAILURES: Final = (LoadError, OSError, KafkaProtocolError)
"""Exceptions that end a load."""
