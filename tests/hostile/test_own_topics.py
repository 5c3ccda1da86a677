"""The gateway's own topics are reached by no other form of their names: a broker reads lengths that are too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pytest

from pidgate.protocol.frames import uvarint
from tests.hostile.attack import ENFORCED, Attack, Case, Outcome, Place, Target, cases
from tests.hostile.site import Site, Sites, carry_out
from tests.support.frames import framed
from tests.support.raw import RawClient, decoded, request
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import PLAINTEXT

FETCH, DELETE_TOPICS, DELETE_RECORDS = 1, 20, 21
OWN: Final = "__pidgate_events"
REFUSED: Final = 29
EVENTS: Final = {"enabled": True, "topic": OWN, "replication_factor": 1}
WITHOUT_SASL: Final = [place for place in ENFORCED if not place.sasl]
"""Its own client then needs no login. All of one mode: they are a fleet, by the one topic."""

Frame = Callable[[int, str], bytes]


@pytest.fixture(scope="module")
def sites(sasl_cluster: Cluster) -> Iterator[Sites]:
    """Gateways that keep their state in a topic."""
    with Sites(sasl_cluster, settings={"events": EVENTS}) as running:
        yield running


def fetch(version: int, topic: str) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
    body = {
        "replica_id": -1,
        "max_wait_ms": 100,
        "max_bytes": 1_000_000,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }
    return request(FETCH, version, body)


def delete_records(version: int, topic: str) -> bytes:
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}]
    return request(DELETE_RECORDS, version, {"topics": topics, "timeout_ms": 5_000})


def delete_topic(version: int, topic: str) -> bytes:
    body: dict[str, Any] = {"topic_names": [topic], "timeout_ms": 5_000}
    if version >= 6:
        body = {"topics": [{"name": topic}], "timeout_ms": 5_000}
    return request(DELETE_TOPICS, version, body)


def in_five_bytes(frame: bytes, topic: str, before: int = 0) -> bytes:
    """Write the length of the name in five bytes, with a bit above 32 set, which Java drops.

    `before`: how many bytes before that; 1 is the number of topics.
    """
    at = frame.index(topic.encode()) - 1 - before
    assert frame[at] == (len(topic) + 1 if not before else 2)
    long = bytes([frame[at] | 0x80, 0x80, 0x80, 0x80, 0x10])
    assert uvarint(frame[at]) == frame[at : at + 1]
    return framed(frame[4:at] + long + frame[at + 1 :])


def attempts(make: Frame) -> Callable[[Target], Iterable[bytes]]:
    """The name's length in five bytes, the number of topics, and both."""

    def frames(target: Target) -> list[bytes]:
        frame = make(target.version, OWN)
        of_name = in_five_bytes(frame, OWN)
        of_both = in_five_bytes(frame, OWN, 1)
        return [of_name, of_both, in_five_bytes(of_both, OWN)]

    return frames


def refused(api_key: int) -> Callable[[Target, Sequence[Outcome]], None]:
    def check(target: Target, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            assert outcome.is_closed or outcome.answers
            for answer in outcome.answers:
                assert errors_in(decoded(api_key, target.version, answer)) == {REFUSED}

    return check


def errors_in(found: Any) -> set[int]:
    """Return the error codes of an answer's topics and partitions, whatever they are called."""
    if isinstance(found, list):
        return set().union(*map(errors_in, found))
    if not isinstance(found, dict):
        return set()
    lists = [value for key, value in found.items() if key in ("responses", "topics", "partitions")]
    return {found["error_code"]} if not any(lists) else set().union(*map(errors_in, lists))


ATTACKS = [
    Attack(
        name=name,
        frames=attempts(make),
        versions=versions,
        places=WITHOUT_SASL,
        answers=3,
        check=refused(api_key),
        by_day=api_key == FETCH,
    )
    for name, api_key, make, versions in [
        ("a fetch of the events topic by an overlong name", FETCH, fetch, (12,)),
        ("its records deleted by an overlong name", DELETE_RECORDS, delete_records, (2,)),
        ("the events topic deleted by an overlong name", DELETE_TOPICS, delete_topic, (5, 4, 6)),
    ]
]


@cases(ATTACKS)
def test_attack(site: Site, case: Case) -> None:
    carry_out(site, case)


@pytest.mark.kafka
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("api_key", "make", "version"),
    [(FETCH, fetch, 12), (DELETE_RECORDS, delete_records, 2), (DELETE_TOPICS, delete_topic, 5)],
)
def test_a_broker_reads_such_a_name(
    sites: Sites, sasl_cluster: Cluster, api_key: int, make: Frame, version: int
) -> None:
    """Else the attacks would be held by the broker."""
    topic = sites.at(Place(sasl=False)).topic()
    with RawClient(sasl_cluster.bootstrap_servers(PLAINTEXT)) as broker:
        frame = in_five_bytes(make(version, topic), topic)
        give_up_s = time.monotonic() + 10
        while (found := errors_in(decoded(api_key, version, broker.ask(frame)))) != {0}:
            assert time.monotonic() < give_up_s, found  # a topic that is new is not led at once
            time.sleep(0.1)
