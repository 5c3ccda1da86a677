"""Bytes that the gateway and Kafka's own classes read alike: varints, requests that are full of odd ones, and names."""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.config.principal_rules import NoRuleApplies, PrincipalRules
from pidgate.gateway.tls.der import content
from pidgate.gateway.tls.distinguished_name import distinguished_name
from pidgate.protocol import frames
from pidgate.protocol.errors import KafkaProtocolError, MalformedFrame
from pidgate.protocol.headers import is_flexible, peek_request
from pidgate.protocol.oauthbearer import token_in
from pidgate.protocol.produce import PRODUCE, ForbiddenTopic, walk_counting
from pidgate.protocol.versions import SPOKEN
from tests.support import raw
from tests.support.frames import produce_request, record_batch
from tests.support.java_classes import readings
from tests.support.rules import rule
from tests.support.subjects import CN, attribute, multi
from tests.support.subjects import name as subject_of
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


@rule("Numbers, strings and headers have one parser, exact as Kafka's.", "protocol")
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


@rule("No client produces to a topic of the gateway, however the request spells it.", "protocol")
def test_no_request_that_names_a_gateway_topic_to_kafka_is_forwarded() -> None:
    assert passing_although_named(list(odd_requests())) == []


def test_a_reader_that_keeps_what_kafka_drops_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_U32", -1)
    assert passing_although_named(list(odd_requests())[::7])


def passing_although_named(requests: list[tuple[int, int, bytes]]) -> list[Any]:
    """The requests that the gateway forwards as they are, while Kafka finds the topic named in them."""
    topics = GatewayTopics([OWN])
    passed = []
    for api_key, version, frame in requests:
        try:
            body = peek_request(frame, 0, len(frame)).body
            if api_key == PRODUCE:
                walk_counting(frame, peek_request(frame, 0, len(frame)), topics.produced)
            elif topics.check_request(frame, peek_request(frame, 0, len(frame))) is not None:
                continue
        except (KafkaProtocolError, ForbiddenTopic):
            continue
        passed.append((api_key, version, frame[body:]))
    answers = readings([f"request {api_key} {version} {body.hex()}" for api_key, version, body in passed])
    return [one for one, answer in zip(passed, answers, strict=True) if MENTIONED.search(answer)]


def bearer_messages() -> Iterator[bytes]:
    """Messages of OAUTHBEARER with parts left out, doubled, changed and moved."""
    parts = b"n|,|a=al=2Cice|,|\x01|auth|=|Bearer |a.b-_.c|\x01|x=1 \t,|\x01|\x01".split(b"|")
    others = b"|y|=|a=|,|\x01|\x00|auth=bEARER  x\x01|auth=Basic x\x01|\xc3\xa9|\xff| |\n".split(b"|")
    yield b"".join(parts)
    for at in range(len(parts) + 1):
        for other in others:
            yield b"".join([*parts[:at], other, *parts[at:]])
            yield b"".join([*parts[:at], other, *parts[at + 1 :]])
    for missing in range(len(parts)):
        for more in range(missing, len(parts)):
            yield b"".join(parts[:missing] + parts[more + 1 :])


@rule(
    "SASL and certificate fields controlled by the client are parsed exactly as Kafka parses them.",
    "identity",
)
def test_bearer_tokens_are_found_where_kafka_finds_them() -> None:
    messages = [message for message in bearer_messages() if message]
    for message, answer in zip(
        messages, readings([f"bearer {message.hex()}" for message in messages]), strict=True
    ):
        assert (token_in(message) or "refused") == answer, message


def subjects() -> Iterator[bytes]:
    """Subjects with each character, in each type of text, and types with and without a keyword."""
    for character in map(chr, [*range(0x20), *b' ",+<>;=#\\\\/:@', 0x7F, 0xE9, 0x2028, 0x1F600]):
        for text in (character, f"a{character}b", f"{character}{character}a", f"a {character}"):
            yield subject_of(attribute(CN, text))
    for tag in (0x0C, 0x13, 0x14, 0x16, 0x1A, 0x1B, 0x1C, 0x1E, 0x04):
        yield subject_of(attribute(CN, "abcd", tag=tag))
    for last in range(3, 66):
        yield subject_of(attribute(f"5504{last:02x}", "x"), attribute(CN, "joe"))
    for oid in ("0992268993f22c640101", "0992268993f22c640119", "2a864886f70d010901", "883703", "00", "2b06"):
        yield subject_of(attribute(oid, "x"))
    yield subject_of()
    yield subject_of(multi((CN, "joe"), ("55040b", "x")), attribute("55040a", "acme"))


@rule(
    "SASL and certificate fields controlled by the client are parsed exactly as Kafka parses them.",
    "identity",
)
def test_distinguished_names_are_those_of_java() -> None:
    found = list(subjects())
    for der, answer in zip(found, readings([f"name {der.hex()}" for der in found]), strict=True):
        assert distinguished_name(content(der, 0, 0x30)).encode().hex() + "." == answer, der


RULES = [
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/U,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/",
    "RULE:.*/x/",
    "RULE:(.*)/$1/U",
    r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT",
    "RULE:^CN=(\\w+)(,OU=\\w+)?.*$/$1$2$3\\$1$0/",
    "RULE:CN=(.)/$12/,RULE:^(.+),O=(.+)$/$2$1/",
    "RULE:[A-Z]*|.*/x$0/",
    r"RULE:(?i)cn=((?:[^,\\]|\\.)+)(?=,o=)(,.*)?/$1/U,RULE:(?:(C)|.)+?(.)\2?/$1$3/,DEFAULT",
]
NAMES = [
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=Duke,OU=SME,O=mycp",
    "cN=duke,OU=JavaSoft",
    r"CN=Tkac\, Adam,OU=ITZ,DC=cz",
    "CN=gr\u00fc\u00dfe,O=x",
    "CN=j",
    "O=x",
]


def test_mapping_rules_make_what_kafka_makes_of_a_name() -> None:
    pairs = [(rules, name) for rules in RULES for name in NAMES]
    asked = [f"principal {rules.encode().hex()} {name.encode().hex()}" for rules, name in pairs]
    for (rules, name), answer in zip(pairs, readings(asked), strict=True):
        try:
            principal = PrincipalRules(rules).principal(name).encode().hex() + "."
        except NoRuleApplies:
            principal = "refused"
        assert principal == answer, (rules, name)
