"""How a connection ends: answers in flight first, and which causes wait for none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pidgate.gateway.proxy.client_connection import ANSWERED_WITHIN_MS, CLOSES_NOW
from pidgate.gateway.proxy.connection_age import AgeLimits
from tests.support.rules import rule
from tests.support.scene import Pair, Scene, answer, fetch, frame_of, produce_answer

IN_FLIGHT = range(1, 5)
LIMITS = AgeLimits(idle_ms=600_000)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene(frame_bytes=1_000_000)
    yield made
    made.loop.close()


def in_flight(scene: Scene) -> Pair:
    pair = scene.connect()
    for correlation_id in IN_FLIGHT:
        pair.client.receive(frame_of(500, correlation_id))
    return pair


def too_large(pair: Pair) -> None:
    pair.client.receive((2_000_000).to_bytes(4, "big"))


def malformed(pair: Pair) -> None:
    pair.client.receive((3).to_bytes(4, "big") + b"abc")


def of_cause(cause: str) -> Callable[[Pair], None]:
    return lambda pair: pair.channel.connection.close(cause, "for this test")


CAUSES: dict[str, Callable[[Pair], None]] = {
    "a frame that is too large": too_large,
    "a frame that breaks the protocol": malformed,
    **{
        cause: of_cause(cause)
        for cause in ("quota", "limit", "acks0_refused", "gateway_topic", "idle", "moved", "session", "drain")
    },
}


@rule("A connection that ends reads no more, answers what is in flight, and is closed then.", "connections")
@pytest.mark.parametrize("cause", CAUSES)
def test_answers_in_flight_come_before_the_end(scene: Scene, cause: str) -> None:
    pair = in_flight(scene)
    CAUSES[cause](pair)
    pair.client.receive(frame_of(500, 99))
    assert pair.broker.sent() == b"".join(frame_of(500, one) for one in IN_FLIGHT), "it reads no more"
    assert not pair.client.is_closing()
    for correlation_id in IN_FLIGHT:
        assert not pair.client.is_closing()
        pair.broker.receive(produce_answer(correlation_id))
    assert pair.client.sent() == b"".join(map(produce_answer, IN_FLIGHT))
    assert pair.client.is_closing()


@pytest.mark.parametrize("cause", [one for one in CAUSES if one != "drain"])
def test_a_broker_that_never_answers_is_waited_for_10_s(scene: Scene, cause: str) -> None:
    pair = in_flight(scene)
    CAUSES[cause](pair)
    scene.time_ms += ANSWERED_WITHIN_MS - 1
    pair.channel.connection.check_age(scene.time_ms, LIMITS)
    assert not pair.client.is_closing()
    scene.time_ms += 1
    pair.channel.connection.check_age(scene.time_ms, LIMITS)
    assert pair.client.is_closing()


@pytest.mark.parametrize("cause", sorted(CLOSES_NOW))
def test_some_causes_wait_for_no_answer(scene: Scene, cause: str) -> None:
    pair = in_flight(scene)
    pair.channel.connection.close(cause, "for this test")
    assert pair.client.is_closing()


def test_a_broker_that_goes_ends_the_wait(scene: Scene) -> None:
    pair = in_flight(scene)
    too_large(pair)
    pair.broker_channel.connection_lost(None)
    assert pair.client.is_closing()


def test_a_long_poll_is_not_waited_for(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(fetch(1) + frame_of(500, 2))
    too_large(pair)
    assert not pair.client.is_closing(), "the control: a Produce is waited for"
    pair.broker.receive(answer(1))
    pair.broker.receive(produce_answer(2))
    assert pair.client.is_closing()
    alone = scene.connect()
    alone.client.receive(fetch(1))
    too_large(alone)
    assert alone.client.is_closing()
