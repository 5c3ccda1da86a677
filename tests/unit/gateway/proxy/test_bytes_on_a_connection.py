"""Byte rates on one connection: what is counted when, who is muted how long, and what the answers tell."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import pytest

from pidgate.gateway.proxy.apis.api import MOST_IN_FLIGHT, InFlightRequest
from pidgate.gateway.proxy.apis.fetch import FETCH_API, FETCH_WITH_ENDPOINTS, FetchApi
from pidgate.gateway.proxy.apis.table import APIS
from pidgate.protocol.throttle import fetch_throttle_in, produce_throttle_at, read
from pidgate.quota.settings import ByteQuotas, ByteRates
from tests.support import raw
from tests.support.rules import rule
from tests.support.scene import Pair, Scene, answer, fetch, frame_of, heartbeat, produce_answer, produce_of

PRODUCE, FETCH, SHARE_FETCH = 0, 1, 78
RATE = 1_000
"""Bytes per second; in a fresh window of 11 samples 10,000 pass before anybody waits."""
WINDOW = 10 * RATE


@contextmanager
def scene_of(user: str, rates: ByteRates) -> Iterator[Scene]:
    made = Scene(bytes_per_s=ByteQuotas(rates={(user, None): rates}))
    yield made
    made.loop.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of("ANONYMOUS", ByteRates(RATE, RATE)) as made:
        yield made


@pytest.fixture
def scene_of_alice() -> Iterator[Scene]:
    with scene_of("alice", ByteRates(RATE)) as made:
        yield made


def told(frame: bytes) -> int:
    """throttle_time_ms of a framed Produce v9 answer."""
    at = produce_throttle_at(frame, 4, len(frame), 9)
    assert at is not None
    return read(frame, at)


def fetch_answer(correlation_id: int, records: int, throttle_time_ms: int = 0) -> bytes:
    """The beginning of a Fetch v11 answer: everything behind its throttle is opaque here."""
    return answer(correlation_id, throttle_time_ms.to_bytes(4, "big") + bytes(records))


def release(scene: Scene, pair: Pair) -> None:
    scene.time_ms = pair.channel.connection.session.context.muted_until_ms
    pair.channel.connection.wake()


def test_up_to_the_rate_nothing_is_changed(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(frame_of(WINDOW))
    pair.broker.receive(produce_answer(1))
    assert pair.client.sent() == produce_answer(1)
    pair.client.receive(heartbeat(2))
    assert pair.broker.sent() == frame_of(WINDOW) + heartbeat(2)


@rule("Bytes are never refused: a byte rate forwards the request and delays the next one.", "mutes")
def test_a_produce_above_the_rate_passes_then_mutes_and_its_answer_says_so(scene: Scene) -> None:
    pair = scene.connect()
    over = frame_of(4 + WINDOW + RATE)
    pair.client.receive(over + heartbeat(2))
    assert pair.broker.sent() == over, "what is above the rate is forwarded, and nothing behind it"
    assert pair.channel.connection.session.context.muted_until_ms == scene.time_ms + 1_000
    scene.time_ms += 300
    pair.broker.receive(produce_answer(1, throttle_time_ms=7))
    assert told(pair.client.sent()) == 700
    release(scene, pair)
    assert pair.broker.sent() == over + heartbeat(2)


PARTITION: dict[str, object] = {
    **{"index": 0, "error_code": 0, "base_offset": 0, "log_append_time_ms": -1, "log_start_offset": 0},
    **{"record_errors": [], "error_message": None},
}


def test_only_the_answer_to_the_request_above_the_rate_says_so(scene: Scene) -> None:
    """However many topics the answer has."""
    pair = scene.connect()
    pair.client.receive(frame_of(WINDOW) + frame_of(8 + RATE, correlation_id=2))
    answers = [
        raw.response(
            PRODUCE,
            9,
            {"responses": [{"name": "t", "partition_responses": [PARTITION]}], "throttle_time_ms": 0},
            correlation_id=number,
        )
        for number in (1, 2)
    ]
    pair.broker.receive(b"".join(answers))
    sent = pair.client.sent()
    assert len(sent) == 2 * len(answers[0])
    assert [told(sent[: len(answers[0])]), told(sent[len(answers[0]) :])] == [0, 1_000]


def test_an_answer_that_comes_after_the_mute_says_nothing_of_it(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(frame_of(4 + WINDOW + RATE))
    scene.time_ms += 1_001
    pair.broker.receive(produce_answer(1))
    assert told(pair.client.sent()) == 0


def test_a_repeated_produce_counts_as_any_other(scene: Scene) -> None:
    pair = scene.connect()
    for number in range(3):
        pair.client.receive(produce_of(WINDOW // 3, number, producer_id=7))
    assert pair.channel.connection.session.context.muted_until_ms > scene.time_ms


def test_a_request_that_mutes_and_fills_the_connection_is_forwarded_all_the_same(scene: Scene) -> None:
    pair = scene.connect()
    in_flight = pair.channel.connection.session.context.in_flight
    for number in range(2, MOST_IN_FLIGHT + 1):
        in_flight.add(InFlightRequest(APIS[12 << 16], 12, 0, number))
    over = frame_of(4 + WINDOW + RATE)
    pair.client.receive(over)
    assert len(in_flight) == MOST_IN_FLIGHT
    assert pair.broker.sent() == over


def test_the_broker_s_throttle_stays_when_it_is_longer(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(frame_of(4 + WINDOW + RATE))
    pair.broker.receive(produce_answer(1, throttle_time_ms=5_000))
    assert told(pair.client.sent()) == 5_000


@rule("No request passes a mute; all of them go on in order when it ends.", "mutes")
def test_without_an_answer_the_mute_holds_all_the_same(scene: Scene) -> None:
    pair = scene.connect()
    frame = without_answer(4 + WINDOW + RATE)
    pair.client.receive(frame + heartbeat(2))
    assert pair.broker.sent() == frame
    assert len(pair.channel.connection.session.context.in_flight) == 0


def without_answer(total_bytes: int) -> bytes:
    """A Produce with acks=0."""
    frame = bytearray(frame_of(total_bytes))
    at = frame.index(b"\xff\xff", 14)
    frame[at : at + 2] = b"\0\0"
    return bytes(frame)


def what_has_no_answer_outlives_its_client(scene: Scene) -> bool:
    """The rule: a client that sent a Produce with acks=0 has nothing to wait for, and the mute is not its fault."""
    pair = scene.connect()
    sent = without_answer(4 + WINDOW + RATE) + without_answer(500) + without_answer(600)
    pair.client.receive(sent)
    assert len(pair.channel.connection.session.held) == 2
    stays = pair.channel.eof_received()
    while pair.channel.connection.session.held:  # each of them mutes anew
        release(scene, pair)
    return stays and pair.broker.sent() == sent and pair.client.is_closing()


@rule("An acks=0 Produce held by a mute is forwarded even if its client has disconnected.", "order")
def test_what_has_no_answer_outlives_its_client(scene: Scene) -> None:
    assert what_has_no_answer_outlives_its_client(scene)


def test_what_has_an_answer_ends_with_its_client(scene: Scene) -> None:
    """Nothing was acknowledged: its client sends it again."""
    pair = scene.connect()
    over = frame_of(4 + WINDOW + RATE)
    pair.client.receive(over + frame_of(500, 2))
    assert pair.channel.eof_received(), "the first is in flight"
    pair.broker.receive(produce_answer(1))
    assert pair.client.is_closing()
    assert pair.broker.sent() == over


def test_a_fetch_is_counted_by_its_answer(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(fetch(1))
    pair.broker.receive(fetch_answer(1, WINDOW + 2 * RATE - 8))
    got = pair.client.sent()
    at = fetch_throttle_in(got, 4, len(got), FETCH, 11)
    assert at is not None
    assert read(got, at) == 2_000
    assert len(got) == 4 + WINDOW + 2 * RATE
    pair.client.receive(heartbeat(2))
    pair.client.receive(fetch(3))
    asked_bytes = len(pair.broker.sent())
    release(scene, pair)
    assert len(pair.broker.sent()) > asked_bytes


@pytest.mark.parametrize("step", [1, 3, 5, 8, 11, 12, 13, 64])
def test_however_the_head_of_an_answer_is_cut(scene: Scene, step: int) -> None:
    pair = scene.connect()
    pair.client.receive(fetch(1))
    pair.broker.receive(fetch_answer(1, WINDOW + 2 * RATE - 8), most=step)
    got = pair.client.sent()
    assert got[8:12] == (2_000).to_bytes(4, "big")
    assert got[12:] == bytes(len(got) - 12)
    assert len(got) == 4 + WINDOW + 2 * RATE


def test_a_fetch_asks_for_no_more_than_the_window_allows(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(7) + fetch(1) + heartbeat(8) + fetch(2, max_bytes=WINDOW - 1))
    first = heartbeat(7) + fetch(1, max_bytes=WINDOW) + heartbeat(8)
    assert pair.broker.sent() == first
    pair.broker.receive(answer(7, b"") + fetch_answer(1, 0))
    assert pair.broker.sent() == first + fetch(2, max_bytes=WINDOW - 1)


def share_fetch(correlation_id: int) -> bytes:
    body = {"group_id": "g", "member_id": "m", "share_session_epoch": correlation_id, "max_bytes": 50}
    return raw.request(SHARE_FETCH, 2, body, correlation_id=correlation_id)


def share_fetch_answer(correlation_id: int, size: int) -> bytes:
    """A whole ShareFetch answer of that size, without its size prefix."""

    def answer_with(records: int) -> bytes:
        partition = {"records": bytes(records), "current_leader": {"leader_id": 1, "leader_epoch": 1}}
        body = {"responses": [{"topic_id": UUID(int=1), "partitions": [partition]}], "node_endpoints": []}
        return raw.response(SHARE_FETCH, 2, body, correlation_id=correlation_id)

    overhead = len(answer_with(1_000)) - 4 - 1_000
    return answer_with(size - overhead)


@dataclass(frozen=True)
class Kind:
    """An API that fetches: a request, an answer of so many bytes, what is done with it."""

    request: Callable[[int], bytes]
    answer: Callable[[int, int], bytes]
    api: FetchApi


FETCHES = Kind(lambda n: fetch(n, max_bytes=50), lambda n, size: fetch_answer(n, size - 8), FETCH_API)
KINDS = [
    pytest.param(FETCHES, id="Fetch"),
    pytest.param(Kind(share_fetch, share_fetch_answer, FETCH_WITH_ENDPOINTS), id="ShareFetch"),
]


@contextmanager
def pipelined(scene: Scene, count: int, kind: Kind = FETCHES) -> Iterator[Pair]:
    """A client that sends many Fetches at once."""
    pair = scene.connect()
    pair.client.receive(b"".join(map(kind.request, range(1, count + 1))))
    scene.turns(2)
    yield pair


def answered(scene: Scene, count: int, kind: Kind) -> int:
    """Return how many Fetches of a pipeline left while the broker answered each with WINDOW / 4 bytes, at once."""
    with pipelined(scene, count, kind) as pair:
        number = 0
        while len(pair.broker.sent()) > number * len(kind.request(1)):
            number += 1
            pair.broker.receive(kind.answer(number, WINDOW // 4))
            scene.turns(3)
        return number


@rule("With a byte rate the next Fetch waits for the size of the response before it.", "mutes")
def test_the_next_fetch_leaves_when_the_answer_before_has_told_its_size(scene: Scene) -> None:
    with pipelined(scene, 3) as pair:
        one = len(fetch(1))
        assert len(pair.broker.sent()) == one
        whole = fetch_answer(1, 500)
        pair.broker.receive(whole[:11])
        assert len(pair.broker.sent()) == one, "the head is not whole"
        pair.broker.receive(whole[11:200])
        assert len(pair.broker.sent()) == 2 * one, "its size is known; the rest may come later"
        pair.broker.receive(whole[200:] + fetch_answer(2, WINDOW + 4 * RATE))
        assert len(pair.broker.sent()) == 2 * one, "too many bytes: the third waits behind the mute"
        release(scene, pair)
        assert len(pair.broker.sent()) == 3 * one


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_of_fetches_overshoots_by_one_answer(scene: Scene, kind: Kind) -> None:
    assert answered(scene, 200, kind) == 5


def test_what_is_behind_a_fetch_that_waits_waits_too(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(fetch(1) + fetch(2) + heartbeat(3))
    assert len(pair.broker.sent()) == len(fetch(1))
    pair.broker.receive(fetch_answer(1, 8))
    assert pair.broker.sent().endswith(heartbeat(3))
    pair.broker.receive(fetch_answer(2, 8) + answer(3, b""))
    assert pair.channel.connection.session.is_quiet


def test_without_a_rate_that_throttles_no_fetch_waits(scene_of_alice: Scene) -> None:
    with pipelined(scene_of_alice, 20) as pair:
        assert len(pair.broker.sent()) == 20 * len(fetch(1))


def test_a_client_that_ends_behind_a_waiting_fetch_still_gets_its_answer(scene: Scene) -> None:
    with pipelined(scene, 2) as pair:
        pair.channel.eof_received()
        pair.broker.receive(fetch_answer(1, 8))
        assert len(pair.broker.sent()) == 2 * len(fetch(1))


def test_a_mute_by_bytes_does_not_keep_answers_back(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(7) + frame_of(4 + WINDOW + RATE))
    pair.broker.receive(answer(7))
    assert pair.client.sent() == answer(7)


def test_all_connections_of_a_user_count_together_and_others_do_not(scene_of_alice: Scene) -> None:
    scene = scene_of_alice
    first, second, other = scene.connect(), scene.connect(), scene.connect()
    first.channel.connection.client.identify("alice")
    second.channel.connection.client.identify("alice")
    for pair in (first, other):
        pair.client.receive(frame_of(4 + WINDOW))
    second.client.receive(frame_of(4 + RATE))
    muted = [
        pair.channel.connection.session.context.muted_until_ms > scene.time_ms
        for pair in (first, second, other)
    ]
    assert muted == [False, True, False]


def test_who_becomes_somebody_else_is_counted_as_such(scene_of_alice: Scene) -> None:
    scene = scene_of_alice
    pair = scene.connect()
    pair.client.receive(frame_of(4 + 2 * WINDOW))
    assert pair.channel.connection.session.context.muted_until_ms == 0
    pair.channel.connection.client.identify("alice")
    pair.client.receive(frame_of(4 + 2 * WINDOW))
    assert pair.channel.connection.session.context.muted_until_ms > scene.time_ms


def test_a_client_that_goes_while_muted_is_closed(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(frame_of(4 + WINDOW + RATE))
    pair.channel.eof_received()
    pair.broker.receive(produce_answer(1))
    assert pair.client.is_closing()
