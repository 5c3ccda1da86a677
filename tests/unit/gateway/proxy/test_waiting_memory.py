"""Memory of what waits in a connection: of an answer that is walked in turns, requests behind a mute, own answers.

It is counted, reading pauses when there is too much of it, and it is given back.
"""

from collections.abc import Iterator

import pytest

from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.proxy.apis.api import COUNTED_IN_FLIGHT
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES, BudgetShare, BufferBudget, Purpose
from pidgate.gateway.proxy.client_channel import AFTER_REST_BYTES
from pidgate.gateway.proxy.client_connection import UNREAD_FOR_MS
from pidgate.gateway.proxy.connection_age import AgeLimits
from pidgate.gateway.proxy.read_ahead import IN_FLIGHT_BYTES, OWN_ANSWERS_LIMIT_BYTES
from pidgate.gateway.proxy.reading import SCARCE_READ_BYTES
from pidgate.protocol.work import JUDGED_PER_TURN, READ_FOR
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.paper_transport import LOOP_READ_BYTES
from tests.support.payer import Payer
from tests.support.rules import rule
from tests.support.scene import MiB, Pair, Scene, answer, heartbeat, produce_of

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


@rule("Memory is released when its connection ends.", "memory")
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
    hog = BudgetShare(scene.budget, Payer("hog"))
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
    share = BudgetShare(budget, Payer("alice"))
    share.hold(Purpose.ANSWER, 100)
    share.hold(Purpose.SMALL_FRAME, 100)
    share.end()
    assert budget.used_bytes == share.total_bytes == 0
    share.hold(Purpose.ANSWER, 100)
    assert budget.used_bytes == share.total_bytes == 0


# ---- requests behind a mute ------------------------------------------------------------------------------

BESIDE = [heartbeat(number, 3_000) for number in range(60)]
"""Requests that are held behind a mute: 180 KB."""


def muted(scene: Scene, producer_id: int) -> tuple[Pair, int]:
    """A connection whose first request was refused, and how many bytes of others it has read since."""
    pair = scene.connect()
    pair.client.receive(produce_of(10, 1, producer_id=producer_id))
    assert pair.channel.connection.session.context.muted_until_ms > scene.time_ms
    arrived = 0
    while step := pair.client.receive(b"".join(BESIDE)):
        arrived += step
        scene.turns(2)
    return pair, arrived


@rule("Read-ahead behind a mute is bounded by the user's memory.", "mutes")
def test_behind_the_mutes_of_a_user_no_more_is_read_than_its_share() -> None:
    scene = Scene(rate=0, budget_bytes=32 * MiB)
    connections = [muted(scene, number) for number in range(80)]
    closed = [pair for pair, _ in connections if pair.client.is_closing()]
    # Of the large half a user alone has half; those that come behind it and send more than a few requests are closed.
    assert len(closed) > 60
    assert scene.budget.large.used_bytes <= 8 * MiB + READ_BUFFER_BYTES
    assert not scene.budget.is_full
    assert scene.budget.large.has_room("somebody else", MiB // 2)
    assert not any(pair.broker.sent() for pair in closed), "nothing was forwarded, and so nothing is lost"
    connections = [(pair, arrived) for pair, arrived in connections if not pair.client.is_closing()]
    pairs = [pair for pair, _ in connections]
    # Each mute ends as ever, without waiting for memory, and all that was read goes on in order.
    scene.time_ms = max(pair.channel.connection.session.context.muted_until_ms for pair in pairs)
    sent = b"".join(BESIDE)
    for pair, arrived in reversed(connections):
        pair.channel.connection.wake()
        scene.turns(20)
        forwarded = pair.broker.sent()
        assert forwarded == (sent * (arrived // len(sent) + 1))[: len(forwarded)]
        assert len(forwarded) > arrived - len(BESIDE[0])
        assert pair.client.is_reading()
    shares = [pair.channel.connection.share for pair in pairs]
    in_flight_bytes = sum(share.held(Purpose.IN_FLIGHT) for share in shares)
    assert scene.budget.used_bytes == scene.budget.small.used_bytes + in_flight_bytes
    scene.loop.close()


def test_a_mute_without_room_still_answers_what_is_refused_anyway() -> None:
    """As with room: otherwise each of a pipeline would cost a mute of its own."""
    scene = Scene(rate=0, budget_bytes=16 * MiB)
    other = BudgetShare(scene.budget, Payer("ANONYMOUS"))
    other.hold(Purpose.HELD, 4 * MiB)
    pair = scene.connect()
    for number in range(5):
        batch = record_batch(7, base_sequence=number)
        frame = produce_request(9, [("t", [(0, batch)])], correlation_id=number + 1)
        pair.client.receive(framed(frame))
    assert [part[4:8] for part in pair.client.written] == [
        number.to_bytes(4, "big") for number in range(1, 6)
    ]
    assert len(pair.channel.next_buffer()) == SCARCE_READ_BYTES
    assert not pair.client.is_closing()
    pair.client.receive(BESIDE[0])
    assert pair.client.is_closing(), "a beginning that lies unread is noted nowhere"
    scene.loop.close()


@rule(
    "A muted connection without room is closed, and none of its requests is left unread or passed.", "mutes"
)
@pytest.mark.parametrize("in_flight", [False, True])
def test_a_muted_connection_without_room_is_closed_behind_its_answers(in_flight: bool) -> None:
    scene = Scene(rate=0, budget_bytes=16 * MiB)
    other = BudgetShare(scene.budget, Payer("ANONYMOUS"))
    other.hold(Purpose.HELD, 4 * MiB)
    pair = scene.connect()
    before = heartbeat(1) if in_flight else b""
    pair.client.receive(before + produce_of(10, 2, producer_id=7))
    while pair.client.receive(b"".join(BESIDE)):
        scene.turns()
    assert pair.channel.connection.share.held(Purpose.HELD) == 0, "what was held is given back"
    assert pair.client.is_closing() is not in_flight
    # Not even when the mute is over.
    scene.time_ms = pair.channel.connection.session.context.muted_until_ms
    pair.channel.connection.wake()
    scene.turns()
    assert pair.broker.sent() == before
    if in_flight:
        pair.broker.receive(answer(1))
        assert pair.client.sent().startswith(answer(1))
        assert pair.client.is_closing()
    scene.loop.close()


# ---- requests in flight, and those of one read -----------------------------------------------------------


def test_requests_in_flight_are_counted_and_have_their_users_share(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(0) * 5)
    assert scene.budget.used_bytes == 0, "a few of them cost no call"
    pair.client.receive(heartbeat(0) * (COUNTED_IN_FLIGHT - 5))
    assert scene.budget.used_bytes == COUNTED_IN_FLIGHT * IN_FLIGHT_BYTES
    other = BudgetShare(scene.budget, Payer("ANONYMOUS"))
    other.hold(Purpose.HELD, 16 * MiB)
    while pair.client.receive(heartbeat(0) * COUNTED_IN_FLIGHT):
        scene.turns()
    assert len(pair.channel.connection.session.context.in_flight) <= 3 * COUNTED_IN_FLIGHT
    other.hold(Purpose.HELD, 0)
    while len(pair.channel.connection.session.context.in_flight):
        pair.broker.receive(answer(0))
    assert scene.budget.used_bytes == 0
    assert pair.client.is_reading()


def test_requests_of_one_read_wait_while_too_many_are_in_flight(scene: Scene) -> None:
    """One read brings thousands. All of them are forwarded once, in order, and the rest goes on with the answers."""
    other = BudgetShare(scene.budget, Payer("ANONYMOUS"))
    other.hold(Purpose.HELD, 16 * MiB)
    pair = scene.connect()
    flood = b"".join(map(heartbeat, range(5_000)))
    arrived = pair.client.receive(flood)
    in_flight = pair.channel.connection.session.context.in_flight
    scene.turns(20)
    assert COUNTED_IN_FLIGHT <= len(in_flight) <= 1 + JUDGED_PER_TURN // READ_FOR
    assert pair.channel.connection.share.held(Purpose.REST) > 0
    assert not pair.client.is_reading()
    answered = 0
    while len(in_flight):
        pair.broker.receive(answer(answered))
        answered += 1
        scene.turns()
    sent = pair.broker.sent()
    assert sent == flood[: len(sent)]
    assert arrived - len(sent) < len(heartbeat(1))
    assert pair.client.is_reading()
    other.hold(Purpose.HELD, 0)
    assert (
        pair.channel.connection.share.held(Purpose.REST)
        == pair.channel.connection.share.held(Purpose.IN_FLIGHT)
        == 0
    )


def test_requests_that_wait_for_their_turn_are_counted_and_the_next_reads_are_small(scene: Scene) -> None:
    pair = scene.connect()
    flood = heartbeat(0) * 10_000
    assert pair.client.receive(flood) == LOOP_READ_BYTES
    share = pair.channel.connection.share
    rest_bytes = share.held(Purpose.REST)
    assert rest_bytes > LOOP_READ_BYTES // 2
    assert len(pair.channel.next_buffer()) == AFTER_REST_BYTES
    scene.turns(1)
    assert 0 < share.held(Purpose.REST) < rest_bytes
    pair.client.lost()
    pair.broker.lost()
    assert scene.budget.used_bytes == 0


# ---- own answers -----------------------------------------------------------------------------------------

GATEWAY_TOPIC = "__pidgate_events"


def refused_produce(correlation_id: int) -> bytes:
    """A Produce to a topic of the gateway's own: its refusal is six times as long."""
    frame = produce_request(
        9, [(GATEWAY_TOPIC, [(number, None) for number in range(2_900)])], correlation_id=correlation_id
    )
    return framed(frame)


@pytest.fixture
def busy(scene: Scene) -> Pair:
    """A connection with one request in flight whose answer takes its time."""
    scene.context.surroundings.gateway_topics = GatewayTopics([GATEWAY_TOPIC])
    pair = scene.connect()
    pair.client.receive(heartbeat(1))
    return pair


def sent_until_it_is_paused(scene: Scene, pair: Pair) -> int:
    """Return how many of 200 requests were read, each of which is answered here."""
    for number in range(200):
        if not pair.client.receive(refused_produce(number + 2)):
            return number
        scene.turns(2)
    return 200


@rule("Bytes announced to brokers and responses of the gateway that wait are bounded.", "memory")
def test_own_answers_that_wait_are_counted_and_bounded(scene: Scene, busy: Pair) -> None:
    count = sent_until_it_is_paused(scene, busy)
    waiting_bytes = scene.budget.large.used_bytes
    assert OWN_ANSWERS_LIMIT_BYTES <= waiting_bytes < OWN_ANSWERS_LIMIT_BYTES + 200_000
    assert busy.client.sent() == b""
    busy.broker.receive(answer(1))
    assert len(busy.client.sent()) == len(answer(1)) + waiting_bytes
    assert busy.channel.connection.session.is_quiet
    assert scene.budget.used_bytes == 0
    assert busy.client.is_reading()
    assert 1 < count < 20


def test_own_answers_have_their_users_share(scene: Scene, busy: Pair) -> None:
    other = BudgetShare(scene.budget, Payer("ANONYMOUS"))
    other.hold(Purpose.HELD, 16 * MiB)
    assert sent_until_it_is_paused(scene, busy) == 1
    busy.broker.receive(answer(1))
    assert busy.client.is_reading()


def test_own_answers_of_a_client_that_has_gone_are_forgotten(scene: Scene, busy: Pair) -> None:
    sent_until_it_is_paused(scene, busy)
    busy.client.lost()
    assert busy.broker.is_closing()
    assert scene.budget.used_bytes == 0
    assert busy.channel.connection.session.context.in_flight.own_bytes == 0
    assert len(busy.channel.connection.session.context.in_flight) == 1


# ---- small amounts --------------------------------------------------------------------------------------


@rule("A user holds at most as much memory for frames and filters as is left to others.", "memory")
def test_small_amounts_count_once_a_second(scene: Scene) -> None:
    pair = scene.connect()
    connection = pair.channel.connection
    ages = AgeLimits(idle_ms=1 << 40)
    for number in range(COUNTED_IN_FLIGHT - 1):
        pair.client.receive(heartbeat(number))
    pair.client.receive(heartbeat(99, 4_000)[:4_000])
    pair.client.waiting_bytes = pair.broker.waiting_bytes = 30_000
    assert scene.budget.used_bytes == 0
    connection.check_age(scene.time_ms, ages)
    begun = connection.socket.received.arrived_bytes
    assert scene.budget.used_bytes == 60_000 + (COUNTED_IN_FLIGHT - 1) * IN_FLIGHT_BYTES + begun
    pair.client.waiting_bytes = pair.broker.waiting_bytes = 0
    connection.check_age(scene.time_ms, ages)
    assert scene.budget.used_bytes == (COUNTED_IN_FLIGHT - 1) * IN_FLIGHT_BYTES + begun
    for number in range(COUNTED_IN_FLIGHT - 1):
        pair.broker.receive(answer(number))
    connection.check_age(scene.time_ms, ages)
    assert scene.budget.used_bytes == 0, "a client's usual few requests and beginnings are free"


def test_answers_to_a_client_that_reads_nothing_count_as_they_come(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(1))
    pair.client.waiting_bytes = 40_000
    pair.channel.pause_writing()
    pair.client.waiting_bytes = 50_000
    pair.channel.write(answer(1))
    assert scene.budget.used_bytes == 50_000


@rule("A user holds at most as much memory for frames and filters as is left to others.", "memory")
def test_who_reads_no_answers_is_closed_when_its_user_has_no_room() -> None:
    scene = Scene(budget_bytes=16 * MiB)
    other = BudgetShare(scene.budget, Payer("somebody else"))
    pairs = [scene.connect() for _ in range(4)]
    for pair in pairs:
        pair.client.receive(heartbeat(1))
        pair.client.waiting_bytes = MiB
        pair.channel.pause_writing()
    ages = AgeLimits(idle_ms=1 << 40)

    def closed_after(passed_ms: int) -> int:
        scene.time_ms += passed_ms
        for pair in pairs:
            pair.channel.connection.check_age(scene.time_ms, ages)
        return sum(pair.client.aborted for pair in pairs)

    assert closed_after(60_000) == 0, "there is room"
    other.hold(Purpose.HELD, 3 * MiB)
    assert closed_after(0) == 2, "as many as give others what they hold themselves"
    pairs[-1].channel.resume_writing()
    pairs[-1].channel.pause_writing()
    other.hold(Purpose.HELD, 6 * MiB)
    assert closed_after(UNREAD_FOR_MS - 1) == 3
    assert closed_after(1) == 4
    scene.loop.close()
