"""One turn of the event loop has 10 ms of work for an account, however many connections that has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from pidgate.gateway.proxy.apis.api import Api, InFlightRequest
from pidgate.gateway.proxy.buffers import Purpose
from pidgate.gateway.proxy.client_channel import AFTER_REST_BYTES, ClientChannel
from pidgate.gateway.proxy.turns import Account, Turns
from pidgate.protocol.work import JUDGED_PER_TURN, REPEATED_FOR
from pidgate.quota.settings import ByteQuotas, ByteRates
from tests.support.frames import framed, produce_request, record_batch
from tests.support.rules import rule
from tests.support.scene import Pair, Scene, answer, heartbeat
from tests.support.steps import MOST_STEPS, steps_of

MANY: Final = 40
API: Final = Api()
DEAR: Final = 2_990
"""Batches of a Produce that takes a large part of 10 ms."""


TWO_REQUESTS: Final = 1.6 * MOST_STEPS
"""The last request of a turn may begin when the 10 ms are nearly over."""


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.loop.close()


def dear_produce(first: int = 0, count: int = DEAR) -> bytes:
    batches: list[tuple[int, bytes | None]] = [(first + number, record_batch(7)) for number in range(count)]
    return framed(produce_request(12, [("t", batches)]))


def of_one_turn(scene: Scene, connections: int) -> list[Pair]:
    pairs = [scene.connect() for _ in range(connections)]
    for pair in pairs:
        pair.client.receive(heartbeat(1))  # its account is no more that of strangers
        pair.client.shares_turn = True
    return pairs


def renamed(pair: Pair, user: str) -> Pair:
    """Have another user log in on it."""
    connection = pair.channel.connection
    connection.client.identify(user)
    connection._pay_as(user)
    return pair


def forwarded(pairs: list[Pair]) -> int:
    return sum(len(pair.broker.sent()) > 50_000 for pair in pairs)


@rule(
    "In one turn of the event loop each account has 10 ms of work, and one waiting account is served.",
    "memory",
)
def test_many_connections_of_an_account_take_no_longer_than_one(scene: Scene) -> None:
    frame = dear_produce()
    pairs = of_one_turn(scene, MANY)
    scene.time_ms += 1

    def reads() -> None:
        for pair in pairs:
            assert pair.client.receive(frame) == len(frame), "the attack arrives"

    one = steps_of(lambda: pairs[0].client.receive(frame))
    scene.time_ms += 1
    assert steps_of(reads) < MOST_STEPS
    assert forwarded(pairs) < MANY
    for _ in range(2 * MANY):
        assert steps_of(scene.turns) < MOST_STEPS
    assert forwarded(pairs) == MANY
    assert one * MANY > 4 * MOST_STEPS, "all at once would be too much"


def test_another_user_waits_for_nobody(scene: Scene) -> None:
    *pairs, healthy = of_one_turn(scene, 10)
    renamed(healthy, "healthy")
    frame = dear_produce()
    for _ in range(3):
        scene.time_ms += 1
        for pair in pairs:
            pair.client.receive(frame)
        before = len(healthy.broker.sent())
        healthy.client.receive(heartbeat(2))
        assert len(healthy.broker.sent()) > before
        scene.turns()


def test_requests_leave_once_and_in_order_however_often_they_waited(scene: Scene) -> None:
    pairs = of_one_turn(scene, 3)
    scene.time_ms += 1
    sent = b"".join(dear_produce(first) for first in range(3))
    for pair in pairs:
        rest = sent
        while rest:
            rest = rest[pair.client.receive(rest) :]
            scene.turns()
    scene.turns(20)
    assert all(pair.broker.sent() == heartbeat(1) + sent for pair in pairs)
    assert all(pair.client.is_reading() for pair in pairs)


def test_little_is_read_of_an_account_whose_time_is_over(scene: Scene) -> None:
    bulk, other = of_one_turn(scene, 2)
    bulk.channel.socket.read_large()
    scene.time_ms += 1
    spend(scene, other)
    frames = heartbeat(1) * 10_000
    assert bulk.client.receive(frames) == AFTER_REST_BYTES
    assert bulk.channel.connection.share.held(Purpose.REST) == AFTER_REST_BYTES
    assert not bulk.client.is_reading()


def test_answers_are_worked_on_in_turns(scene: Scene) -> None:
    pairs = of_one_turn(scene, MANY)
    scene.time_ms += 1
    spend(scene, pairs[0])
    passed = answer(1)
    for pair in pairs:
        pair.broker.shares_turn = True
        pair.broker.receive(passed)
    assert not any(pair.client.sent() for pair in pairs)
    scene.turns(MANY)
    assert all(pair.client.sent() == passed for pair in pairs)


def test_the_ends_of_mutes_take_turns(scene: Scene) -> None:
    scene.time_ms = int(scene.loop.time() * 1_000) + 60_000  # no timer of the loop comes due
    frame = dear_produce(0, DEAR // 2)
    pairs = of_one_turn(scene, 10)
    for pair in pairs:
        pair.channel.connection.session.context.mute(scene.time_ms + 1_000)
        pair.client.shares_turn = False
        rest = frame
        while rest:
            rest = rest[pair.client.receive(rest) :]
            scene.turns(2)
    assert all(pair.channel.connection.session.held for pair in pairs)
    scene.time_ms += 1_000

    def ends() -> None:
        for pair in pairs:
            pair.channel.connection._mute_over()

    assert steps_of(ends) < TWO_REQUESTS
    for _ in range(10):
        assert steps_of(scene.turns) < TWO_REQUESTS
    assert forwarded(pairs) == len(pairs)


def test_connections_that_waited_for_a_byte_account_take_turns() -> None:
    name, rate = ("ANONYMOUS", None), 1_000
    scene = Scene(bytes_per_s=ByteQuotas(rates={name: ByteRates(rate)}))
    scene.time_ms = int(scene.loop.time() * 1_000) + 60_000  # no timer of the loop comes due
    frame = dear_produce(0, DEAR // 2)
    first, *pairs = of_one_turn(scene, 11)
    first.client.receive(frame)
    for pair in pairs:
        pair.client.shares_turn = False
        rest = frame
        while rest:
            rest = rest[pair.client.receive(rest) :]
            scene.turns(2)
    assert all(pair.channel.connection.session.awaits_account for pair in pairs)
    (account,) = scene.shared.byte_waits._timers
    account.set_rate(1 << 40, scene.time_ms)
    assert steps_of(lambda: scene.shared.byte_waits._await_turn(account)) < TWO_REQUESTS
    for _ in range(10):
        assert steps_of(scene.turns) < TWO_REQUESTS
    assert forwarded(pairs) == len(pairs)
    assert not scene.shared.byte_waits._timers
    scene.loop.close()


def test_answers_of_one_read_are_passed_on_in_turns_and_in_order(scene: Scene) -> None:
    (pair,) = of_one_turn(scene, 1)
    count = 2 * JUDGED_PER_TURN // REPEATED_FOR
    in_flight = pair.channel.connection.session.context.in_flight
    for number in range(2, count + 1):
        in_flight.add(InFlightRequest(API, 12, 0, number))
    answers = b"".join(map(answer, range(1, count + 1)))
    pair.broker.receive(answers)
    first = len(pair.client.sent())
    assert 0 < first < len(answers)
    assert not pair.broker.is_reading()
    scene.turns(3)
    assert pair.client.sent() == answers
    assert pair.broker.is_reading()
    assert scene.budget.used_bytes == 0


@rule("An answer that waits for its turn reaches its client, even if its broker leaves meanwhile.", "memory")
def test_answers_that_wait_leave_when_the_broker_does(scene: Scene) -> None:
    (pair,) = of_one_turn(scene, 1)
    scene.time_ms += 1
    spend(scene, pair)
    pair.broker.shares_turn = True
    pair.broker.receive(answer(1))
    assert not pair.client.sent()
    pair.broker_channel.connection_lost(None)
    assert pair.client.sent() == answer(1)


def spend(scene: Scene, pair: Pair) -> None:
    """Have the pair's account spend its time of this turn."""
    account = pair.channel.connection.session.context.account
    assert scene.shared.turns.has_time(account, scene.time_ms)
    account.spent = JUDGED_PER_TURN


# ---- the round


class Loop:
    """Calls in its next turn."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def turn(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


def test_accounts_that_wait_are_served_one_a_turn_and_their_addresses_too() -> None:
    loop = Loop()
    turns = Turns(lambda call: loop.due.append(call))
    served: list[str] = []

    def waits(account: Account, address: str) -> None:
        def go_on() -> None:
            served.append(f"{account.name} {address}")
            account.spent = account.most

        turns.wait(account, address, object(), go_on)

    a, b = turns.join("a"), turns.join("b")
    for address in ["1"] * 20 + ["2"]:
        waits(a, address)
    waits(b, "1")
    loop.turn()
    assert served[:3] == ["a 1", "a 2", "a 1"]
    assert len(served) < 10
    loop.turn()
    assert served[-1] == "b 1"
    for _ in range(3):
        loop.turn()
    assert len(served) == 22
    assert not loop.due


def test_a_round_gives_each_account_its_time_once(scene: Scene) -> None:
    loop = Loop()
    turns = Turns(lambda call: loop.due.append(call))
    first, second, third = (turns.join(name) for name in "abc")
    for account in (first, second):
        assert turns.has_time(account, 1)
        account.spent = JUDGED_PER_TURN
        turns.wait(account, "", account, partial(setattr, account, "spent", JUDGED_PER_TURN))
    loop.turn()
    assert not first.waiting
    assert not turns.has_time(first, 2), "the second account was not served yet"
    assert turns.has_time(third, 2)
    loop.turn()
    assert turns.has_time(first, 3)


def test_an_account_lives_as_long_as_its_connections(scene: Scene) -> None:
    pair = scene.connect()
    turns = scene.shared.turns
    assert len(turns._accounts) == 1
    assert isinstance(pair.channel, ClientChannel)
    pair.client.receive(heartbeat(1))
    renamed(pair, "alice")
    assert list(turns._accounts) == ["alice"]
    pair.channel.connection_lost(None)
    assert not turns._accounts
