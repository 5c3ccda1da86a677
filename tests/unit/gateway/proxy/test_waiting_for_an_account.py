"""Connections that wait for the byte account of their user: which requests wait, for how long, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pidgate.gateway.proxy.apis.fetch import HELD_AT_MOST_MS
from pidgate.protocol import codec
from pidgate.protocol.headers import peek_request
from pidgate.protocol.throttle import fetch_throttle_in, lowered_fetch, read
from pidgate.quota.byte_quota import LONGEST_TOLD_MS
from pidgate.quota.settings import ByteQuotas, ByteRates, Mode, Quotas, UserQuota
from tests.support import raw
from tests.support.rules import rule
from tests.support.scene import Pair, Scene, answer, fetch, frame_of, heartbeat, produce_of

FETCH, SHARE_FETCH = 1, 78
WRONG_EPOCH = 71
RATE = 1_000
WINDOW = 10 * RATE
DEBT_S = 990


@pytest.fixture
def scene() -> Iterator[Scene]:
    rates = ByteRates(RATE, RATE)
    made = Scene(bytes_per_s=ByteQuotas(rates={("ANONYMOUS", None): rates}))
    yield made
    made.loop.close()


def in_debt(scene: Scene, seconds: int = DEBT_S) -> Pair:
    """Return the connection that brought the user's account into debt, by a Produce."""
    pair = scene.connect()
    pair.client.receive(frame_of(4 + WINDOW + seconds * RATE))
    pair.broker.sent()
    return pair


def fetched(scene: Scene, seconds: int = DEBT_S) -> Pair:
    """The same by an answer to a Fetch."""
    pair = scene.connect()
    pair.client.receive(fetch(1))
    pair.broker.receive(answer(1, bytes(WINDOW + seconds * RATE - 4)))
    return pair


@rule(
    "A byte debt makes every connection of its account wait, old or new, and nothing but its Produce or Fetch.",
    "mutes",
)
def test_a_new_connection_does_not_shed_a_debt(scene: Scene) -> None:
    in_debt(scene)
    second = scene.connect()
    second.client.receive(heartbeat(1))
    assert second.broker.sent() == heartbeat(1), "the control: other requests pass"
    second.client.receive(frame_of(500, 2) + heartbeat(3))
    assert second.broker.sent() == heartbeat(1), "in order: what is behind the Produce waits with it"
    scene.pass_time(DEBT_S * 1_000 - 1)
    assert second.broker.sent() == heartbeat(1)
    scene.pass_time(1)
    assert second.broker.sent() == heartbeat(1) + frame_of(500, 2)
    assert second.channel.connection.session.context.muted_until_ms > scene.time_ms, "it is in debt again"


def test_one_connection_passes_each_time_the_debt_is_paid(scene: Scene) -> None:
    in_debt(scene, seconds=1)
    waiting = [scene.connect() for _ in range(3)]
    for pair in waiting:
        pair.client.receive(frame_of(4 + RATE) + frame_of(4 + RATE, 2))
    order: list[int] = []
    for _ in range(60):
        scene.time_ms += 500
        for pair in waiting:
            pair.channel.connection.wake()  # its own mute may be over
        scene.pass_time(0)
        for number, pair in enumerate(waiting):
            passed = len(pair.broker.sent()) // (4 + RATE)
            order += [number] * (passed - order.count(number))
    assert order == [0, 1, 2, 0, 1, 2]


def test_a_client_that_goes_leaves_the_queue(scene: Scene) -> None:
    in_debt(scene, seconds=1)
    first, second = scene.connect(), scene.connect()
    for pair in (first, second):
        pair.client.receive(frame_of(500))
    first.channel.eof_received()
    scene.pass_time(1_000)
    assert (first.broker.sent(), second.broker.sent()) == (b"", frame_of(500))


@rule("A wait by bytes is told up to 30 s.", "mutes")
def test_a_wait_is_told_up_to_30_s(scene: Scene) -> None:
    pair = fetched(scene)
    assert pair.channel.connection.session.context.muted_until_ms == scene.time_ms + LONGEST_TOLD_MS


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 16, 18])
@pytest.mark.parametrize(("session_id", "epoch"), [(0, -1), (0, 0), (77, -1), (77, 0)])
def test_a_whole_fetch_is_answered_empty(scene: Scene, version: int, session_id: int, epoch: int) -> None:
    """It may name a session, which it ends: a client in debt does not wait for that."""
    fetched(scene, seconds=5)
    pair = scene.connect()
    pair.client.receive(fetch(9, version, session_id=session_id, epoch=epoch) + heartbeat(10))
    assert pair.broker.sent() == b""
    frame = pair.client.sent()
    at = fetch_throttle_in(frame, 4, len(frame), FETCH, version)
    assert at is not None
    assert read(frame, at) == 5_000
    found = codec.decode_response(FETCH, version, frame, 4, len(frame))
    assert (found.responses, getattr(found, "session_id", 0), getattr(found, "error_code", 0)) == ([], 0, 0)
    scene.time_ms += 5_000
    pair.channel.connection.wake()
    assert pair.broker.sent() == heartbeat(10), "what is behind it waits for the throttle"


def test_a_fetch_within_a_session_is_held(scene: Scene) -> None:
    fetched(scene, seconds=5)
    pair = scene.connect()
    of_session = fetch(9, session_id=77, epoch=3)
    pair.client.receive(of_session)
    assert (pair.broker.sent(), pair.client.sent()) == (b"", b"")
    scene.pass_time(5_000)
    assert len(pair.broker.sent()) == len(of_session)
    assert pair.client.sent() == b""


@rule("No Fetch passes a byte debt.", "mutes")
@pytest.mark.parametrize("version", [7, 11, 12, 16, 18])
def test_after_20_s_a_fetch_within_a_session_begins_a_new_session(scene: Scene, version: int) -> None:
    """Were it to pass unpaid, each further session would have a batch every 20 s, whatever the rate."""
    fetched(scene)
    pair = scene.connect()
    pair.client.receive(fetch(9, version, session_id=77, epoch=3))
    scene.pass_time(HELD_AT_MOST_MS - 1)
    pair.channel.connection.wake()
    assert (pair.broker.sent(), pair.client.sent()) == (b"", b"")
    scene.pass_time(1)
    pair.channel.connection.wake()
    assert pair.broker.sent() == b""
    frame = pair.client.sent()
    found = codec.decode_response(FETCH, version, frame, 4, len(frame))
    assert (found.error_code, found.session_id, found.responses) == (WRONG_EPOCH, 0, [])
    assert found.throttle_time_ms == LONGEST_TOLD_MS


def test_after_20_s_a_share_fetch_passes_lowered_to_one_batch(scene: Scene) -> None:
    """It brings acknowledgements."""
    fetched(scene)
    pair = scene.connect()
    body = {"group_id": "g", "member_id": "m", "share_session_epoch": 9, "max_bytes": 50_000}
    held = raw.request(SHARE_FETCH, 2, body)
    pair.client.receive(held)
    assert pair.broker.sent() == b""
    scene.pass_time(HELD_AT_MOST_MS)
    pair.channel.connection.wake()
    assert pair.broker.sent() == lowered_fetch(held, peek_request(held, 4, len(held)), 1)


def test_a_connection_wakes_at_the_earliest_time_that_was_set(scene: Scene) -> None:
    """A Fetch of a session is to wake after 20 s and passes before; a mute of a second must not last until then."""
    connection = Pair(scene).channel.connection
    now_ms = round(scene.loop.time() * 1_000)
    for milliseconds in (60_000, 1, 30_000):
        connection._wake_at(now_ms + milliseconds)
    assert connection._timer is not None
    scene.loop.run_until_complete(asyncio.sleep(0.02))
    assert connection._timer is None


CHANGES = {
    "raised": Quotas(
        mode=Mode.ENFORCE, bytes=ByteQuotas(rates={("ANONYMOUS", None): ByteRates(10**9, 10**9)})
    ),
    "removed": Quotas(mode=Mode.ENFORCE),
    "observed": Quotas(bytes=ByteQuotas(rates={("ANONYMOUS", None): ByteRates(RATE, RATE)})),
    "exempt": Quotas(
        mode=Mode.ENFORCE,
        users={"ANONYMOUS": UserQuota(exempt_from_bytes=True)},
        bytes=ByteQuotas(rates={("ANONYMOUS", None): ByteRates(RATE, RATE)}),
    ),
}


def follow_quotas(scene: Scene, quotas: Quotas, *pairs: Pair) -> None:
    """What the gateway does at a change, and within the second after it."""
    shared = scene.shared
    shared.admission.set_quotas(quotas, scene.time_ms)
    shared.byte_quota.follow_quotas(scene.time_ms)
    shared.byte_waits.follow_quotas()
    scene.pass_time(1_000)
    for pair in pairs:
        connection = pair.channel.connection
        connection.follow_quotas(scene.time_ms)
        connection.wake()


@rule(
    "A changed quota, mode or exemption ends every wait that it concerns within 2 s, on the same connection.",
    "mutes",
)
@pytest.mark.parametrize("change", CHANGES)
def test_changed_quotas_end_waits(scene: Scene, change: str) -> None:
    first = in_debt(scene)
    first.client.receive(heartbeat(2))
    second = scene.connect()
    second.client.receive(frame_of(500))
    before = first.broker.sent()
    follow_quotas(scene, CHANGES[change], first, second)
    assert first.broker.sent() == before + heartbeat(2)
    assert second.broker.sent() == frame_of(500)


def test_a_change_for_others_ends_no_wait(scene: Scene) -> None:
    first = in_debt(scene)
    first.client.receive(heartbeat(2))
    before = first.broker.sent()
    quotas = scene.shared.admission.quotas
    follow_quotas(scene, replace(quotas, users={"bob": UserQuota(exempt=True)}), first)
    assert first.broker.sent() == before


def test_a_raised_rate_of_ids_ends_the_throttle_of_a_refused_one() -> None:
    scene = Scene(rate=1)
    pair = scene.connect()
    for producer_id in range(1, 4):
        pair.client.receive(produce_of(10, producer_id, producer_id))
    held = produce_of(10, 9, 9)
    sent = pair.broker.sent()
    pair.client.receive(heartbeat(5))
    assert pair.broker.sent() == sent, "the control: the channel is muted"
    follow_quotas(scene, Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(3_600_000)), pair)
    assert pair.broker.sent() == sent + heartbeat(5)
    pair.client.receive(held)
    assert pair.broker.sent() == sent + heartbeat(5) + held
    scene.loop.close()
