"""Frames at a broker: Produce read and answered by hand and fast, every other message through the cold codec. Pure.

Layout: common/message/Produce{Request,Response}.json of Kafka 4.3.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pidgate.protocol.frames import Reader, array_count, encode_string, framed, uvarint
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.produce import FIRST_FLEXIBLE, FIRST_TOPIC_ID
from pidgate.protocol.produce_answers import FIRST_WITH_ENDPOINTS

FIRST_PRODUCE_VERSION: Final = 3
"""Kafka 4 names 0 in ApiVersions, and closes the connection of who sends 0 to 2 (KAFKA-18659)."""

_WITH_START_OFFSET: Final = 5
_WITH_MESSAGES: Final = 8
_PARTITION_V3: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
_I32: Final = struct.Struct(">i")
_NO_TIMESTAMP: Final = -1


class ProduceRequest(NamedTuple):
    """A Produce request, topics as they are named: by name, or from version 13 by their 16 bytes."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[bytes, list[tuple[int, bytes | None]]]]


class PartitionAnswer(NamedTuple):
    """One partition of a Produce answer."""

    partition: int
    error_code: int
    base_offset: int = -1
    leader_epoch: int = -1
    leader: int = -1
    """The current leader, with NOT_LEADER_OR_FOLLOWER from version 10 on (KIP-951)."""


Endpoint = tuple[int, str, int]
"""Node id, host, port."""


def read_produce(frame: bytes, head: RequestHead) -> ProduceRequest:
    """Read a request of version 3 or newer. Raises KafkaProtocolError: a broker closes the connection then."""
    version = head.api_version
    reader = Reader(frame, head.body, len(frame), flexible=version >= FIRST_FLEXIBLE)
    transactional_id = reader.nullable_string()
    acks, timeout_ms = reader.i16(), reader.i32()
    topics = []
    for _ in range(reader.count(3)):
        key = reader.read_bytes(16) if version >= FIRST_TOPIC_ID else reader.raw_string() or b""
        partitions: list[tuple[int, bytes | None]] = []
        for _ in range(reader.count(5)):
            index = reader.i32()
            length = reader.length(wide=True)
            partitions.append((index, None if length < 0 else reader.read_bytes(length)))
            reader.skip_tags()
        reader.skip_tags()
        topics.append((key, partitions))
    reader.skip_tags()
    reader.finish()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def produce_answer(
    head: RequestHead,
    topics: list[tuple[bytes, list[PartitionAnswer]]],
    endpoints: list[Endpoint],
    throttle_time_ms: int = 0,
) -> bytes:
    """Return the framed answer; `endpoints` are those of the leaders that it names."""
    version = head.api_version
    flexible = version >= FIRST_FLEXIBLE
    no_tags = b"\x00" if flexible else b""
    parts = [_I32.pack(head.correlation_id), no_tags, array_count(len(topics), flexible=flexible)]
    for key, partitions in topics:
        if version >= FIRST_TOPIC_ID:
            parts.append(key)
        else:
            parts.append(uvarint(len(key) + 1) + key if flexible else struct.pack(">h", len(key)) + key)
        parts.append(array_count(len(partitions), flexible=flexible))
        parts += [_partition(version, partition) for partition in partitions]
        parts.append(no_tags)
    parts.append(_I32.pack(throttle_time_ms))
    parts.append(_endpoints(endpoints) if endpoints and version >= FIRST_WITH_ENDPOINTS else no_tags)
    return framed(*parts)


def _partition(version: int, partition: PartitionAnswer) -> bytes:
    index, error_code, base_offset, leader_epoch, leader = partition
    if version < _WITH_START_OFFSET:
        return _PARTITION_V3.pack(index, error_code, base_offset, _NO_TIMESTAMP)
    start_offset = -1 if error_code else 0
    fixed = _PARTITION_V5.pack(index, error_code, base_offset, _NO_TIMESTAMP, start_offset)
    if version < _WITH_MESSAGES:
        return fixed
    if version < FIRST_FLEXIBLE:
        return fixed + b"\x00\x00\x00\x00\xff\xff"
    if leader < 0 or version < FIRST_WITH_ENDPOINTS:
        return fixed + b"\x01\x00\x00"
    # One tagged field, number 0: current_leader, of node id, epoch and no tags.
    return fixed + b"\x01\x00" + b"\x01\x00\x09" + struct.pack(">ii", leader, leader_epoch) + b"\x00"


def _endpoints(endpoints: list[Endpoint]) -> bytes:
    no_rack = no_tags = b"\x00"
    content = array_count(len(endpoints), flexible=True) + b"".join(
        struct.pack(">i", node_id)
        + encode_string(host, flexible=True)
        + struct.pack(">i", port)
        + no_rack
        + no_tags
        for node_id, host, port in endpoints
    )
    return b"\x01\x00" + uvarint(len(content)) + content
