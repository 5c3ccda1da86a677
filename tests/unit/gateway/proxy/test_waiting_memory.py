"""Memory of what waits in a connection: of an answer that is walked in turns, requests behind a mute, own answers.

It is counted, reading pauses when there is too much of it, and it is given back.
"""

from collections.abc import Iterator

import pytest

from pidgate.gateway.proxy.buffers import BudgetShare, BufferBudget, Purpose
from tests.support import raw
from tests.support.scene import MiB, Scene

METADATA, DESCRIBE_CLUSTER = 3, 60
TWO_TURNS = 900
"""Brokers in an answer whose walk takes more than a turn."""


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene(budget_bytes=64 * MiB)
    yield made
    made.loop.close()


# ---- answers that are read whole -------------------------------------------------------------------------


def cluster_described(correlation_id: int) -> bytes:
    brokers = [
        {"broker_id": number % 5, "host": "k1", "port": 9092, "rack": None} for number in range(TWO_TURNS)
    ]
    body = {
        **{"error_code": 0, "error_message": None, "cluster_id": "c", "controller_id": 1},
        **{"brokers": brokers, "cluster_authorized_operations": 0},
    }
    return raw.response(DESCRIBE_CLUSTER, 0, body, correlation_id=correlation_id)


def test_an_answer_whose_client_leaves_during_its_walk_is_given_back(scene: Scene) -> None:
    """Also where the broker's socket stays for a while, because of bytes that have not left, and its turns go on."""
    pair = scene.connect()
    pair.client.receive(
        raw.request(DESCRIBE_CLUSTER, 0, {}, correlation_id=1)
        + raw.request(METADATA, 9, {"topics": None}, correlation_id=2)
    )
    has_to_be_whole = (2 * MiB).to_bytes(4, "big") + (2).to_bytes(4, "big") + bytes(200)
    pair.broker.receive(cluster_described(1) + has_to_be_whole)
    assert scene.budget.used_bytes > 0, "the walk is under way"
    written = len(pair.client.written)
    pair.client.lost(ConnectionResetError())
    assert pair.broker.is_closing()
    scene.turns(4)
    pair.broker.lost()
    assert scene.budget.used_bytes == 0
    assert len(pair.client.written) == written


def test_an_answer_that_waits_for_memory_gives_up_its_turn_with_its_client(scene: Scene) -> None:
    hog = BudgetShare(scene.budget, lambda: "hog")
    hog.hold(Purpose.LARGE_FRAME, 32 * MiB)
    pair = scene.connect()
    pair.client.receive(raw.request(METADATA, 9, {"topics": None}, correlation_id=2))
    ahead = object()
    hog.wait(ahead, Purpose.LARGE_FRAME, 33 * MiB, lambda: None)
    pair.broker.receive((2 * MiB).to_bytes(4, "big") + (2).to_bytes(4, "big") + bytes(200))
    assert scene.budget.large.is_waited_for
    pair.client.lost()
    assert not scene.budget.large.is_waited_for


def test_a_share_that_has_ended_counts_nothing_more() -> None:
    budget = BufferBudget(1_000)
    share = BudgetShare(budget, lambda: "alice")
    share.hold(Purpose.ANSWER, 100)
    share.hold(Purpose.SMALL_FRAME, 100)
    share.end()
    assert budget.used_bytes == share.total_bytes == 0
    share.hold(Purpose.ANSWER, 100)
    assert budget.used_bytes == share.total_bytes == 0
