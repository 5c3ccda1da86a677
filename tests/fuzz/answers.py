"""Brokers' answers to clients, compared with kio."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final, cast
from uuid import UUID

from pidgate.protocol import (
    addresses,
    client_quotas,
    fetch,
    gateway_topics,
    messages,
    metadata,
    metadata_places,
    throttle,
)
from pidgate.protocol import produce_answers as produced
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.gateway_topics import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_TOPIC_PARTITIONS,
    GatewayTopicSet,
    filtering,
)
from pidgate.protocol.headers import peek_request
from pidgate.protocol.versions import SPOKEN, speaks
from pidgate.protocol.work import at_once
from tests.fuzz.kio_oracle import SELECTOR, drawn_answers, kios, parts, seeds
from tests.fuzz.requests import REFUSALS, TOPIC, TOPIC_ID, NotTaken
from tests.fuzz.target import Target
from tests.support import raw
from tests.support.api_versions import api_versions_answer
from tests.support.frames import (
    entity_class,
    partition_errors,
    read_response,
    response_frame,
    streams_addresses,
    translated,
    unframed,
)

PRODUCE, FETCH, METADATA, DESCRIBE_CONFIGS = 0, 1, 3, 32
_STREAMED: Final = (1, 78)
_THROTTLE_MS: Final = 4711


# ---- addresses ------------------------------------------------------------------------------------------


def _gateway(node_id: int, host: str, port: int) -> tuple[str, int]:
    return "g" * len(host.encode()), 9300 + node_id % 100


def _rewritten(data: bytes) -> object:
    api_key, version, frame = parts(data)
    if not addresses.shows_addresses(api_key, version):
        raise NotTaken
    return addresses.rewrite(api_key, version, frame, 0, len(frame), _gateway)


def _all_translated(data: bytes, answer: object) -> None:
    assert isinstance(answer, bytes)
    api_key, version, frame = parts(data)
    if (entity := kios(api_key, version, frame)) is not None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        shown = _emptied(entity) if api_key == DESCRIBE_CONFIGS else translated(entity, _gateway)
        assert unframed(answer) == response_frame(shown, correlation_id)


_BROKER: Final = 4
_HELD: Final = ("listeners", "advertised.listeners", "controller.quorum.voters", "zookeeper.connect")


def _emptied(entity: Any) -> Any:
    """The settings of brokers without the values that hold addresses, the synonyms' among them."""
    return replace(
        entity,
        results=tuple(
            replace(result, configs=tuple(map(_without_address, result.configs)))
            if result.resource_type == _BROKER
            else result
            for result in entity.results
        ),
    )


def _without_address(setting: Any) -> Any:
    if setting.name in _HELD or setting.name.endswith("bootstrap.servers"):
        setting = replace(setting, value=None)
    if not getattr(setting, "synonyms", ()):
        return setting
    return replace(setting, synonyms=tuple(map(_without_address, setting.synonyms)))


def _address_seeds() -> Iterator[bytes]:
    yield from seeds(*_SHOWN)()
    names = itertools.cycle((*_HELD, "log.dirs", "controller.quorum.bootstrap.servers"))
    for version in range(1, 5):
        for data in drawn_answers(DESCRIBE_CONFIGS, version, 12):
            read = read_response(entity_class(DESCRIBE_CONFIGS, version), data[SELECTOR.size :])
            results = tuple(_named(result, names) for result in read.results)
            yield data[: SELECTOR.size] + response_frame(replace(read, results=results))


def _named(result: Any, names: Iterator[str]) -> Any:
    configs = tuple(
        replace(
            setting,
            name=next(names),
            synonyms=tuple(replace(synonym, name=next(names)) for synonym in setting.synonyms),
        )
        for setting in result.configs
    )
    return replace(result, resource_type=_BROKER, configs=configs)


# ---- fetches --------------------------------------------------------------------------------------------


def _walked(data: bytes) -> object:
    api_key, version, frame = parts(data, *_STREAMED)
    walker = fetch.EndpointsWalker(api_key, version, len(frame), _gateway)
    throttle_at = throttle.fetch_throttle_in(frame, 0, len(frame), api_key, version)
    return b"".join(walker.feed_chunk(memoryview(frame))), throttle_at


def _same_in_chunks(data: bytes, found: object) -> None:
    whole, throttle_at = cast("tuple[bytes, int | None]", found)
    api_key, version, frame = parts(data)
    walker = fetch.EndpointsWalker(api_key, version, len(frame), _gateway)
    out = b"".join(
        bytes(part) for at in range(len(frame)) for part in walker.feed_chunk(memoryview(frame[at : at + 1]))
    )
    assert out == whole
    if (entity := kios(api_key, version, frame)) is not None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        assert whole == response_frame(translated(entity, _gateway), correlation_id)
        if throttle_at is not None:
            told_ms = entity.throttle_time.total_seconds() * 1000
            assert throttle.read(frame, throttle_at) == round(told_ms)


def _fetch_seeds() -> Iterator[bytes]:
    return (data for data in seeds(*_STREAMED)() if streams_addresses(*SELECTOR.unpack_from(data)))


# ---- Produce --------------------------------------------------------------------------------------------


def _errors(data: bytes) -> object:
    _, version, frame = parts(data, PRODUCE)
    size = len(frame)
    is_whole = size < 4 or produced.has_head(
        size.to_bytes(4, "big") + frame, size, int.from_bytes(frame[:4], "big")
    )
    assert is_whole
    plain = produced.is_plain_success(frame, 0, len(frame), version)
    may_hold = produced.may_hold_errors(frame, 0, len(frame), version)
    errors = partition_errors(frame, 0, len(frame), version)
    return plain, may_hold, errors, throttle.produce_throttle_at(frame, 0, len(frame), version)


def _same_errors(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    plain, may_hold, errors, throttle_at = found
    _, version, frame = parts(data)
    if (entity := kios(PRODUCE, version, frame)) is None:
        return
    theirs = [
        (partition.index, int(partition.error_code))
        for topic in entity.responses
        for partition in topic.partition_responses
        if partition.error_code
    ]
    assert [(partition, code) for _, partition, code in errors] == theirs
    assert not (theirs and plain)
    assert may_hold or not theirs
    patched = bytearray(frame)
    throttle.write(patched, throttle_at, _THROTTLE_MS)
    again = kios(PRODUCE, version, bytes(patched))
    assert again is not None
    assert round(again.throttle_time.total_seconds() * 1000) == _THROTTLE_MS
    assert again.responses == entity.responses


# ---- topics ---------------------------------------------------------------------------------------------


@cache
def _refusals(version: int) -> tuple[bytes, ...]:
    """What stands in an answer for the gateway's topic, which the request named."""
    request = raw.request(METADATA, version, {"topics": [{"name": TOPIC}]})[4:]
    head = peek_request(request, 0, len(request))
    cut = gateway_topics.cut_metadata_request(request, head, GatewayTopicSet([TOPIC]))
    assert cut is not None
    return cut.refusals


def _filtered(data: bytes) -> object:
    api_key, version, frame = parts(data, METADATA, DESCRIBE_TOPIC_PARTITIONS, CONSUMER_GROUP_HEARTBEAT)
    topics = GatewayTopicSet([TOPIC])
    topics.learn_id(TOPIC_ID)
    listed: list[Any] = []
    if api_key == METADATA:
        listed = [list(metadata.topic_ids(frame, 0, len(frame), version))]
        listed.append(list(metadata_places.places(frame, 0, len(frame), version)))
        listed.append(gateway_topics.with_refusals(frame, 0, len(frame), version, _refusals(version)))
        if version == messages.METADATA_PROBE_VERSION:
            listed.append(list(metadata.topic_rights(frame, 0, len(frame), version)))
    return at_once(filtering(api_key, version, frame, 0, len(frame), topics)), listed


def _without_ours(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    answer, listed = found
    api_key, version, frame = parts(data)
    if (entity := kios(api_key, version, frame)) is None:
        return
    if api_key == CONSUMER_GROUP_HEARTBEAT:
        left = entity if answer is None else read_response(type(entity), unframed(answer))
        assert left == _without_our_assignment(entity)
        return
    if answer is not None:
        left = read_response(entity_class(api_key, version), unframed(answer))
        assert (left.topics or ()) == tuple(topic for topic in entity.topics or () if topic.name != TOPIC)
    else:
        assert TOPIC not in {topic.name for topic in entity.topics or ()}
    if api_key == METADATA:
        refused, *others = read_response(entity_class(api_key, version), unframed(listed[2])).topics
        assert (refused.name, refused.error_code) == (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert tuple(others) == (entity.topics or ())
        names = [(broker.node_id, broker.host, broker.port) for broker in entity.brokers or ()]
        assert [broker[:3] for broker in listed[1][0].brokers] == names
        if version >= 10:
            ids = {
                (topic.name, topic.topic_id.bytes)
                for topic in entity.topics or ()
                if topic.name and topic.topic_id
            }
            assert set(listed[0]) == ids
        if version == messages.METADATA_PROBE_VERSION:
            theirs = [(topic.name or "", int(topic.error_code)) for topic in entity.topics or ()]
            assert [(one.name, one.error_code) for one in listed[3]] == theirs


def _without_our_assignment(heartbeat: Any) -> Any:
    if heartbeat.assignment is None:
        return heartbeat
    kept = tuple(
        topic
        for topic in heartbeat.assignment.topic_partitions
        if topic.topic_id is None or topic.topic_id.bytes != TOPIC_ID
    )
    return replace(heartbeat, assignment=replace(heartbeat.assignment, topic_partitions=kept))


def _topic_seeds() -> Iterator[bytes]:
    for data in seeds(METADATA, DESCRIBE_TOPIC_PARTITIONS, CONSUMER_GROUP_HEARTBEAT)():
        yield data
    for version in (5, 9, 12):
        entity = entity_class(METADATA, version)
        for data in drawn_answers(METADATA, version, 12):
            read = read_response(entity, data[4:])
            topics = tuple(replace(topic, name=TOPIC) for topic in read.topics)
            yield data[:4] + response_frame(replace(read, topics=topics))
    for data in drawn_answers(CONSUMER_GROUP_HEARTBEAT, 1, 24):
        read = read_response(entity_class(CONSUMER_GROUP_HEARTBEAT, 1), data[4:])
        if read.assignment is not None:
            assigned = [
                replace(topic, topic_id=UUID(bytes=TOPIC_ID)) for topic in read.assignment.topic_partitions
            ]
            ours = replace(read.assignment, topic_partitions=(*assigned, *read.assignment.topic_partitions))
            yield data[:4] + response_frame(replace(read, assignment=ours))


# ---- the small ones -------------------------------------------------------------------------------------

_INIT_PRODUCER_ID, _END_TXN, _API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = 22, 26, 18, 17, 36


def _small(data: bytes) -> object:
    api_key, version, frame = parts(data, *_SMALL)
    return api_key, _SMALL[api_key](frame, 0, len(frame), version)


def _before_a_login(question: messages.Question, answer: bytes) -> tuple[bytes, object]:
    """The answer as a client gets it that asks by itself, and what its broker is held to."""
    messages.check_answer(question, answer)
    number = int.from_bytes(answer[:4], "big", signed=True)
    if question.api_key == _HANDSHAKE:
        return messages.sasl_handshake_from(answer, number, "PLAIN")
    own = messages.api_versions_from(answer, number, question.api_version)
    return own, (messages.question_error(answer), messages.offer_of(answer, question.api_version))


_SMALL: Final[dict[int, Callable[[bytes, int, int, int], object]]] = {
    _INIT_PRODUCER_ID: messages.init_producer_id_answer,
    _END_TXN: messages.end_txn_answer,
    _API_VERSIONS: lambda buf, start, end, version: (
        api_versions_answer(buf, start, end, version),
        messages.cap_api_versions(buf, start, end, version),
        *_before_a_login(messages.Question(b"", _API_VERSIONS, version), buf[start:end]),
    ),
    _HANDSHAKE: lambda buf, start, end, version: (
        messages.sasl_handshake_answer(buf, start, end, version),
        *_before_a_login(messages.Question(b"", _HANDSHAKE, version), buf[start:end]),
    ),
    _AUTHENTICATE: messages.sasl_answer,
    client_quotas.ALTER_CLIENT_QUOTAS: client_quotas.read_alter_answer,
    client_quotas.DESCRIBE_CLIENT_QUOTAS: lambda buf, start, end, version: (
        client_quotas.read_described(buf[start:end]) if version else None,
        client_quotas.adding_user_values(
            buf, start, end, version, {"alice": {"producer_ids_rate": 5.0}, None: {"producer_ids_rate": 1.0}}
        ).finish(),
    ),
}


def _same_small(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    api_key, ours = found
    _, version, frame = parts(data)
    if (entity := kios(api_key, version, frame)) is None:
        return
    if api_key in (_INIT_PRODUCER_ID, _END_TXN):
        assert ours.error_code == entity.error_code
        if api_key == _INIT_PRODUCER_ID or version >= 5:
            assert (ours.producer_id, ours.producer_epoch) == (entity.producer_id, entity.producer_epoch)
    elif api_key == _API_VERSIONS:
        ours, framed, own, (error_code, offer) = ours
        assert own == framed
        assert error_code == ours.error_code
        assert offer
        assert ours.error_code == entity.error_code
        theirs = {api.api_key: (api.min_version, api.max_version) for api in entity.api_keys or ()}
        if len(theirs) < len(entity.api_keys or ()):
            return  # one is given twice
        assert ours.ranges == theirs
        capped = unframed(framed)
        offered = api_versions_answer(capped, 0, len(capped), version).ranges
        assert all(
            key in theirs and low >= theirs[key][0] and high <= theirs[key][1]
            for key, (low, high) in offered.items()
        )
        assert all(speaks(key, edge) for key, edges in offered.items() for edge in edges)
    elif api_key == _HANDSHAKE:
        ours, own, error_code = ours
        assert (ours.error_code, ours.mechanisms) == (entity.error_code, entity.mechanisms)
        again = read_response(type(entity), unframed(own))
        assert again.mechanisms == entity.mechanisms
        assert error_code == again.error_code
        assert (error_code == 0) == (entity.error_code in (0, 33) and "PLAIN" in entity.mechanisms)
    elif api_key == _AUTHENTICATE:
        assert ours == (entity.error_code, entity.auth_bytes)
    elif api_key == client_quotas.ALTER_CLIENT_QUOTAS:
        assert {outcome.error_code for outcome in ours.outcomes.values()} <= {
            int(entry.error_code) for entry in entity.entries or ()
        }
    elif ours[1] is not None:
        described, ours = ours
        assert described is None or described == (entity.error_code, entity.error_message or "")
        again = read_response(entity_class(api_key, version), unframed(ours))
        values = {
            entry.entity[0].entity_name: {value.key for value in entry.values}
            for entry in again.entries
            if [one.entity_type for one in entry.entity] == ["user"]
        }
        assert all("producer_ids_rate" in values[user] for user in ("alice", None))


_SHOWN: Final = tuple(
    api_key
    for api_key, api in SPOKEN.items()
    if any(addresses.shows_addresses(api_key, v) for v in range(api.min_version, api.max_version + 1))
)

TARGETS: Final = (
    Target("addresses", _rewritten, _all_translated, _address_seeds, REFUSALS),
    Target("fetch_answers", _walked, _same_in_chunks, _fetch_seeds, REFUSALS),
    Target("produce_answers", _errors, _same_errors, seeds(PRODUCE), REFUSALS),
    Target("topic_answers", _filtered, _without_ours, _topic_seeds, REFUSALS),
    Target("small_answers", _small, _same_small, seeds(*_SMALL), REFUSALS),
)
