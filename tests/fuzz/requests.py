"""Requests, as clients send them (frames without their size), compared with Kafka's own classes."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.protocol import client_quotas, messages, throttle
from pidgate.protocol.credential_refusals import refuse_credentials
from pidgate.protocol.errors import ErrorCode, KafkaProtocolError
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.produce import FIRST_TOPIC_ID, ForbiddenTopic, transactional_id, walk, walk_counting
from pidgate.protocol.produce_answers import refusal
from pidgate.protocol.repeated_produce import BEGINNING_BYTES, RepeatedProduce
from pidgate.protocol.transaction_parts import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    TRANSACTION_PARTS,
    TransactionPart,
    part_refused,
    transaction_part,
)
from pidgate.protocol.versions import SPOKEN, speaks
from tests.fuzz.kafka_oracle import Refused, kafka
from tests.fuzz.target import Target
from tests.support import raw
from tests.support.frames import places_of, produce_request, record_batch
from tests.support.meant_node import api_versions, meant
from tests.support.produce_frames import CLIENT_FRAMES
from tests.support.topic_fields import named_in_each_field

PRODUCE: Final = 0
FETCH: Final = 1
_THROTTLE_MS: Final = 4711
SHARE_FETCH: Final = 78
TOPIC: Final = "__pidgate_events"
TOPIC_ID: Final = bytes(range(16))
_ID_IN_JSON: Final = urlsafe_b64encode(TOPIC_ID).decode().rstrip("=")

Read = Callable[[bytes, RequestHead], object]


class NotTaken(Exception):
    """Not a request of this target."""


def _head(data: bytes, *api_keys: int) -> RequestHead:
    head = peek_request(data, 0, len(data))
    if not speaks(head.api_key, head.api_version) or (api_keys and head.api_key not in api_keys):
        raise NotTaken
    return head


def _kafkas(data: bytes) -> dict[str, Any] | None:
    try:
        return kafka().request(data)
    except Refused:
        return None


# ---- headers --------------------------------------------------------------------------------------------


def _same_head(data: bytes, head: object) -> None:
    assert isinstance(head, RequestHead)
    theirs = _kafkas(data)
    if theirs is not None:
        assert head.correlation_id == theirs["correlationId"]
        assert (head.client_id or "") == (theirs["clientId"] or "")


# ---- Produce --------------------------------------------------------------------------------------------


def _produce(data: bytes) -> object:
    head = _head(data, PRODUCE)
    acks, transactional, batches = walk(data, head)
    again = RepeatedProduce()
    again.walk(data, head)
    begins = again.recognise_beginning(data[:BEGINNING_BYTES], len(data))
    repeats = again.recognise_request(data, 0, len(data))
    assert again.recognise_request(bytearray(data), 0, len(data)) is repeats, (
        "known in one kind of buffer only"
    )
    assert begins or not repeats or again.batches != 1, "known as a whole, and not by its beginning"
    refused = refusal(data, head, _THROTTLE_MS, "no")
    return acks, transactional, batches, transactional_id(data, head), repeats, again, refused


def _same_batches(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    acks, transactional, batches, named, repeats, again, refused = found
    if repeats:
        assert {batch[0] for batch in batches} == {again.producer_id}
        assert [batch[3:] for batch in batches] == places_of(again)
        assert again.acks == acks
    theirs = _kafkas(data)
    if theirs is None:
        return
    by_id = _head(data).api_version >= FIRST_TOPIC_ID
    known = [batch for batch in theirs["batches"] if batch[0] >= 0]
    ours = [(*batch[:3], batch[4]) for batch in batches]
    assert ours == [(*batch[:3], batch[5]) for batch in known]
    if by_id:
        ids = [urlsafe_b64encode(batch[3][1:]).decode().rstrip("=") for batch in batches]
        assert ids == [batch[4] for batch in known]
    else:
        assert [batch[3].decode("utf-8", "replace") for batch in batches] == [batch[3] for batch in known]
    assert acks == theirs["body"]["acks"]
    their_name = theirs["body"]["transactionalId"]
    assert (None if named is None else named.decode("utf-8", "replace")) == their_name
    assert transactional == (their_name is not None and all(batch[6] for batch in known))
    _check_refused(_head(data).api_version, refused, theirs["body"])


def _check_refused(version: int, refused: bytes, body: dict[str, Any]) -> None:
    """Each partition that Kafka reads has the error, in the same order."""
    answer = raw.decoded(PRODUCE, version, refused[4:])
    assert answer.get("throttle_time_ms", _THROTTLE_MS) == _THROTTLE_MS
    partitions = [[one["index"] for one in topic["partitionData"]] for topic in body["topicData"]]
    assert [
        [one["index"] for one in topic["partition_responses"]] for topic in answer["responses"]
    ] == partitions
    codes = {one["error_code"] for topic in answer["responses"] for one in topic["partition_responses"]}
    assert codes <= {ErrorCode.NOT_ENOUGH_REPLICAS}


def _produce_seeds() -> Iterator[bytes]:
    yield from CLIENT_FRAMES.values()
    for version in range(14):
        topic: Any = UUID(bytes=TOPIC_ID) if version >= FIRST_TOPIC_ID else "t"
        batches = record_batch(5, 1, 2, records=b"x"), record_batch(6, transactional=True)
        name = "tx" if version >= 3 else None
        yield produce_request(
            version, [(topic, [(0, batches[0]), (1, batches[1]), (2, None)])], transactional_id=name
        )


# ---- topics of the gateway's own ------------------------------------------------------------------------


def _topics() -> GatewayTopics:
    topics = GatewayTopics([TOPIC])
    topics.learn_id(TOPIC_ID)
    return topics


def _own_topics(data: bytes) -> object:
    head = _head(data)
    topics = _topics()
    if head.api_key == PRODUCE:
        try:
            walk_counting(data, head, topics.produced)
        except ForbiddenTopic:
            return True
        return False
    if head.api_key not in topics.guarded:
        raise NotTaken
    return topics.check_request(data, head) is not None


def _refused_if_kafka_sees_it(data: bytes, is_refused: object) -> None:
    """A topic in a cursor, or a name that is not a topic's, may be forwarded; these are found by their fields."""
    if is_refused or (theirs := _kafkas(data)) is None:
        return
    body = theirs["body"]
    body.pop("cursor", None)
    assert not set(_topics_in(body)) & {TOPIC, _ID_IN_JSON}, json.dumps(body)


_TOPIC_FIELDS: Final = frozenset(
    {"topic", "topics", "topicName", "topicNames", "topicId", "subscribedTopicNames"}
)


def _topics_in(node: Any, field: str = "") -> Iterator[str]:
    """Texts in fields that name topics: by their own name, or `name` and the like inside of `topics`."""
    if isinstance(node, dict):
        if node.get("resourceType") == 2:
            yield str(node.get("resourceName"))
        for name, value in node.items():
            named = name in _TOPIC_FIELDS or (name == "name" and field in ("topics", "topicData"))
            yield from _topics_in(value, name) if not isinstance(value, str) else [value] if named else []
    elif isinstance(node, list):
        for value in node:
            yield from (
                [value] if isinstance(value, str) and field in _TOPIC_FIELDS else _topics_in(value, field)
            )


def _own_topic_seeds() -> Iterator[bytes]:
    for api_key, version, given in named_in_each_field(TOPIC):
        yield raw.request(api_key, version, given)[4:]


# ---- the small ones -------------------------------------------------------------------------------------


def _transaction_part(buf: bytes, head: RequestHead) -> tuple[TransactionPart, bytes]:
    """Refuse it, too, which reads all of it."""
    return transaction_part(buf, head), part_refused(buf, head)


def _api_versions(
    buf: bytes, head: RequestHead
) -> tuple[tuple[str, str] | None, messages.Question, bool, bytes | None]:
    """The client's software, the question to its broker, and the request without the node that it means."""
    software = messages.client_software(buf, head)
    asked = messages.api_versions_question(buf, head, passes_target=True)
    if head.api_version < messages.FIRST_WITH_MEANT_NODE:
        return software, asked, False, None
    return software, asked, messages.names_node(buf, head), messages.without_meant_node(buf, head)


_SMALL: Final[dict[int, Read]] = {
    messages.INIT_PRODUCER_ID: messages.init_producer_id_request,
    26: messages.end_txn_request,
    **dict.fromkeys(TRANSACTION_PARTS, _transaction_part),
    17: messages.sasl_mechanism,
    36: messages.sasl_token,
    messages.API_VERSIONS: _api_versions,
    client_quotas.ALTER_CLIENT_QUOTAS: client_quotas.read_alter,
    client_quotas.DESCRIBE_CLIENT_QUOTAS: client_quotas.read_filter,
    51: refuse_credentials,
}


def _small(data: bytes) -> object:
    head = _head(data, *_SMALL)
    return head.api_key, _SMALL[head.api_key](data, head)


def _same_small(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    api_key, ours = found
    if (theirs := _kafkas(data)) is None:
        return
    body = theirs["body"]
    if api_key == messages.INIT_PRODUCER_ID:
        named = body["transactionalId"], body.get("producerId", -1), body.get("producerEpoch", -1)
        assert (ours.transactional_id, ours.producer_id, ours.producer_epoch) == named
    elif api_key == 26:
        assert [ours.transactional_id, ours.producer_id, ours.producer_epoch, ours.committed] == [
            body[name] for name in ("transactionalId", "producerId", "producerEpoch", "committed")
        ]
    elif api_key in TRANSACTION_PARTS:
        _same_part(data, body, *ours)
    elif api_key == 36:
        assert ours == b64decode(body["authBytes"])
    elif api_key == messages.API_VERSIONS:
        _same_software(data, theirs, *ours)
    elif api_key == 17:
        assert ours == body["mechanism"]
    elif api_key == client_quotas.ALTER_CLIENT_QUOTAS:
        keys = [[op["key"] for op in entry["ops"]] for entry in body["entries"]]
        assert [[op.key for op in entry.operations] for entry in ours.entries] == keys
        assert ours.validate_only == body["validateOnly"]
        for entry, given in zip(ours.entries, body["entries"], strict=True):
            assert dict(entry.entity) == {one["entityType"]: one["entityName"] for one in given["entity"]}
    elif isinstance(ours, client_quotas.GatewayFilter):
        assert any(one["entityType"] == client_quotas.GATEWAY for one in body["components"])
        assert not ours.is_own or len(body["components"]) == 1
    elif api_key == client_quotas.DESCRIBE_CLIENT_QUOTAS and ours is not None:
        assert all(one["entityType"] == "user" for one in body["components"])
    elif api_key == 51:
        refused = {one["user"] for one in raw.decoded(51, 0, ours[4:])["results"]}
        assert refused == {one["name"] for one in (*body["deletions"], *body["upsertions"])}


def _same_part(data: bytes, body: dict[str, Any], ours: TransactionPart, refusal: bytes) -> None:
    """All that is read, and that the refusal is of each partition that Kafka reads."""

    def field(name: str) -> Any:
        return body.get(name, body.get(f"v3AndBelow{name[0].upper()}{name[1:]}"))

    head = _head(data)
    named = field("transactionalId"), field("producerId"), field("producerEpoch")
    assert (ours.transactional_id, ours.producer_id, ours.producer_epoch) == named
    topics = field("topics") or []
    if head.api_key == ADD_PARTITIONS_TO_TXN:
        first = topics[0]["name"] if topics else ""
        assert ours.topic.decode("utf-8", "replace") in (first, "" if len(first) > 60 else first)
    answer = raw.decoded(head.api_key, head.api_version, refusal[4:])
    refused = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if head.api_key == ADD_OFFSETS_TO_TXN:
        assert answer["error_code"] == refused
        return
    of_topics = answer.get("topics", answer.get("results_by_topic_v3_and_below")) or []
    assert len(of_topics) == len(topics)
    for given, topic in zip(of_topics, topics, strict=True):
        outcomes = given.get("partitions", given.get("results_by_partition"))
        assert [one["partition_index"] for one in outcomes] == [
            one["partitionIndex"] if isinstance(one, dict) else one for one in topic["partitions"]
        ]
        assert {one.get("error_code", one.get("partition_error_code")) for one in outcomes} <= {refused}


def _same_software(
    data: bytes,
    theirs: dict[str, Any],
    software: tuple[str, str] | None,
    asked: messages.Question,
    names_node: bool,
    without_node: bytes | None,
) -> None:
    body = theirs["body"]
    if software is not None:
        assert software == (body["clientSoftwareName"], body["clientSoftwareVersion"])
    if all(len(field or "") < 256 for field in (*(software or ()), body.get("clusterId"))):
        assert kafka().request(asked.frame[4:])["body"] == body
    if without_node is not None:
        assert names_node == (body.get("nodeId", -1) >= 0)
        left = kafka().request(without_node[4:])
        assert left["body"] == {**body, "clusterId": None, "nodeId": -1}
        assert left["correlationId"] == theirs["correlationId"]


def _a_transaction_part() -> dict[str, Any]:
    of = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 1}
    added = [{"name": TOPIC, "partitions": [3]}]
    committed = [{"name": TOPIC, "partitions": [{"partition_index": 3, "committed_offset": 5}]}]
    v3_and_below = {f"v3_and_below_{name}": value for name, value in {**of, "topics": added}.items()}
    return {**of, **v3_and_below, "group_id": "g", "member_id": "m", "topics": committed}


def _small_seeds() -> Iterator[bytes]:
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    ops = [{"key": "producer_ids_rate", "value": 5.0, "remove": False}]
    bodies: dict[int, dict[str, Any]] = {
        messages.INIT_PRODUCER_ID: {
            **{"transactional_id": "tx", "transaction_timeout_ms": 9, "producer_id": 7, "producer_epoch": 1},
            **{"enable2_pc": False, "keep_prepared_txn": False},
        },
        26: {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 1, "committed": True},
        **dict.fromkeys(TRANSACTION_PARTS, _a_transaction_part()),
        17: {"mechanism": "PLAIN"},
        36: {"auth_bytes": b"\0bob\0pw"},
        51: {"deletions": [{"name": "bob", "mechanism": 1}], "upsertions": []},
        messages.API_VERSIONS: {"client_software_name": "raw", "client_software_version": "1"},
        client_quotas.ALTER_CLIENT_QUOTAS: {
            "entries": [{"entity": entity, "ops": ops}],
            "validate_only": True,
        },
        client_quotas.DESCRIBE_CLIENT_QUOTAS: {
            "components": [{"entity_type": "user", "match_type": 0, "match": "alice"}],
            "strict": True,
        },
    }
    for api_key, body in bodies.items():
        for version in range(SPOKEN[api_key].min_version, SPOKEN[api_key].max_version + 1):
            if (api_key, version) == (messages.API_VERSIONS, messages.FIRST_WITH_MEANT_NODE):
                yield api_versions(version, meant("a-cluster", 7))[4:]  # newer than the codec
            else:
                yield raw.request(api_key, version, body)[4:]


# ---- fetches --------------------------------------------------------------------------------------------

_MOST_BYTES: Final = 1000


def _lowered(data: bytes) -> object:
    head = _head(data, FETCH, SHARE_FETCH)
    throttle.empty_fetch_answer(data, head, 1)
    return throttle.lowered_fetch(data, head, _MOST_BYTES) or data


def _only_lower(data: bytes, lowered: object) -> None:
    assert isinstance(lowered, bytes)
    before, head = _kafkas(data), _head(data)
    if before is not None:
        has_session = head.api_key == SHARE_FETCH or before["body"].get("sessionId", 0) != 0
        assert (throttle.empty_fetch_answer(data, head, 1) is None) is has_session
    if before is None or lowered is data:
        assert (
            before is None or before["body"].get("maxBytes", 0) <= _MOST_BYTES or _head(data).api_version < 3
        )
        return
    after = kafka().request(lowered[4:])
    assert after["body"].pop("maxBytes") == _MOST_BYTES < before["body"].pop("maxBytes")
    assert after == before


def _fetch_seeds() -> Iterator[bytes]:
    for api_key, version, given in named_in_each_field("t"):
        if api_key in (FETCH, SHARE_FETCH):
            yield raw.request(api_key, version, {**given, "max_bytes": 1 << 20})[4:]


REFUSALS: Final = (KafkaProtocolError, NotTaken)

TARGETS: Final = (
    Target("request_headers", _head, _same_head, lambda: (*_small_seeds(), *_fetch_seeds()), REFUSALS),
    Target("produce_requests", _produce, _same_batches, _produce_seeds, REFUSALS),
    Target("own_topics", _own_topics, _refused_if_kafka_sees_it, _own_topic_seeds, REFUSALS),
    Target("small_requests", _small, _same_small, _small_seeds, REFUSALS),
    Target("fetch_requests", _lowered, _only_lower, _fetch_seeds, REFUSALS),
)
