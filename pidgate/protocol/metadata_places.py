"""Metadata responses (api key 3, versions 0-13): brokers, and leaders and replicas of each partition.

For analysis of the cluster's layout, not for forwarding: metadata.py forwards, and documents the versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, unpack_from
from typing import Final, NamedTuple

from pidgate.protocol.errors import UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader
from pidgate.protocol.metadata import MAX_VERSION, METADATA

_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_TOPIC_IDS: Final = 10
_INDEX_AND_LEADER: Final = Struct(">2xii").unpack_from  # after the error code


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str
    """Empty if the broker has no rack or the version no such field."""


class Cluster(NamedTuple):
    """Cluster id and brokers."""

    cluster_id: str
    brokers: list[Broker]


class TopicPartitions(NamedTuple):
    """A topic without error: leader (-1: none) and replicas of each partition, by index."""

    name: str
    leaders: tuple[int, ...]
    replicas: tuple[tuple[int, ...], ...]


def places(buf: Buffer, start: int, end: int, version: int) -> Iterator[Cluster | TopicPartitions]:
    """Yield the cluster, then the topics, of the Metadata response buf[start:end] (header included).

    A generator, so that a large response can be read a few topics at a time. Skips topics with an error,
    without a name, or with gaps in their partition indexes. Raises MalformedFrame or UnsupportedVersion on
    the way.
    """
    if not 0 <= version <= MAX_VERSION:
        raise UnsupportedVersion(METADATA, version)
    answer = Reader(buf, start, end)
    answer.skip(4)
    answer.flexible = version >= _FIRST_FLEXIBLE
    answer.skip_tags()
    if version >= 3:
        answer.skip(4)
    brokers = [_broker(answer, version) for _ in range(answer.count(10))]
    cluster_id = (answer.nullable_string() or "") if version >= 2 else ""
    if version >= 1:
        answer.skip(4)
    yield Cluster(cluster_id, brokers)
    for _ in range(answer.count(8)):
        topic = _topic(answer, version)
        if topic is not None:
            yield topic


def _broker(answer: Reader, version: int) -> Broker:
    node_id, host, port = answer.i32(), answer.string(), answer.i32()
    rack = (answer.nullable_string() or "") if version >= 1 else ""
    answer.skip_tags()
    return Broker(node_id, host, port, rack)


def _topic(answer: Reader, version: int) -> TopicPartitions | None:
    error_code = answer.i16()
    name = answer.nullable_string()
    if version >= _FIRST_WITH_TOPIC_IDS:
        answer.skip(16)
    if version >= 1:
        answer.skip(1)
    found: dict[int, tuple[int, tuple[int, ...]]] = {}
    fixed = 14 if version >= 7 else 10
    buf = answer.buf
    for _ in range(answer.count(18)):
        index, leader = _INDEX_AND_LEADER(buf, answer.skip(fixed))
        replicas = answer.count(4)
        found[index] = leader, unpack_from(f">{replicas}i", buf, answer.skip(4 * replicas))
        for _ in range(2 if version >= 5 else 1):  # in sync, offline
            answer.skip(4 * answer.count(4))
        answer.skip_tags()
    if version >= 8:
        answer.skip(4)
    answer.skip_tags()
    if error_code or not name or sorted(found) != list(range(len(found))):
        return None
    in_order = [found[index] for index in range(len(found))]
    return TopicPartitions(name, tuple(place[0] for place in in_order), tuple(place[1] for place in in_order))
