"""ApiVersions, Metadata and FindCoordinator: what depends on nothing but where topics lie. Pure.

Kafka: KafkaApis.handleApiVersionsRequest, handleTopicMetadataRequest, handleFindCoordinatorRequest; ApiVersionManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from pidgate.protocol import codec, messages
from pidgate.protocol.headers import RequestHead
from tests.simulator.brokers.nodes import Nodes
from tests.simulator.brokers.partition import Partition
from tests.simulator.brokers.sessions import Session
from tests.simulator.brokers.topics import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Topic,
    Topics,
    internal_partition,
)
from tests.support import raw

FIND_COORDINATOR: Final = 10

OFFERED: Final[Mapping[int, tuple[int, int]]] = {
    0: (0, 13),
    1: (4, 17),
    2: (1, 10),
    messages.METADATA: (0, 13),
    8: (2, 9),
    FIND_COORDINATOR: (0, 6),
    11: (2, 9),
    12: (0, 4),
    messages.SASL_HANDSHAKE: (0, 1),
    messages.API_VERSIONS: (0, 4),
    messages.INIT_PRODUCER_ID: (0, 5),
    24: (0, 3),
    25: (0, 4),
    messages.END_TXN: (0, 5),
    28: (0, 5),
    messages.SASL_AUTHENTICATE: (0, 2),
}
"""Of Kafka 4.3's ranges, what is served here. (Between brokers AddPartitionsToTxn goes on to 5.) Without Fetch
librdkafka would take the cluster for an old one, and send messages of magic 1."""
READ_ONLY: Final = (messages.API_VERSIONS, messages.METADATA, FIND_COORDINATOR)
_NO_TOPIC: Final = UUID(int=0)


def is_served(head: RequestHead) -> bool:
    """Return whether a broker reads this request at all; otherwise it closes the connection."""
    low, high = OFFERED.get(head.api_key, (0, -1))
    return low <= head.api_version <= high and head.api_key != 0


def too_new_api_versions(head: RequestHead) -> bytes:
    """KIP-511: version 0 with UNSUPPORTED_VERSION, and the versions of ApiVersions."""
    low, high = OFFERED[messages.API_VERSIONS]
    keys = [{"api_key": messages.API_VERSIONS, "min_version": low, "max_version": high}]
    body = {"error_code": ErrorCode.unsupported_version, "api_keys": keys}
    return raw.response(head.api_key, 0, body, correlation_id=head.correlation_id)


def answer(nodes: Nodes, topics: Topics, session: Session, frame: bytes, head: RequestHead) -> bytes:
    """Return the framed answer to one of READ_ONLY. Raises KafkaProtocolError."""
    if head.api_key == messages.API_VERSIONS:
        body = _api_versions()
    elif head.api_key == messages.METADATA:
        body = _metadata(nodes, topics, session, codec.decode_request(frame, head), head.api_version)
    else:
        body = _find_coordinator(nodes, topics, session, codec.decode_request(frame, head), head.api_version)
    encoded = _encoded(head.api_key, head.api_version, body)
    return encoded[:4] + head.correlation_id.to_bytes(4, "big", signed=True) + encoded[8:]


_ENCODED: Final[dict[tuple[int, int, str], bytes]] = {}
"""Most answers are the same in every run: encoding them takes longer than all else that a model broker does."""
_MOST_ENCODED: Final = 10_000


def _encoded(api_key: int, version: int, body: dict[str, Any]) -> bytes:
    key = api_key, version, repr(body)
    found = _ENCODED.get(key)
    if found is None:
        if len(_ENCODED) >= _MOST_ENCODED:
            _ENCODED.clear()
        found = _ENCODED[key] = raw.response(api_key, version, body, correlation_id=0)
    return found


def _api_versions() -> dict[str, Any]:
    """transaction.version 2 is finalized, as in every cluster that was formatted with Kafka 4."""
    feature = {"name": "transaction.version"}
    return {
        "api_keys": [
            {"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in OFFERED.items()
        ],
        "supported_features": [{**feature, "min_version": 0, "max_version": 2}],
        "finalized_features_epoch": 1,
        "finalized_features": [{**feature, "min_version_level": 2, "max_version_level": 2}],
    }


def _metadata(nodes: Nodes, topics: Topics, session: Session, request: Any, version: int) -> dict[str, Any]:
    if request.topics is None or (version == 0 and not request.topics):
        found = [_topic(topics, topic, session.node_id) for topic in topics.by_name.values()]
    else:
        found = []
        for asked in request.topics:
            topic_id = getattr(asked, "topic_id", None) or _NO_TOPIC
            if topic_id != _NO_TOPIC:
                topic = topics.by_id.get(topic_id.bytes)
                error = ErrorCode.unknown_topic_id
            else:
                topic = topics.by_name.get(asked.name)
                error = ErrorCode.unknown_topic_or_partition
            missing = {"error_code": error, "name": asked.name, "topic_id": topic_id, "partitions": []}
            found.append(missing if topic is None else _topic(topics, topic, session.node_id))
    running = nodes.running
    return {
        "brokers": [_endpoint(nodes, session, node_id) for node_id in running],
        "cluster_id": "model-cluster",
        "controller_id": running[0] if running else -1,
        "topics": found,
    }


def _endpoint(nodes: Nodes, session: Session, node_id: int) -> dict[str, Any]:
    _, host, port = nodes.endpoint(node_id, session.listener.name)
    return {"node_id": node_id, "host": host, "port": port, "rack": None}


def _topic(topics: Topics, topic: Topic, node_id: int) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": UUID(bytes=topic.topic_id),
        "is_internal": topic.name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC),
        "partitions": [
            _partition(partition, *topics.shown_leader(partition, node_id)) for partition in topic.partitions
        ],
    }


def _partition(partition: Partition, leader: int | None, leader_epoch: int) -> dict[str, Any]:
    has_leader = leader is not None
    return {
        "error_code": ErrorCode.none if has_leader else ErrorCode.leader_not_available,
        "partition_index": partition.index,
        "leader_id": leader if has_leader else -1,
        "leader_epoch": leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.in_sync),
        "offline_replicas": [node for node in partition.replicas if node not in partition.in_sync],
    }


def _find_coordinator(
    nodes: Nodes, topics: Topics, session: Session, request: Any, version: int
) -> dict[str, Any]:
    """Version 4 and newer ask for several at once (KIP-699)."""
    name = TRANSACTIONS_TOPIC if version > 0 and request.key_type == 1 else OFFSETS_TOPIC
    if version < 4:
        return _coordinator(nodes, topics, session, name, request.key)
    return {
        "coordinators": [
            {"key": key, **_coordinator(nodes, topics, session, name, key)}
            for key in request.coordinator_keys
        ]
    }


def _coordinator(nodes: Nodes, topics: Topics, session: Session, topic: str, key: str) -> dict[str, Any]:
    leader = topics.internal(topic, internal_partition(key)).leader
    if leader is None:
        error = ErrorCode.coordinator_not_available
        return {"error_code": error, "error_message": None, "node_id": -1, "host": "", "port": -1}
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        **_endpoint(nodes, session, leader),
    }
