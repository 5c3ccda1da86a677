"""Connections to the model cluster begin and end as those to a real broker: what is answered, and what closes them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from pidgate.protocol.record_batch import record_batch
from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.replies import Later
from tests.simulator.brokers.sessions import Closed, ClosedAfter, Listener
from tests.support import raw
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

PRODUCE, METADATA, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 0, 3, 18, 17, 36
TOPIC = "connections"
LOGIN = b"\x00alice\x00alice-secret"
CLOSED = "closed"

Outcome = list[str | int]


def produce(
    version: int, sequence: int, *, acks: int, api_version: int | None = None, producer_id: int = 4711
) -> bytes:
    records = record_batch([b"v"], producer_id, 0, sequence, time.time_ns() // 1_000_000)
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}]
    body = {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": data}
    return as_version(raw.request(PRODUCE, version, body), api_version)


def as_version(framed: bytes, api_version: int | None) -> bytes:
    """Return the request with another version in its head."""
    return framed if api_version is None else framed[:6] + api_version.to_bytes(2, "big") + framed[8:]


def hello() -> bytes:
    return raw.request(API_VERSIONS, 3)


def metadata() -> bytes:
    return raw.request(METADATA, 1, {"topics": []})


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return as_version(raw.request(SASL_HANDSHAKE, 1, {"mechanism": mechanism}), version)


def token(auth_bytes: bytes = LOGIN) -> bytes:
    return raw.request(SASL_AUTHENTICATE, 2, {"auth_bytes": auth_bytes})


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


OPEN = {
    "versions first": [hello(), metadata()],
    "no versions at all": [metadata()],
    "versions that are too new": [as_version(raw.request(API_VERSIONS, 4), 99), metadata()],
    "an old Produce": [produce(3, 0, acks=1, api_version=2)],
    "a Produce that is too new": [produce(13, 0, acks=1, api_version=14)],
    "an API that nobody knows": [framed(b"\x03\xe7\x00\x00\x00\x00\x00\x07\xff\xff")],
    "a version that nobody knows": [as_version(metadata(), 99)],
    "a request that is cut short": [framed(metadata()[4:-2])],
    "a request of nothing": [framed(b"")],
    "acks=0": [produce(9, 0, acks=0), metadata()],
    "acks=0 with an error": [
        produce(9, 7, acks=0, producer_id=5),
        produce(9, 99, acks=0, producer_id=5),
        metadata(),
    ],
    "a handshake without SASL": [handshake(), metadata()],
    "a token without SASL": [token(), metadata()],
}
SASL = {
    "a login": [hello(), handshake(), token(), metadata()],
    "a login without versions": [handshake(), token(), metadata()],
    "no login": [metadata()],
    "no login after versions": [hello(), metadata()],
    "no login after a handshake": [handshake(), metadata()],
    "a token without a handshake": [token()],
    "a wrong password": [handshake(), token(b"\x00alice\x00wrong")],
    "somebody else's name": [handshake(), token(b"\x00nobody\x00alice-secret")],
    "an unknown mechanism": [handshake("GSSAPI")],
    "a handshake after the login": [handshake(), token(), handshake(), metadata()],
    "a token after the login": [handshake(), token(), token(), metadata()],
    "two handshakes": [handshake(), handshake()],
    "versions twice": [hello(), hello()],
    "versions after the handshake": [handshake(), hello()],
    "versions after the login": [handshake(), token(), hello(), hello()],
    "versions that are too new, and others": [
        as_version(raw.request(API_VERSIONS, 4), 99),
        hello(),
        handshake(),
    ],
}


AND_NOW = [hello(), hello()]
"""Finds out whether the connection is there; the first may be what ends it."""


def error_code(request: bytes, answer: bytes) -> int:
    """Return the error code of an answer that begins with one; 0 of others."""
    api_key = int.from_bytes(request[4:6], "big")
    if api_key in (PRODUCE, METADATA):
        return 0
    at = 5 if api_key == SASL_AUTHENTICATE else 4  # behind the header's tags
    return int.from_bytes(answer[at : at + 2], "big")


def has_answer(request: bytes) -> bool:
    """Whether it is not a Produce with acks=0."""
    return request[4:6] != bytes(2) or b"\x00\x00\x00\x00\x03\xe8" not in request[:40]


def of_model(cluster: ModelCluster, listener: str, requests: Sequence[bytes]) -> Outcome:
    session = cluster.connect(1, listener)
    found: Outcome = []
    for request in requests:
        try:
            answer = cluster.handle(session, request[4:], 0)
            assert not isinstance(answer, Later)
            if answer is not None:
                found.append(error_code(request, answer[4:]))
        except ClosedAfter as last:
            return [*found, error_code(request, last.answer[4:]), CLOSED]
        except Closed:
            return [*found, CLOSED]
    return found


def of_kafka(servers: str, requests: Sequence[bytes]) -> Outcome:
    found: Outcome = []
    with raw.RawClient(servers) as client:
        try:
            for request in requests:
                client.send(request)
                if has_answer(request):
                    found.append(error_code(request, client.frame()))
        except (raw.Closed, OSError):
            return [*found, CLOSED]
    return found


@pytest.fixture(scope="module")
def servers(cluster: Cluster) -> str:
    create_topic(cluster.bootstrap_servers(), TOPIC)
    return cluster.bootstrap_servers()


@pytest.mark.parametrize("case", OPEN)
def test_without_a_login(servers: str, case: str) -> None:
    requests = [*OPEN[case], *AND_NOW]
    model = ModelCluster(1, {TOPIC: 1})
    assert of_model(model, "PLAINTEXT", requests) == of_kafka(servers, requests)


@pytest.mark.parametrize("case", SASL)
def test_with_a_login(sasl_cluster: Cluster, case: str) -> None:
    requests = [*SASL[case], *AND_NOW]
    model = ModelCluster(1, listeners=(Listener("SASL_PLAINTEXT", {"alice": "alice-secret"}),))
    found = of_kafka(sasl_cluster.bootstrap_servers("SASL_PLAINTEXT"), requests)
    assert of_model(model, "SASL_PLAINTEXT", requests) == found
