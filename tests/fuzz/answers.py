"""Brokers' answers, compared with kio. An input is api key, version (two bytes each) and a frame without its size.

An answer counts as read by kio when it gives the same bytes written again: then every field is what it seems.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings

from pidgate.protocol import addresses, client_quotas, fetch, messages, metadata, metadata_places, throttle
from pidgate.protocol import produce_answers as produced
from pidgate.protocol.gateway_topics import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_TOPIC_PARTITIONS,
    GatewayTopicSet,
    filtering,
)
from pidgate.protocol.versions import SPOKEN, speaks
from pidgate.protocol.work import at_once
from tests.fuzz.requests import REFUSALS, TOPIC, TOPIC_ID, NotTaken
from tests.fuzz.target import Target
from tests.support.api_versions import api_versions_answer
from tests.support.frames import entities, entity_class, read_response, response_frame, translated, unframed
from tests.support.produce_answers import partition_errors
from tests.support.streamed import streams_addresses

PRODUCE, FETCH, METADATA, DESCRIBE_CONFIGS = 0, 1, 3, 32
_SELECTOR: Final = struct.Struct(">hh")
_STREAMED: Final = (1, 78)
_THROTTLE_MS: Final = 4711


def _parts(data: bytes, *api_keys: int) -> tuple[int, int, bytes]:
    if len(data) < _SELECTOR.size:
        raise NotTaken
    api_key, version = _SELECTOR.unpack_from(data)
    if not speaks(api_key, version) or (api_keys and api_key not in api_keys):
        raise NotTaken
    return api_key, version, data[_SELECTOR.size :]


kio_may_abort = False
"""Set where inputs are not known: kio allocates what an array announces, and an allocation that fails ends the process.
Then a child process reads each input first."""

_KIOS_MEMORY_BYTES: Final = 1 << 30


def _kios(api_key: int, version: int, frame: bytes) -> Any | None:
    """What kio reads, if it is sure."""
    if kio_may_abort and not _survives(api_key, version, frame):
        return None
    try:
        entity = read_response(entity_class(api_key, version), frame)
        again = response_frame(entity, int.from_bytes(frame[:4], "big", signed=True))
    except Exception:  # noqa: BLE001 - it has many, and no class of them
        return None
    return entity if again == frame else None


def _survives(api_key: int, version: int, frame: bytes) -> bool:
    """Whether a process that lets kio read this ends by itself."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGABRT, signal.SIG_DFL)  # else the fuzzer's handler takes it for a finding
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Rust's last words
        used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + _KIOS_MEMORY_BYTES,) * 2)
        with contextlib.suppress(Exception):
            read_response(entity_class(api_key, version), frame)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return status == 0


@cache
def _drawn(api_key: int, version: int, count: int = 3) -> tuple[bytes, ...]:
    """Some valid answers, always the same."""
    found: list[bytes] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(entities(entity_class(api_key, version), 2))
    def draw(entity: Any) -> None:
        found.append(_SELECTOR.pack(api_key, version) + response_frame(entity))

    draw()
    return tuple(found)


def _seeds(*api_keys: int) -> Callable[[], Iterator[bytes]]:
    def seeds() -> Iterator[bytes]:
        for api_key in api_keys:
            api = SPOKEN[api_key]
            for version in range(api.min_version, api.max_version + 1):
                try:
                    yield from _drawn(api_key, version)
                except KeyError:  # older than kio's classes
                    continue

    return seeds


# ---- addresses ------------------------------------------------------------------------------------------


def _gateway(node_id: int, host: str, port: int) -> tuple[str, int]:
    return "g" * len(host.encode()), 9300 + node_id % 100


def _rewritten(data: bytes) -> object:
    api_key, version, frame = _parts(data)
    if not addresses.shows_addresses(api_key, version):
        raise NotTaken
    return addresses.rewrite(api_key, version, frame, 0, len(frame), _gateway)


def _all_translated(data: bytes, answer: object) -> None:
    assert isinstance(answer, bytes)
    api_key, version, frame = _parts(data)
    if api_key != DESCRIBE_CONFIGS and (entity := _kios(api_key, version, frame)) is not None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        assert unframed(answer) == response_frame(translated(entity, _gateway), correlation_id)


# ---- fetches --------------------------------------------------------------------------------------------


def _walked(data: bytes) -> object:
    api_key, version, frame = _parts(data, *_STREAMED)
    walker = fetch.EndpointsWalker(api_key, version, len(frame), _gateway)
    return b"".join(walker.feed(memoryview(frame)))


def _same_in_chunks(data: bytes, whole: object) -> None:
    api_key, version, frame = _parts(data)
    walker = fetch.EndpointsWalker(api_key, version, len(frame), _gateway)
    out = b"".join(
        bytes(part) for at in range(len(frame)) for part in walker.feed(memoryview(frame[at : at + 1]))
    )
    assert out == whole
    if (entity := _kios(api_key, version, frame)) is not None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        assert whole == response_frame(translated(entity, _gateway), correlation_id)


def _fetch_seeds() -> Iterator[bytes]:
    return (data for data in _seeds(*_STREAMED)() if streams_addresses(*_SELECTOR.unpack_from(data)))


# ---- Produce --------------------------------------------------------------------------------------------


def _errors(data: bytes) -> object:
    _, version, frame = _parts(data, PRODUCE)
    plain = produced.is_plain_success(frame, 0, len(frame), version)
    may_hold = produced.may_hold_errors(frame, 0, len(frame), version)
    errors = partition_errors(frame, 0, len(frame), version)
    return plain, may_hold, errors, throttle.produce_throttle_at(frame, 0, len(frame), version)


def _same_errors(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    plain, may_hold, errors, throttle_at = found
    _, version, frame = _parts(data)
    if (entity := _kios(PRODUCE, version, frame)) is None:
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
    again = _kios(PRODUCE, version, bytes(patched))
    assert again is not None
    assert round(again.throttle_time.total_seconds() * 1000) == _THROTTLE_MS
    assert again.responses == entity.responses


# ---- topics ---------------------------------------------------------------------------------------------


def _filtered(data: bytes) -> object:
    api_key, version, frame = _parts(data, METADATA, DESCRIBE_TOPIC_PARTITIONS, CONSUMER_GROUP_HEARTBEAT)
    topics = GatewayTopicSet([TOPIC])
    topics.learn_id(TOPIC_ID)
    listed: list[Any] = []
    if api_key == METADATA:
        listed = [list(metadata.topic_ids(frame, 0, len(frame), version))]
        listed.append(list(metadata_places.places(frame, 0, len(frame), version)))
    return at_once(filtering(api_key, version, frame, 0, len(frame), topics)), listed


def _without_ours(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    answer, listed = found
    api_key, version, frame = _parts(data)
    if (entity := _kios(api_key, version, frame)) is None or api_key == CONSUMER_GROUP_HEARTBEAT:
        return
    if answer is not None:
        left = read_response(entity_class(api_key, version), unframed(answer))
        assert (left.topics or ()) == tuple(topic for topic in entity.topics or () if topic.name != TOPIC)
    else:
        assert TOPIC not in {topic.name for topic in entity.topics or ()}
    if api_key == METADATA:
        names = [(broker.node_id, broker.host, broker.port) for broker in entity.brokers or ()]
        assert [broker[:3] for broker in listed[1][0].brokers] == names
        if version >= 10:
            ids = {
                (topic.name, topic.topic_id.bytes)
                for topic in entity.topics or ()
                if topic.name and topic.topic_id
            }
            assert set(listed[0]) == ids


def _topic_seeds() -> Iterator[bytes]:
    for data in _seeds(METADATA, DESCRIBE_TOPIC_PARTITIONS, CONSUMER_GROUP_HEARTBEAT)():
        yield data
    for version in (5, 9, 12):
        entity = entity_class(METADATA, version)
        for data in _drawn(METADATA, version, 12):
            read = read_response(entity, data[4:])
            topics = tuple(replace(topic, name=TOPIC) for topic in read.topics)
            yield data[:4] + response_frame(replace(read, topics=topics))


# ---- the small ones -------------------------------------------------------------------------------------

_INIT_PRODUCER_ID, _END_TXN, _API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = 22, 26, 18, 17, 36


def _small(data: bytes) -> object:
    api_key, version, frame = _parts(data, *_SMALL)
    return api_key, _SMALL[api_key](frame, 0, len(frame), version)


_SMALL: Final[dict[int, Callable[[bytes, int, int, int], object]]] = {
    _INIT_PRODUCER_ID: messages.init_producer_id_answer,
    _END_TXN: messages.end_txn_answer,
    _API_VERSIONS: api_versions_answer,
    _HANDSHAKE: messages.sasl_handshake_answer,
    _AUTHENTICATE: messages.sasl_answer,
    client_quotas.ALTER_CLIENT_QUOTAS: client_quotas.read_alter_answer,
    client_quotas.DESCRIBE_CLIENT_QUOTAS: lambda buf, start, end, version: client_quotas.adding_user_values(
        buf, start, end, version, {"alice": {"producer_ids_rate": 5.0}, None: {"producer_ids_rate": 1.0}}
    ).finish(),
}


def _same_small(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    api_key, ours = found
    _, version, frame = _parts(data)
    if (entity := _kios(api_key, version, frame)) is None:
        return
    if api_key in (_INIT_PRODUCER_ID, _END_TXN):
        assert ours.error_code == entity.error_code
        if api_key == _INIT_PRODUCER_ID or version >= 5:
            assert (ours.producer_id, ours.producer_epoch) == (entity.producer_id, entity.producer_epoch)
    elif api_key == _API_VERSIONS:
        assert ours.error_code == entity.error_code
        theirs = {api.api_key: (api.min_version, api.max_version) for api in entity.api_keys or ()}
        if len(theirs) < len(entity.api_keys or ()):
            return  # one is given twice
        assert ours.ranges == theirs
        capped = unframed(messages.cap_api_versions(frame, 0, len(frame), version))
        offered = api_versions_answer(capped, 0, len(capped), version).ranges
        assert all(
            key in theirs and low >= theirs[key][0] and high <= theirs[key][1]
            for key, (low, high) in offered.items()
        )
        assert all(speaks(key, edge) for key, edges in offered.items() for edge in edges)
    elif api_key == _HANDSHAKE:
        assert (ours.error_code, ours.mechanisms) == (entity.error_code, entity.mechanisms)
    elif api_key == _AUTHENTICATE:
        assert ours == (entity.error_code, entity.auth_bytes)
    elif api_key == client_quotas.ALTER_CLIENT_QUOTAS:
        assert {outcome.error_code for outcome in ours.outcomes.values()} <= {
            int(entry.error_code) for entry in entity.entries or ()
        }
    elif ours is not None:
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
    Target("addresses", _rewritten, _all_translated, _seeds(*_SHOWN), REFUSALS, factor=600),
    Target("fetch_answers", _walked, _same_in_chunks, _fetch_seeds, REFUSALS),
    Target("produce_answers", _errors, _same_errors, _seeds(PRODUCE), REFUSALS),
    Target("topic_answers", _filtered, _without_ours, _topic_seeds, REFUSALS, factor=200),
    Target("small_answers", _small, _same_small, _seeds(*_SMALL), REFUSALS, factor=300),
)
