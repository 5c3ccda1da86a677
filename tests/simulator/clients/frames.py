"""Frames of the model clients: requests with their size prefix, answers without it.

Produce is built by hand and fast (support/frames.py). The others come from the second codec and are kept, since only
their correlation id differs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from pidgate.load.plan import Address
from pidgate.protocol import codec
from pidgate.protocol.frames import Reader, read_uvarint, skip_tags
from tests.support.raw import request

PRODUCE, METADATA, FIND_COORDINATOR, HANDSHAKE, API_VERSIONS = 0, 3, 10, 17, 18
INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, AUTHENTICATE = 22, 24, 26, 36

NAMES = {INIT_PRODUCER_ID: "InitProducerId", ADD_PARTITIONS: "AddPartitionsToTxn", END_TXN: "EndTxn"}
"""Of the requests to a coordinator."""

_FIRST_TOPIC_ID = 13
_RANGE = struct.Struct(">hhhB")
_PARTITION = struct.Struct(">ihqqqBBB")
_TRANSACTION_VERSION = "transaction.version"


def numbered(frame: bytes, correlation_id: int) -> bytes:
    """The same request with another correlation id."""
    return b"".join((frame[:8], correlation_id.to_bytes(4, "big"), frame[12:]))


def api_versions(version: int, client_id: str, software: str) -> bytes:
    """ApiVersions."""
    return _request(
        API_VERSIONS, version, client_id, client_software_name=software, client_software_version="1"
    )


def handshake(client_id: str, mechanism: str) -> bytes:
    """SaslHandshake."""
    return _request(HANDSHAKE, 1, client_id, mechanism=mechanism)


def authenticate(version: int, client_id: str, token: bytes) -> bytes:
    """SaslAuthenticate."""
    return _request(AUTHENTICATE, version, client_id, auth_bytes=token)


@lru_cache(maxsize=2_000)
def metadata(version: int, client_id: str, topic: str) -> bytes:
    """Metadata of one topic, which is not made by it."""
    body = {
        "topics": [{"topic_id": None, "name": topic}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
    return request(METADATA, version, body, correlation_id=0, client_id=client_id)


def init_producer_id(
    version: int, client_id: str, transactional_id: str | None, timeout_ms: int, held: tuple[int, int]
) -> bytes:
    """InitProducerId; `held`: the id and epoch that the client has, -1 without."""
    return _request(
        INIT_PRODUCER_ID,
        version,
        client_id,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=held[0],
        producer_epoch=held[1],
    )


@lru_cache(maxsize=2_000)
def find_coordinator(version: int, client_id: str, key: str, key_type: int = 1) -> bytes:
    """FindCoordinator of a transactional id, or with type 0 of a group."""
    body = {"key": key, "key_type": key_type, "coordinator_keys": [key]}
    return request(FIND_COORDINATOR, version, body, correlation_id=0, client_id=client_id)


@lru_cache(maxsize=2_000)
def add_partitions(
    version: int,
    client_id: str,
    transactional_id: str,
    held: tuple[int, int],
    topic: str,
    partitions: tuple[int, ...],
) -> bytes:
    """AddPartitionsToTxn, version 3 at most."""
    body = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": held[0],
        "v3_and_below_producer_epoch": held[1],
        "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
    }
    return request(ADD_PARTITIONS, version, body, correlation_id=0, client_id=client_id)


def end_txn(
    version: int, client_id: str, transactional_id: str, held: tuple[int, int], *, commit: bool
) -> bytes:
    """EndTxn."""
    return _request(
        END_TXN,
        version,
        client_id,
        transactional_id=transactional_id,
        producer_id=held[0],
        producer_epoch=held[1],
        committed=commit,
    )


@lru_cache(maxsize=4_000)
def _request(api_key: int, version: int, client_id: str, **body: Any) -> bytes:
    return request(api_key, version, body, correlation_id=0, client_id=client_id)


class Offered(NamedTuple):
    """What a node speaks."""

    error_code: int
    ranges: dict[int, tuple[int, int]]
    transaction_version: int


def read_api_versions(frame: bytes, version: int) -> Offered:
    """An answer to ApiVersions; one with an error is of version 0."""
    (error_code,) = struct.unpack_from(">h", frame, 4)
    if error_code or version < 3:
        (count,) = struct.unpack_from(">i", frame, 6)
        entries = struct.iter_unpack(">hhh", frame[10 : 10 + 6 * count])
        return Offered(error_code, {key: (low, high) for key, low, high in entries}, 0)
    count, at = read_uvarint(frame, 6)
    end = at + _RANGE.size * (count - 1)
    ranges: dict[int, tuple[int, int]] = {}
    for key, low, high, tags in _RANGE.iter_unpack(frame[at:end]):
        assert tags == 0, "no API has a tagged field in ApiVersions"
        ranges[key] = (low, high)
    reader = Reader(frame, end + 4, len(frame), flexible=True)
    return Offered(0, ranges, _transaction_version(reader))


def _transaction_version(reader: Reader) -> int:
    finalized_features = 2
    for tag, _, content, end in reader.tags():
        if tag == finalized_features:
            features = Reader(reader.buf, content, end, flexible=True)
            for _ in range(features.count(6)):
                name, newest, _ = features.string(), features.i16(), features.i16()
                features.skip_tags()
                if name == _TRANSACTION_VERSION:
                    return newest
    return 0


class Leaders(NamedTuple):
    """What a Metadata answer says of the cluster and of the topic."""

    throttle_ms: int
    brokers: dict[int, Address]
    error_code: int
    topic_id: bytes
    leaders: dict[int, tuple[int, int]]
    """By partition: node id and leader epoch; those with an error are left out."""


def read_metadata(frame: bytes, version: int) -> Leaders:
    """An answer of version 9 to 13 about one topic."""
    reader = Reader(frame, 4, len(frame), flexible=True)
    reader.skip_tags()
    throttle_ms = reader.i32()
    brokers: dict[int, Address] = {}
    for _ in range(reader.count(10)):
        node_id, host, port = reader.i32(), reader.string(), reader.i32()
        reader.skip_string()
        reader.skip_tags()
        brokers[node_id] = (host, port)
    reader.skip_string()
    reader.skip(4)
    error_code, topic_id, leaders = 0, b"", {}
    for _ in range(reader.count(10)):
        error_code = reader.i16()
        reader.skip_string()
        topic_id = reader.read_bytes(16) if version >= 10 else b""
        reader.skip(1)
        for _ in range(reader.count(10)):
            partition_error, partition, leader, leader_epoch = (
                reader.i16(),
                reader.i32(),
                reader.i32(),
                reader.i32(),
            )
            for _ in range(3):
                reader.skip(4 * reader.count(4))
            reader.skip_tags()
            if leader >= 0 and partition_error == 0:
                leaders[partition] = (leader, leader_epoch)
        reader.skip(4)
        reader.skip_tags()
    return Leaders(throttle_ms, brokers, error_code, topic_id, leaders)


class Outcome(NamedTuple):
    """What a Produce answer says of one partition."""

    partition: int
    error_code: int
    base_offset: int
    log_start_offset: int
    leader: tuple[int, int]
    """The leader's node id and epoch (KIP-951), -1 where they are not given."""


_NO_LEADER = (-1, -1)


def read_produce(frame: bytes, version: int) -> tuple[list[Outcome], int, dict[int, Address]]:
    """(outcomes, throttle_time_ms, endpoints of new leaders) of an answer of version 9 to 13."""
    at = 5  # behind the correlation id and the header's tags
    outcomes: list[Outcome] = []
    topics, at = read_uvarint(frame, at)
    for _ in range(topics - 1):
        if version >= _FIRST_TOPIC_ID:
            at += 16
        else:
            length, at = read_uvarint(frame, at)
            at += length - 1
        partitions, at = read_uvarint(frame, at)
        for _ in range(partitions - 1):
            partition, error_code, offset, _, start, errors, message, tags = _PARTITION.unpack_from(frame, at)
            leader = _NO_LEADER
            if errors == 1 and not message and not tags:
                at += _PARTITION.size
            else:
                reader = Reader(frame, at + 30, len(frame), flexible=True)
                leader = _rest_of_partition(reader)
                at = reader.pos
            outcomes.append(Outcome(partition, error_code, offset, start, leader))
        at = skip_tags(frame, at, len(frame))
    (throttle_ms,) = struct.unpack_from(">i", frame, at)
    endpoints = dict(_endpoints(frame, at + 4)) if frame[at + 4] else {}
    return outcomes, throttle_ms, endpoints


def _rest_of_partition(reader: Reader) -> tuple[int, int]:
    for _ in range(reader.count(4)):
        reader.skip(4)
        reader.skip_string()
        reader.skip_tags()
    reader.skip_string()
    for tag, _, content, _ in reader.tags():
        if tag == 0:
            leader: tuple[int, int] = struct.unpack_from(">ii", reader.buf, content)
            return leader
    return _NO_LEADER


def _endpoints(frame: bytes, at: int) -> Iterator[tuple[int, Address]]:
    for tag, _, content, end in Reader(frame, at, len(frame), flexible=True).tags():
        if tag == 0:
            reader = Reader(frame, content, end, flexible=True)
            for _ in range(reader.count(7)):
                node_id, host, port = reader.i32(), reader.string(), reader.i32()
                reader.skip_string()
                reader.skip_tags()
                yield node_id, (host, port)


def read(api_key: int, version: int, frame: bytes) -> Any:
    """Any other answer, as the second codec has it."""
    return codec.decode_response(api_key, version, frame, 0, len(frame))


class Coordinator(NamedTuple):
    """Who coordinates a transactional id."""

    error_code: int
    node_id: int
    host: str
    port: int


def read_coordinator(frame: bytes, version: int) -> Coordinator:
    """An answer to FindCoordinator of one key."""
    answer = read(FIND_COORDINATOR, version, frame)
    found = answer.coordinators[0] if version >= 4 else answer
    return Coordinator(found.error_code, found.node_id, found.host, found.port)


def read_add_partitions(frame: bytes, version: int) -> dict[int, int]:
    """Error codes by partition, of an answer to AddPartitionsToTxn about one topic."""
    answer = read(ADD_PARTITIONS, version, frame)
    return {
        one.partition_index: one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }
