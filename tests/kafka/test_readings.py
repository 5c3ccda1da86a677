"""Bytes that the gateway and Kafka's own classes read alike: varints, and requests that are full of odd ones."""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.protocol import frames
from pidgate.protocol.errors import KafkaProtocolError, MalformedFrame
from pidgate.protocol.headers import is_flexible, peek_request
from pidgate.protocol.produce import PRODUCE, ForbiddenTopic, walk_counting
from pidgate.protocol.versions import SPOKEN
from tests.support import raw
from tests.support.frames import produce_request, record_batch
from tests.support.java_classes import readings
from tests.support.topic_fields import named_in_each_field

pytestmark = pytest.mark.kafka

OWN = "__pidgate_events"
MENTIONED = re.compile(rf"(?<![\w.-]){OWN}(?![\w.-])")


def varints() -> Iterator[bytes]:
    """Every form of one to six bytes at the edges, and random ones."""
    edges = (0x00, 0x01, 0x07, 0x08, 0x0F, 0x10, 0x11, 0x7F)
    for length in range(7):
        for last in edges:
            for other in (0x80, 0x91, 0xFF):
                yield bytes([other] * length + [last])
                yield bytes([other] * length)
    chance = random.Random(1)
    for _ in range(5_000):
        yield bytes(chance.choice((chance.randrange(128, 256), chance.randrange(256))) for _ in range(6))


def test_varints_are_read_as_kafka_reads_them() -> None:
    forms = [form for form in varints() if form]
    for form, answer in zip(forms, readings([f"varint {form.hex()}" for form in forms]), strict=True):
        try:
            value, end = frames.read_uvarint(form, 0)
        except MalformedFrame:
            assert answer == "refused", form.hex()
        else:
            assert answer == f"{value} {end}", form.hex()


def stretched(number: int, drop: int) -> bytes:
    """A number below 128 in five bytes; Kafka drops what `drop` sets in the fifth."""
    return bytes((number | 0x80, 0x80, 0x80, 0x80, drop))


def requests() -> Iterator[tuple[int, int, bytes]]:
    """One for each field of the newest version of an API that names a topic."""
    for api_key, version, given in named_in_each_field(OWN):
        if version == SPOKEN[api_key].max_version and is_flexible(api_key, version) and "cursor" not in given:
            yield api_key, version, raw.request(api_key, version, given)[4:]
    yield PRODUCE, 12, produce_request(12, [(OWN, [(0, record_batch(7))])])


def odd_requests() -> Iterator[tuple[int, int, bytes]]:
    """Requests that name the topic, with each byte in turn stretched as if it were a varint."""
    for api_key, version, frame in requests():
        body = peek_request(frame, 0, len(frame)).body
        for at in range(body - 1, len(frame)):
            if frame[at] < 0x80:
                for drop in (0x00, 0x10):
                    yield api_key, version, frame[:at] + stretched(frame[at], drop) + frame[at + 1 :]


def test_no_request_that_names_a_gateway_topic_to_kafka_is_forwarded() -> None:
    assert passing_although_named(list(odd_requests())) == []


def test_a_reader_that_keeps_what_kafka_drops_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_U32", -1)
    assert passing_although_named(list(odd_requests())[::31])


def passing_although_named(requests: list[tuple[int, int, bytes]]) -> list[Any]:
    """The requests that the gateway forwards as they are, while Kafka finds the topic named in them."""
    topics = GatewayTopics([OWN])
    passed = []
    for api_key, version, frame in requests:
        try:
            body = peek_request(frame, 0, len(frame)).body
            if api_key == PRODUCE:
                walk_counting(frame, 0, len(frame), topics.produced)
            elif topics.look(api_key, version, frame, 0, len(frame)) is not None:
                continue
        except (KafkaProtocolError, ForbiddenTopic):
            continue
        passed.append((api_key, version, frame[body:]))
    answers = readings([f"request {api_key} {version} {body.hex()}" for api_key, version, body in passed])
    return [one for one, answer in zip(passed, answers, strict=True) if MENTIONED.search(answer)]
