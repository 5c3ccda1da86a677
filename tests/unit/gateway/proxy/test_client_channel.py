"""The two sockets of a connection: what leaves when, what is kept, what pauses, and what ends it.

The transports only write down; everything between them is the code under test.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.gateway.proxy.apis.api import MOST_IN_FLIGHT
from pidgate.gateway.proxy.broker_channel import WHOLE_ANSWER_LIMIT_BYTES, BrokerChannel
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES, BudgetShare, Purpose
from pidgate.gateway.proxy.client_channel import ClientChannel
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.proxy.connection_age import AgeLimits
from pidgate.gateway.proxy.frame_reservation import WAITED_FOR_MS
from pidgate.gateway.proxy.reading import SCARCE_READ_BYTES
from pidgate.gateway.proxy.receive_buffer import FIRST_LARGE_BYTES
from pidgate.gateway.proxy.session import HELD_OVERHEAD_BYTES
from pidgate.protocol.messages import Question
from pidgate.protocol.work import JUDGED_PER_TURN, READ_FOR
from tests.support import raw
from tests.support.paper_transport import PaperTransport
from tests.support.payer import Payer
from tests.support.rules import rule
from tests.support.scene import MiB, Pair, Scene, answer, frame_of, heartbeat, produce_of

HEARTBEAT, FIND_COORDINATOR, METADATA, FETCH = 12, 10, 3, 1
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
AGES = AgeLimits(idle_ms=600_000)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.loop.close()


# ---- requests


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=8), st.lists(st.integers(1, 3_000), min_size=1))
def test_requests_leave_as_they_came_however_they_were_cut(paddings: list[int], cuts: list[int]) -> None:
    scene = Scene()
    pair = scene.connect()
    sent = b"".join(heartbeat(number, padding) for number, padding in enumerate(paddings))
    rest, sizes = sent, itertools.cycle(cuts)
    while rest:
        rest = rest[pair.client.receive(rest[: next(sizes)]) :]
    assert pair.broker.sent() == sent
    assert len(pair.channel.connection.session.context.in_flight) == len(paddings)
    assert scene.budget.used_bytes == 0
    scene.loop.close()


def test_byte_by_byte(scene: Scene) -> None:
    pair = scene.connect()
    sent = heartbeat(1) + frame_of(5_000, 2) + heartbeat(3)
    assert pair.client.receive(sent, most=1) == len(sent)
    assert pair.broker.sent() == sent


def test_what_leaves_is_not_touched_by_the_next_read(scene: Scene) -> None:
    """Also when a read filled the buffer that all connections share to its last byte."""
    first, second = scene.connect(), scene.connect()
    whole = frame_of(READ_BUFFER_BYTES)
    assert first.client.receive(whole) == READ_BUFFER_BYTES
    second.client.receive(heartbeat(9) * 100)
    assert first.broker.sent() == whole


@pytest.mark.parametrize(
    "size", [READ_BUFFER_BYTES - 1, READ_BUFFER_BYTES, READ_BUFFER_BYTES + 1, 3 * MiB + 7]
)
def test_large_frames_pass_between_others(scene: Scene, size: int) -> None:
    pair = scene.connect()
    sent = heartbeat(1) + frame_of(size, 2) + heartbeat(3)
    pair.client.receive(sent, most=100_000)
    assert pair.broker.sent() == sent
    assert scene.budget.used_bytes == 0


def test_what_comes_before_the_broker_is_connected_waits(scene: Scene) -> None:
    pair = scene.connect(early=heartbeat(1) + heartbeat(2)[:7])
    assert pair.broker.sent() == heartbeat(1)
    pair.client.receive(heartbeat(2)[7:])
    assert pair.broker.sent() == heartbeat(1) + heartbeat(2)


class Undialled:
    """A client whose broker is connected when the test says."""

    def __init__(self, scene: Scene) -> None:
        self.dialled = 0
        self.channel = ClientChannel(scene.context, self._dial)
        self.client = PaperTransport(self.channel)

    def _dial(self, _connection: ClientConnection, _question: Question | None) -> None:
        self.dialled += 1

    def connect(self) -> PaperTransport:
        return PaperTransport(BrokerChannel(self.channel.connection))


def is_dialled_for_nothing(scene: Scene) -> bool:
    """The rule: no byte that is not for a broker dials one."""
    silent, started, stranger = Undialled(scene), Undialled(scene), Undialled(scene)
    started.client.receive(heartbeat(1)[:-1])
    stranger.client.receive(b"GET / HTTP/1.1\r\n\r\n")
    return any(client.dialled for client in (silent, started, stranger))


@rule("A broker is dialled for the first bytes that are for it.", "connections")
def test_the_broker_is_dialled_for_the_first_bytes_that_are_for_it(scene: Scene) -> None:
    assert not is_dialled_for_nothing(scene)
    client = Undialled(scene)
    sent = heartbeat(1) + heartbeat(2) + frame_of(200_000, 3)
    client.client.receive(heartbeat(1)[:5])
    assert client.client.is_reading()
    client.client.receive(sent[5:])
    assert client.dialled == 1
    assert not client.client.is_reading()
    assert scene.budget.used_bytes == len(sent)
    broker = client.connect()
    assert broker.sent() == sent
    assert client.client.is_reading()
    assert scene.budget.used_bytes == 0


@pytest.mark.parametrize("end", ["drain", "eof"])
def test_what_waits_for_a_broker_is_answered_though_the_connection_ends(scene: Scene, end: str) -> None:
    client = Undialled(scene)
    client.client.receive(heartbeat(1))
    client.channel.connection.close(
        "drain", "the gateway drains"
    ) if end == "drain" else client.channel.eof_received()
    assert not client.client.is_closing()
    broker = client.connect()
    assert broker.sent() == heartbeat(1)
    broker.receive(answer(1))
    assert client.client.sent() == answer(1)
    assert client.client.is_closing()


def test_a_client_that_is_lost_before_its_broker_is_there_leaves_nothing(scene: Scene) -> None:
    client = Undialled(scene)
    client.client.receive(heartbeat(1))
    client.client.lost()
    assert scene.budget.used_bytes == 0
    broker = client.connect()
    assert broker.is_closing()
    assert broker.sent() == b""


@rule("A connection that breaks the protocol is closed, and no other notices.", "connections")
@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"\x7f\xff\xff\xff", "limits.frame allows"),
        (b"\xff\xff\xff\xff", "not Kafka's protocol"),
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP, and this port is for Kafka clients: health and metrics"),
        (bytes.fromhex("16030102000100"), "it speaks TLS, and this listener has none: write listeners.tls"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "listeners.proxy_protocol_from"),
        (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", "listeners.proxy_protocol_from"),
        (bytes.fromhex("00000003000300"), "less than 8 bytes"),
    ],
)
def test_who_speaks_another_protocol_is_closed(
    scene: Scene, capsys: pytest.CaptureFixture[str], sent: bytes, says: str
) -> None:
    pair, other = scene.connect(), scene.connect()
    pair.client.receive(heartbeat(1) + sent)
    assert not pair.client.is_closing(), "an answer is in flight"
    pair.broker.receive(answer(1))
    assert pair.client.is_closing()
    assert not other.client.is_closing()
    assert pair.broker.sent() == heartbeat(1)
    assert scene.counters.frames_malformed == 1
    logged = capsys.readouterr().out
    assert logged.count("connection_closed") == 1
    assert says in logged


def test_the_limit_itself_may_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(frame_bytes=300_000)
    pair = scene.connect()
    most = frame_of(300_004)
    pair.client.receive(most)
    assert pair.broker.sent() == most
    pair.client.receive((300_001).to_bytes(4, "big"))
    pair.broker.receive(answer(1))
    assert pair.client.is_closing()
    assert "300001" in capsys.readouterr().out
    scene.loop.close()


# ---- answers


def test_answers_pass_in_any_pieces(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(1) + heartbeat(2) + heartbeat(3))
    answers = answer(1) + answer(2, bytes(70_000)) + answer(3)
    pair.broker.receive(answers, most=3)
    assert pair.client.sent() == answers
    assert pair.channel.connection.session.is_quiet


def test_addresses_are_rewritten_between_answers_that_pass(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(
        heartbeat(1) + raw.request(METADATA, 1, {"topics": []}, correlation_id=2) + heartbeat(3)
    )
    brokers = [{"node_id": 4, "host": "real-host", "port": 1234}]
    body = {"brokers": brokers, "controller_id": 4}
    pair.broker.receive(answer(1) + raw.response(METADATA, 1, body, correlation_id=2) + answer(3), most=5)
    shown = [{"node_id": 4, "host": "127.0.0.1", "port": 9304}]
    expected = raw.response(METADATA, 1, {**body, "brokers": shown}, correlation_id=2)
    assert pair.client.sent() == answer(1) + expected + answer(3)
    assert scene.shared.nodes.candidate_addresses(4) == [("real-host", 1234)]


def test_a_large_answer_that_streams_is_never_held(scene: Scene) -> None:
    """Not even when only its first bytes have come, which do not say yet whose it is."""
    pair = scene.connect()
    pair.client.receive(heartbeat(1))
    large = answer(1, bytes(40 * MiB))
    pair.broker.receive(large[:6])
    pair.broker.receive(large[6:1_000_000])
    assert len(pair.client.sent()) == 1_000_000
    assert scene.budget.used_bytes == 0


@pytest.mark.parametrize("size", [-5, -4, 0, 3])
def test_an_answer_of_no_possible_size_ends_the_connection(
    scene: Scene, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(1))
    pair.broker.receive(size.to_bytes(4, "big", signed=True) + b"\0\0\0\1" + bytes(10))
    assert pair.client.is_closing()
    assert "could not be read" in capsys.readouterr().out
    assert scene.counters.upstream_failures["protocol"] == 1


def test_an_absurd_answer_that_has_to_be_whole_ends_the_connection(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(raw.request(METADATA, 1, {"topics": []}))
    pair.broker.receive(
        (WHOLE_ANSWER_LIMIT_BYTES + 1).to_bytes(4, "big") + (77).to_bytes(4, "big") + bytes(10)
    )
    assert pair.client.is_closing()
    assert scene.budget.used_bytes == 0


def test_an_answer_to_nothing_ends_the_connection(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(1))
    pair.broker.receive(answer(2))
    assert pair.client.is_closing()
    assert pair.client.sent() == b""


# ---- back-pressure and memory


def test_a_broker_that_takes_nothing_pauses_its_client_only(scene: Scene) -> None:
    pair, other = scene.connect(), scene.connect()
    pair.broker.waiting_bytes = 600_000
    pair.broker_channel.pause_writing()
    assert not pair.client.is_reading()
    assert other.client.is_reading()
    assert scene.budget.used_bytes == 600_000
    pair.broker.waiting_bytes = 0
    pair.broker_channel.resume_writing()
    assert pair.client.is_reading()
    assert scene.budget.used_bytes == 0


def test_a_client_that_takes_nothing_pauses_its_broker_and_itself(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.waiting_bytes = 600_000
    pair.channel.pause_writing()
    assert not pair.broker.is_reading()
    assert not pair.client.is_reading()
    assert scene.budget.used_bytes == 600_000
    pair.channel.resume_writing()
    assert pair.broker.is_reading()
    assert pair.client.is_reading()
    assert scene.budget.used_bytes == 0


def test_a_flood_of_small_requests_pauses_until_answers_come(scene: Scene) -> None:
    pair = scene.connect()
    flood = b"".join(heartbeat(number) for number in range(MOST_IN_FLIGHT))
    pair.client.receive(flood)
    assert not pair.client.is_reading()
    scene.turns(MOST_IN_FLIGHT * READ_FOR // JUDGED_PER_TURN)
    assert not pair.client.is_reading()
    pair.broker.receive(answer(0))
    assert pair.client.is_reading()


@rule("A frame takes memory as it arrives; without room it is not read.", "memory")
def test_half_frames_hold_no_more_than_the_budget() -> None:
    scene = Scene(budget_bytes=4 * MiB)
    half = frame_of(250_000)[:200_000]
    pairs = [scene.connect() for _ in range(500)]
    arrived = [pair.client.receive(half, most=60_000) for pair in pairs]
    # The limit, the frame that crossed it, the one that goes ahead, and what those that wait have shown.
    assert scene.budget.used_bytes < 4 * MiB + 2 * 250_000 + len(pairs) * SCARCE_READ_BYTES
    assert sum(arrived) < 4 * MiB + 2 * 250_000 + len(pairs) * (SCARCE_READ_BYTES + 60_000)
    assert max(arrived[100:]) <= SCARCE_READ_BYTES
    # Small requests of everybody else go on.
    other = scene.connect()
    other.client.receive(heartbeat(1) + frame_of(3_000, 2))
    assert other.broker.sent() == heartbeat(1) + frame_of(3_000, 2)
    # And those that wait go on when others are gone.
    waiting = [pair for pair in pairs if not pair.client.is_reading()]
    assert len(waiting) > 400
    for pair in pairs:
        if pair not in waiting:
            pair.client.lost()
    assert waiting[0].client.is_reading()
    scene.loop.close()


@rule("A frame takes memory as it arrives; without room it is not read.", "memory")
def test_a_length_alone_costs_nothing(scene: Scene) -> None:
    pairs = [scene.connect() for _ in range(4)]
    for pair in pairs:
        pair.client.receive((90 * MiB).to_bytes(4, "big") + bytes(10))
    assert scene.budget.used_bytes == 4 * FIRST_LARGE_BYTES
    assert all(len(pair.channel.socket.received.next_read()) < FIRST_LARGE_BYTES for pair in pairs)


def test_a_large_frame_has_no_buffer_before_there_is_memory_for_it() -> None:
    scene = Scene(budget_bytes=4 * MiB)
    for _ in range(4):
        scene.connect().client.receive((90 * MiB).to_bytes(4, "big") + bytes(2 * MiB), most=100_000)
    assert scene.budget.large.is_waited_for
    waiting = scene.connect()
    arrived = waiting.client.receive((90 * MiB).to_bytes(4, "big") + bytes(8_000))
    assert waiting.channel.socket.received._large is not None
    assert len(waiting.channel.socket.received._large) == arrived
    scene.loop.close()


@rule("Before the login a connection holds little memory.", "memory")
@pytest.mark.parametrize(
    ("api_key", "is_closed"), [(SASL_HANDSHAKE, True), (SASL_AUTHENTICATE, True), (HEARTBEAT, False)]
)
@pytest.mark.parametrize("most", [1, 3, 100_000])
def test_a_large_login_is_refused_by_its_head_whenever_it_comes(
    scene: Scene, api_key: int, *, is_closed: bool, most: int
) -> None:
    pair = scene.connect()
    size = pair.channel.connection.context.frame_before_auth_bytes + 1
    assert not pair.channel.connection.session.context.login.is_missing
    pair.client.receive(heartbeat(1) + size.to_bytes(4, "big") + api_key.to_bytes(2, "big"), most=most)
    assert pair.broker.sent() == heartbeat(1)
    assert pair.channel.connection.reads_no_more is is_closed


def test_who_keeps_memory_from_others_without_using_it_is_closed() -> None:
    scene = Scene(budget_bytes=10 * MiB)
    half = frame_of(250_000)[:200_000]
    stalled = [scene.connect() for _ in range(60)]
    for pair in stalled:
        pair.client.receive(half)
    honest = scene.connect()
    frame = frame_of(2 * MiB)
    sent = honest.client.receive(frame)
    assert sent <= SCARCE_READ_BYTES

    def a_second_passes(milliseconds: int) -> list[Pair]:
        scene.time_ms += milliseconds
        for pair in (*stalled, honest):
            pair.channel.connection.check_age(scene.time_ms, AGES)
        return [pair for pair in stalled if pair.client.is_closing()]

    assert a_second_passes(1_000) == []
    assert a_second_passes(WAITED_FOR_MS) == []
    closed = a_second_passes(1_000)
    assert 10 <= len(closed) < 20
    assert not honest.client.is_closing()
    for pair in closed:
        pair.client.lost()
    assert +scene.counters.connections_closed == {"limit": len(closed)}
    for pair in stalled:
        if pair not in closed:
            pair.client.lost()
    while sent < len(frame):
        sent += (step := honest.client.receive(frame[sent:], most=100_000))
        assert step
    assert honest.broker.sent() == frame
    scene.loop.close()


def honest_requests_pass_beside_hogs() -> bool:
    """The rule: beginnings of large frames keep no small frame waiting, not even one of the same user."""
    scene = Scene(budget_bytes=64 * MiB)
    beginning = frame_of(12 * MiB)[: 11 * MiB]
    hogs = [scene.connect() for _ in range(8)]
    for hog in hogs:
        hog.client.receive(beginning, most=100_000)
    assert scene.budget.large.is_waited_for
    frame = frame_of(400_000)
    honest = scene.connect()
    arrived = sum(honest.client.receive(frame[at : at + 60_000]) for at in range(0, len(frame), 60_000))
    scene.loop.close()
    return arrived == len(frame) and honest.broker.sent() == frame


@rule("Small frames have half of the memory, so that a large frame never delays them.", "memory")
def test_beginnings_of_large_frames_keep_no_small_one_waiting() -> None:
    assert honest_requests_pass_beside_hogs()


def seconds_until_closed(frame_bytes: int, *, waited_for: bool, paused_s: int = 0) -> int:
    """How long a frame may take that comes at 5 KB/s after a large beginning; its socket is not read at first."""
    scene = Scene(budget_bytes=64 * MiB)
    slow = scene.connect()
    slow.client.receive(frame_bytes.to_bytes(4, "big") + bytes(frame_bytes // 2), most=100_000)
    if waited_for:
        waiting = scene.connect()
        waiting.client.receive((60 * MiB).to_bytes(4, "big") + bytes(58 * MiB), most=100_000)
        another = scene.connect()
        another.client.receive((60 * MiB).to_bytes(4, "big") + bytes(58 * MiB), most=100_000)
        assert scene.budget.large.is_waited_for
    if paused_s:
        slow.broker_channel.pause_writing()
    for second in range(1_000):
        if second == paused_s:
            slow.broker_channel.resume_writing()
        slow.channel.connection.check_age(scene.time_ms, AGES)
        if slow.client.is_closing():
            scene.loop.close()
            return second
        slow.client.receive(bytes(5_000))
        scene.time_ms += 1_000
    raise AssertionError("it was never closed")


def time_counts_while_read_and_grows_with_the_frame() -> bool:
    """The rule of a frame's deadline."""
    small, large = (
        seconds_until_closed(2 * MiB, waited_for=False),
        seconds_until_closed(8 * MiB, waited_for=False),
    )
    paused = seconds_until_closed(2 * MiB, waited_for=False, paused_s=100)
    return 60 <= small < large <= 72 and small + 99 <= paused <= small + 101


@rule("A frame has a deadline that grows with the bytes that arrived.", "memory")
def test_a_frame_has_a_deadline_that_grows_with_it_and_counts_only_while_it_is_read() -> None:
    assert time_counts_while_read_and_grows_with_the_frame()
    assert seconds_until_closed(8 * MiB, waited_for=True) <= 15


def who_takes_no_answers_frees_its_memory(*, broker_is_busy: bool) -> bool:
    """The rule: a pause that is the client's own doing stops no clock, whatever other reason to pause it adds."""
    scene = Scene(budget_bytes=64 * MiB)
    pair = scene.connect()
    pair.client.receive((40 * MiB).to_bytes(4, "big") + bytes(30 * MiB))
    waiting = BudgetShare(scene.budget, Payer("alice"))
    waiting.wait(waiting, Purpose.LARGE_FRAME, 20 * MiB, lambda: waiting.hold(Purpose.LARGE_FRAME, 20 * MiB))
    pair.channel.pause_writing()
    if broker_is_busy:
        pair.broker_channel.pause_writing()
    for _ in range(60):
        pair.channel.connection.check_age(scene.time_ms, AGES)
        scene.time_ms += 1_000
    scene.loop.close()
    return pair.client.is_closing() and waiting.held(Purpose.LARGE_FRAME) > 0


@pytest.mark.parametrize("broker_is_busy", [False, True])
def test_who_takes_no_answers_has_no_more_time_for_its_frame(*, broker_is_busy: bool) -> None:
    assert who_takes_no_answers_frees_its_memory(broker_is_busy=broker_is_busy)


def before_login_little_is_held() -> bool:
    """The rule: the memory of connections that have not logged in is nobody's, and little."""
    scene = Scene(budget_bytes=64 * MiB)
    frame = raw.request(36, 2, {"auth_bytes": bytes(200_000)})
    logging_in = [scene.connect() for _ in range(40)]
    for pair in logging_in:
        pair.client.receive(raw.request(17, 1, {"mechanism": "PLAIN"}) + frame[:150_000], most=20_000)
    little = scene.budget.small.used_bytes
    honest = scene.connect()
    honest.client.receive(frame_of(400_000), most=20_000)
    scene.loop.close()
    return little <= 2 * MiB + 200_000 and len(honest.broker.sent()) == 400_000


@rule("Before the login a connection holds little memory.", "memory")
def test_before_login_connections_hold_little() -> None:
    assert before_login_little_is_held()


def test_a_length_buys_no_time() -> None:
    for claimed in (1 * MiB, 90 * MiB):
        scene = Scene()
        bomb = scene.connect()
        bomb.client.receive(claimed.to_bytes(4, "big") + bytes(5_000))
        for _ in range(62):
            assert not bomb.client.is_closing()
            bomb.channel.connection.check_age(scene.time_ms, AGES)
            scene.time_ms += 1_000
        assert bomb.client.is_closing()
        scene.loop.close()


def test_a_frame_that_comes_byte_by_byte_is_closed_though_it_holds_no_memory(scene: Scene) -> None:
    drip = scene.connect()
    for second in range(100):
        drip.client.receive(frame_of(10_000)[second : second + 1])
        drip.channel.connection.check_age(scene.time_ms, AGES)
        if drip.client.is_closing():
            assert 60 <= second < 65
            return
        scene.time_ms += 1_000
    raise AssertionError("it was never closed")


@rule("One waiting frame at a time is completed, so full memory cannot deadlock.", "memory")
def test_frames_that_fill_the_budget_together_are_finished_one_after_the_other() -> None:
    scene = Scene(budget_bytes=4 * MiB)
    frame = frame_of(3 * MiB)
    pairs = [scene.connect() for _ in range(5)]
    sent = dict.fromkeys(pairs, 0)
    most_used = 0
    for _ in range(1_000):
        for pair in pairs:
            sent[pair] += pair.client.receive(frame[sent[pair] : sent[pair] + 50_000])
            most_used = max(most_used, scene.budget.used_bytes)
    assert [pair.broker.sent() == frame for pair in pairs] == [True] * 5
    assert most_used <= 4 * MiB + 2 * len(frame)
    assert scene.budget.used_bytes == 0
    scene.loop.close()


@rule("Memory is released when its connection ends.", "memory")
def test_everything_held_is_given_back_when_a_connection_ends(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(1) + frame_of(3 * MiB)[: 2 * MiB])
    pair.client.waiting_bytes = pair.broker.waiting_bytes = 1000
    pair.channel.pause_writing()
    pair.broker_channel.pause_writing()
    assert scene.budget.used_bytes > 2 * MiB
    pair.client.lost(ConnectionResetError())
    assert scene.budget.used_bytes == 1000  # what the broker has not taken yet is still there
    assert pair.broker.is_closing()
    pair.broker.lost()
    assert scene.budget.used_bytes == 0
    assert +scene.counters.connections_closed == {"reset": 1}


# ---- mute


def muted() -> tuple[Scene, Pair]:
    scene = Scene(rate=0)
    pair = scene.connect()
    pair.client.receive(produce_of(0, 1, producer_id=7) + heartbeat(2))
    return scene, pair


def test_a_mute_ends_with_its_timer() -> None:
    scene, pair = muted()
    assert pair.broker.sent() == b""
    assert pair.client.sent()[4:8] == (1).to_bytes(4, "big")
    assert scene.budget.used_bytes == len(heartbeat(2)) + HELD_OVERHEAD_BYTES
    scene.time_ms = pair.channel.connection.session.context.muted_until_ms - 1
    pair.channel.connection.wake()
    assert pair.broker.sent() == b""
    scene.time_ms += 1
    pair.channel.connection.wake()
    assert pair.broker.sent() == heartbeat(2)
    assert scene.budget.used_bytes == 0
    scene.loop.close()


def test_a_muted_client_that_goes_away_leaves_nothing() -> None:
    scene, pair = muted()
    pair.client.lost()
    assert scene.budget.used_bytes == 0
    assert pair.channel.connection._timer is None
    assert pair.broker.sent() == b""
    scene.loop.close()


def test_a_muted_client_may_be_idle_for_too_long_as_well() -> None:
    scene, pair = muted()
    pair.channel.connection.check_age(scene.time_ms, AgeLimits(idle_ms=5_000))
    scene.time_ms += 5_001
    pair.channel.connection.check_age(scene.time_ms, AgeLimits(idle_ms=5_000))
    assert pair.client.is_closing()
    scene.loop.close()


def test_a_drain_does_not_wait_for_a_mute_but_for_answers() -> None:
    scene, pair = muted()
    busy = scene.connect()
    busy.client.receive(heartbeat(1))
    pair.channel.connection.close("drain", "the gateway drains")
    busy.channel.connection.close("drain", "the gateway drains")
    assert pair.client.is_closing()
    assert not busy.client.is_closing()
    busy.broker.receive(answer(1))
    assert busy.client.sent() == answer(1)
    assert busy.client.is_closing()
    scene.loop.close()


# ---- ends


def test_a_half_closed_client_still_gets_its_answers(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(1) + heartbeat(2))
    assert pair.channel.eof_received() is True
    pair.broker.receive(answer(1))
    assert not pair.client.is_closing()
    pair.broker.receive(answer(2))
    assert pair.client.sent() == answer(1) + answer(2)
    assert pair.client.is_closing()


def test_a_client_that_closes_with_nothing_in_flight_is_gone(scene: Scene) -> None:
    pair = scene.connect()
    assert pair.channel.eof_received() is False
    pair.client.lost()
    assert pair.broker.is_closing()
    assert +scene.counters.connections_closed == {"client": 1}


def test_a_broker_that_dies_in_mid_answer_ends_the_connection_with_its_cause(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(1) + heartbeat(2))
    pair.broker.receive(answer(1) + answer(2)[:9])
    pair.broker.lost(ConnectionResetError("reset by peer"))
    assert pair.client.sent() == answer(1) + answer(2)[:9]
    assert pair.client.is_closing()
    pair.client.lost()
    assert +scene.counters.connections_closed == {"upstream": 1}
    assert +scene.counters.upstream_failures == {"reset": 1}
    logged = capsys.readouterr().out
    assert "reset by peer" in logged
    assert "1 requests in flight" in logged


def test_a_broker_that_closes_a_quiet_connection_is_no_failure(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = scene.connect()
    pair.broker.lost()
    pair.client.lost()
    assert +scene.counters.connections_closed == {"broker": 1}
    assert +scene.counters.upstream_failures == {}
    assert "warning" not in capsys.readouterr().out


def test_what_is_written_when_a_connection_ends_has_a_while_to_leave(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.waiting_bytes = 10
    timers: list[tuple[float, Any]] = []
    scene.loop.call_later = lambda delay, call: timers.append((delay, call))  # type: ignore[assignment,method-assign,misc]
    pair.channel.connection.close("protocol", "because")
    ((delay, cut_off),) = timers
    assert delay == pytest.approx(30)
    assert not pair.client.aborted
    cut_off()
    assert pair.client.aborted


def test_an_error_of_ours_ends_the_one_connection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair, other = scene.connect(), scene.connect()
    monkeypatch.setattr(type(pair.channel.connection.session), "receive", lambda *_: 1 / 0)
    pair.client.receive(heartbeat(1))
    assert pair.client.is_closing()
    assert not other.client.is_closing()
    pair.client.lost()
    assert +scene.counters.connections_closed == {"error": 1}
    assert "unexpected_error" in capsys.readouterr().out
