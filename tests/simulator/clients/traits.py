"""What model clients differ in: one row for each family of real producers, and one for each way to read.

Read from the clients' sources, and compared with the clients themselves (test_against_real_clients.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from tests.simulator.clients import frames
from tests.simulator.clients.settings import Times
from tests.simulator.clients.turns import NEVER


class Lost(Enum):
    """What a producer does when the broker says that sequences are missing (45) or the id is unknown (59)."""

    RETRIES_AND_BUMPS_IF_NEXT = auto()
    """It sends the batch again. It bumps the epoch if the batch is the next one that the broker should expect."""
    BUMPS_OR_DIES = auto()
    """It bumps the epoch if an earlier batch is missing; otherwise the error is fatal."""
    FAILS_AND_ASKS = auto()
    """It fails the batch and asks for another id."""
    BUMPS_AND_REWINDS = auto()
    """It bumps the epoch and sends everything again."""


class Bump(Enum):
    """How an idempotent producer bumps its epoch."""

    FOR_SOME_PARTITIONS = auto()
    """At once. Partitions that asked for it are renumbered, others when they have nothing left of the old epoch."""
    WHEN_DRAINED = auto()
    """When nothing is in flight; nothing is sent before that."""
    FOR_ALL_PARTITIONS = auto()
    """At once. Every partition begins at 0 with its first batch."""
    BY_REQUEST = auto()
    """With InitProducerId; nothing is sent before its answer."""


class Expiry(Enum):
    """What delivery.timeout.ms does."""

    BUMPS = auto()
    """Batches fail, also in flight. The epoch is bumped if the broker may lack one that had been sent."""
    QUEUED_ONLY = auto()
    """Once a second batches that are not in flight fail, and the epoch is bumped."""
    LOSES_THE_ID = auto()
    """Batches fail, also in flight. If one had been sent, the id is reset and no other is asked for: a fault."""


@dataclass(frozen=True, slots=True)
class Traits:
    """One family. The defaults are the Java producer's."""

    family: str
    software: str
    times: Times
    newest: dict[int, int] = field(default_factory=dict)
    """By API: the newest version that it speaks."""
    newest_api_versions: int = 4
    asks_versions_again: bool = False
    """After the login."""

    # ---- what it has in flight
    requests_in_flight: int = 5
    """On a connection."""
    batches_in_flight: int = 5
    """Of a partition."""
    counts_records: bool = False
    """It compares `batches_in_flight` with the number of records."""
    is_slow_at_first: bool = False
    """One request, and one batch of a partition, until a success; one again after an error."""
    has_one_batch_per_request: bool = False
    has_produce_connection: bool = False
    """Produce has a connection of its own."""
    reconnects: bool = False
    """It closes a connection when nothing is in flight any more, and makes another one for what comes next."""

    # ---- retries
    drains_before_retry: bool = False
    """It retries in a pipeline when nothing of the partition is in flight. Otherwise one batch at a time, in order."""
    drains_before_new_leader: bool = False
    """Otherwise new batches go to a new leader while older ones are in flight at the old one."""
    rewinds: bool = False
    """Only the first batch's answer counts: after an error all are sent again from there."""
    looks_for_leaders_first: bool = False
    """After an error in an answer: before the next try."""
    learns_leader_from_answer: bool = False
    """KIP-951."""
    retries_at_once_at_new_leader: bool = False
    acknowledges_earlier: bool = False
    """A success acknowledges all earlier batches that wait for another try."""

    # ---- ids and errors
    lost: Lost = Lost.RETRIES_AND_BUMPS_IF_NEXT
    bump: Bump = Bump.FOR_SOME_PARTITIONS
    expiry: Expiry = Expiry.BUMPS
    fails_stale: bool = False
    """A batch of an earlier id or epoch is not tried again."""
    asks_id_lazily: bool = False
    """With the first batch; otherwise at the start."""

    # ---- throttle_time_ms
    heeds_throttle: bool = True
    throttle_extends_timeouts: bool = False

    # ---- transactions
    aborts_on_close: bool = False
    keeps_sent_on_abort: bool = False
    """Batches that were sent are tried on until their end is known."""
    coordinator_tries: int = 0
    """After so many lost connections the outcome of a request is not known; 0: it tries for ever."""


JAVA: Final = Traits(
    family="java",
    software="apache-kafka-java",
    times=Times(
        request_s=30.0,
        delivery_s=120.0,
        retry_backoff_s=0.1,
        retry_backoff_max_s=1.0,
        reconnect_backoff_s=0.05,
        reconnect_backoff_max_s=1.0,
        metadata_backoff_s=0.1,
        connect_s=10.0,
        max_block_s=60.0,
    ),
    newest={
        frames.PRODUCE: 13,
        frames.METADATA: 13,
        frames.FIND_COORDINATOR: 6,
        frames.INIT_PRODUCER_ID: 5,
        frames.ADD_PARTITIONS: 3,
        frames.END_TXN: 5,
    },
    asks_versions_again=True,
    learns_leader_from_answer=True,
    retries_at_once_at_new_leader=True,
    throttle_extends_timeouts=True,
    aborts_on_close=True,
    keeps_sent_on_abort=True,
)
"""Kafka 4.x's `KafkaProducer`: `Sender`, `RecordAccumulator`, `TransactionManager`, `NetworkClient`."""

LIBRDKAFKA: Final = Traits(
    family="librdkafka",
    software="librdkafka",
    times=Times(
        request_s=60.0,
        delivery_s=300.0,
        retry_backoff_s=0.1,
        retry_backoff_max_s=1.0,
        reconnect_backoff_s=0.1,
        reconnect_backoff_max_s=10.0,
        metadata_backoff_s=0.1,
        connect_s=30.0,
        max_block_s=60.0,
        linger_s=0.005,
    ),
    newest={
        frames.PRODUCE: 10,
        frames.METADATA: 12,
        frames.FIND_COORDINATOR: 2,
        frames.INIT_PRODUCER_ID: 4,
        frames.ADD_PARTITIONS: 0,
        frames.END_TXN: 1,
    },
    newest_api_versions=3,
    counts_records=True,
    has_one_batch_per_request=True,
    drains_before_retry=True,
    drains_before_new_leader=True,
    acknowledges_earlier=True,
    lost=Lost.BUMPS_OR_DIES,
    bump=Bump.WHEN_DRAINED,
    expiry=Expiry.QUEUED_ONLY,
    fails_stale=True,
    heeds_throttle=False,
)
"""librdkafka 2.x and all bindings of it: `rdkafka_broker.c`, `rdkafka_request.c`, `rdkafka_idempotence.c`."""

KAFKA_PYTHON: Final = Traits(
    family="kafka-python",
    software="kafka-python",
    times=Times(
        request_s=30.0,
        delivery_s=120.0,
        retry_backoff_s=0.1,
        retry_backoff_max_s=0.1,
        reconnect_backoff_s=0.05,
        reconnect_backoff_max_s=30.0,
        metadata_backoff_s=0.1,
        connect_s=10.0,
        max_block_s=60.0,
    ),
    newest={frames.PRODUCE: 9, frames.METADATA: 13, frames.INIT_PRODUCER_ID: 4},
    batches_in_flight=1,
    lost=Lost.FAILS_AND_ASKS,
    bump=Bump.BY_REQUEST,
    expiry=Expiry.LOSES_THE_ID,
    fails_stale=True,
)
"""kafka-python 3.0, idempotent only: in transactions it gives up for good where a connection is lost."""

FRANZ_GO: Final = Traits(
    family="franz-go",
    software="kgo",
    times=Times(
        request_s=10.0,
        delivery_s=NEVER,
        retry_backoff_s=0.25,
        retry_backoff_max_s=5.0,
        reconnect_backoff_s=0.25,
        reconnect_backoff_max_s=5.0,
        metadata_backoff_s=5.0,
        connect_s=10.0,
        max_block_s=NEVER,
        transaction_s=40.0,
        linger_s=0.01,
    ),
    newest={
        frames.PRODUCE: 13,
        frames.METADATA: 13,
        frames.FIND_COORDINATOR: 6,
        frames.INIT_PRODUCER_ID: 5,
        frames.ADD_PARTITIONS: 3,
        frames.END_TXN: 5,
    },
    requests_in_flight=4,
    batches_in_flight=4,
    is_slow_at_first=True,
    has_produce_connection=True,
    drains_before_retry=True,
    drains_before_new_leader=True,
    rewinds=True,
    looks_for_leaders_first=True,
    learns_leader_from_answer=True,
    lost=Lost.BUMPS_AND_REWINDS,
    bump=Bump.FOR_ALL_PARTITIONS,
    asks_id_lazily=True,
    coordinator_tries=3,
)
"""franz-go 1.2x, `kgo`: `sink.go`, `producer.go`, `txn.go`."""

FAMILIES: Final = {traits.family: traits for traits in (JAVA, LIBRDKAFKA, KAFKA_PYTHON, FRANZ_GO)}

_DEEP: Final = replace(FRANZ_GO, is_slow_at_first=False)
UNUSUAL: Final = {
    traits.family: traits
    for traits in (
        replace(JAVA, family="reconnecting", reconnects=True),
        replace(_DEEP, family="twenty-in-flight", requests_in_flight=20, batches_in_flight=20),
        replace(_DEEP, family="hundreds-in-flight", requests_in_flight=300, batches_in_flight=300),
    )
}
"""Clients of nobody in particular. Brokers remember five batches: who has more in flight doubles where an answer is
lost, with or without a gateway, and the model says so of itself (`Batch.may_repeat`)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read. By default each partition has a connection of its own, and each Fetch is whole."""

    reconnects: bool = False
    """Each Fetch has a connection of its own."""
    has_session: bool = False
    """It fetches within a session (KIP-227)."""
    heeds_throttle: bool = False
    """It leaves a connection alone for throttle_time_ms, and goes on when that is over."""
    joins_group: bool = False
    """It is the member of a group: it sends heartbeats and commits on another connection."""


READINGS: Final = {
    "whole": Reading(),
    "reconnecting": Reading(reconnects=True),
    "kafkajs": Reading(heeds_throttle=True, joins_group=True),
    "librdkafka": Reading(joins_group=True),
    "java": Reading(has_session=True, heeds_throttle=True, joins_group=True),
    "heedless": Reading(has_session=True, joins_group=True),
}
"""`java` is kafka-python's way, too. Nobody is known to be `heedless`: its Fetches wait at the gateway, all of them."""
