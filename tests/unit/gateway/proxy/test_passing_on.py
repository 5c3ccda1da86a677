"""Large Produce requests that are passed on as they come: which, and that nothing but the time of bytes differs."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.gateway.proxy.connection_age import AgeLimits
from pidgate.gateway.proxy.frame_reservation import KEPT_FRAME_BYTES
from pidgate.protocol.produce import PRODUCE
from pidgate.quota.settings import ByteQuotas, ByteRates
from tests.support.frames import framed, produce_request, record_batch
from tests.support.rules import rule
from tests.support.scene import MiB, Pair, Scene, answer, heartbeat, produce_answer

LARGE = 2 * MiB
KNOWN, OTHER = 7, 8


def produce(
    correlation_id: int,
    producer_id: int = KNOWN,
    *,
    padding: int = LARGE,
    sequence: int = 0,
    version: int = 9,
    topic: str = "t",
    partitions: Sequence[int] = (0,),
    acks: int = -1,
) -> bytes:
    batch = record_batch(producer_id, base_sequence=sequence, records=bytes(padding))
    frame = produce_request(
        version,
        [(topic, [(partition, batch) for partition in partitions])],
        correlation_id=correlation_id,
        acks=acks,
    )
    return framed(frame)


@contextmanager
def scene_of(rate: int | None = None, **more: object) -> Iterator[Scene]:
    made = Scene(rate, **more)  # type: ignore[arg-type]
    yield made
    made.loop.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of() as made:
        yield made


def begun(scene: Scene, frame: bytes, *, known: bytes | None = None) -> tuple[Pair, int]:
    """Return a connection on which the id is known and half of the frame has come, and what has left of it."""
    pair = scene.connect()
    first = produce(1, padding=10) if known is None else known
    pair.client.receive(first)
    pair.broker.receive(produce_answer(1))
    before = len(pair.broker.sent())
    assert before == len(first)
    pair.client.receive(frame[: len(frame) // 2])
    return pair, len(pair.broker.sent()) - before


# ---- which


@pytest.mark.parametrize("topic", ["t", "another"])
def test_a_known_id_s_large_request_leaves_as_it_comes(scene: Scene, topic: str) -> None:
    frame = produce(2, sequence=1, topic=topic)
    pair, left = begun(scene, frame)
    assert left == len(frame) // 2
    assert scene.budget.used_bytes == 0
    assert scene.budget.announced.used_bytes == len(frame)
    conversation = pair.channel.connection.session.context
    assert len(conversation.in_flight) == 0
    assert scene.counters.requests[PRODUCE] == 1
    pair.client.receive(frame[len(frame) // 2 :] + heartbeat(3))
    assert pair.broker.sent() == produce(1, padding=10) + frame + heartbeat(3)
    assert len(conversation.in_flight) == 2
    assert scene.counters.requests[PRODUCE] == 2
    assert scene.budget.announced.used_bytes == 0
    pair.broker.receive(produce_answer(2) + answer(3))
    assert pair.client.sent() == produce_answer(1) + produce_answer(2) + answer(3)


@rule("A request that may be refused or held is buffered whole.", "order")
@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(produce(2, OTHER), id="another id"),
        pytest.param(produce(2, partitions=(0, 1)), id="two batches"),
        pytest.param(produce(2, version=10), id="another version"),
        pytest.param(produce(2, acks=1), id="other acks"),
        pytest.param(produce(2, -1), id="no producer id"),
        pytest.param(produce(2, padding=KEPT_FRAME_BYTES - 200), id="not large enough"),
        pytest.param(produce(2)[:-1] + b"\0\0", id="a length that does not fit"),
    ],
)
def test_any_other_is_kept_until_it_is_whole(scene: Scene, frame: bytes) -> None:
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    assert begun(scene, frame)[1] == 0
    assert scene.budget.announced.used_bytes == 0


@rule("Bytes announced to brokers and responses of the gateway that wait are bounded.", "memory")
def test_so_is_one_without_room_for_its_length() -> None:
    frame = produce(2)
    with scene_of(budget_bytes=int(1.5 * LARGE)) as scene:
        assert begun(scene, frame)[1] == 0


def test_so_is_one_behind_a_mute() -> None:
    with scene_of() as scene:
        pair, _ = begun(scene, b"")
        context = pair.channel.connection.session.context
        context.mute(scene.time_ms + 1_000)
        before = len(pair.broker.sent())
        pair.client.receive(produce(2)[:LARGE])
        left = len(pair.broker.sent()) - before
        assert left == 0


@rule(
    "Bytes of a request count as they are forwarded, so an endless request costs its forwarded part.", "mutes"
)
def test_its_bytes_count_as_they_leave() -> None:
    with scene_of(bytes_per_s=ByteQuotas(rates={("ANONYMOUS", None): ByteRates(1_000)})) as scene:
        pair, left = begun(scene, produce(2))
        (row,) = scene.shared.byte_quota.snapshots(scene.time_ms)
        assert left == len(produce(2)) // 2
        assert row.total_bytes == len(produce(1, padding=10)) + left - 8
        other = scene.connect()
        other.client.receive(produce(1, OTHER, padding=10))
        assert other.broker.sent() == b""
        pair.client.receive(produce(2)[left:])
        (row,) = scene.shared.byte_quota.snapshots(scene.time_ms)
        assert row.total_bytes == len(produce(1, padding=10)) + len(produce(2)) - 8
        assert pair.channel.connection.session.context.muted_until_ms > scene.time_ms


def test_what_was_kept_first_is_kept_until_it_is_whole(scene: Scene) -> None:
    """The beginning came in two reads: a buffer of its own takes the rest already."""
    pair = scene.connect()
    pair.client.receive(produce(1, padding=10))
    frame = produce(2)
    before = len(pair.broker.sent())
    pair.client.receive(frame[:40])
    pair.client.receive(frame[40:LARGE])
    assert len(pair.broker.sent()) == before
    pair.client.receive(frame[LARGE:])
    assert pair.broker.sent().endswith(frame)


# ---- nothing else differs


PIECES = st.lists(st.integers(20, 700), min_size=1, max_size=6)
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from((KNOWN, KNOWN, KNOWN, OTHER, 9, -1)),
        st.sampled_from((0, 100, 400, 900)),
        st.sampled_from(("t", "t", "t", "u")),
        st.sampled_from(((0,), (0,), (1,), (0, 1))),
        st.sampled_from((-1, -1, -1, 0)),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def outcome(
    requests: Sequence[tuple[int, int, str, tuple[int, ...], int, bool]],
    pieces: Sequence[int],
    kept_bytes: int,
) -> tuple[object, ...]:
    """Everything that can be seen of a connection that such requests came through."""
    rates = ByteQuotas(rates={("ANONYMOUS", None): ByteRates(2_000)}) if len(requests) % 3 == 0 else None
    with scene_of(2, bytes_per_s=rates) as scene:
        scene.context.kept_frame_bytes = kept_bytes
        pair = scene.connect()
        sizes = itertools.cycle(pieces)
        for number, (producer_id, padding, topic, partitions, acks, waits) in enumerate(requests):
            rest = produce(
                number,
                producer_id,
                padding=padding,
                sequence=number,
                topic=topic,
                partitions=partitions,
                acks=acks,
            )
            while rest and not pair.channel.connection.reads_no_more:
                arrived = pair.client.receive(rest[: next(sizes)])
                rest = rest[arrived:]
                if not arrived:  # it is read no further: the mute ends
                    scene.time_ms = max(scene.time_ms, pair.channel.connection.session.context.muted_until_ms)
                    pair.channel.connection.wake()
            scene.time_ms += 700 if waits else 0
            pair.channel.connection._wake_never()
            if scene.time_ms >= pair.channel.connection.session.context.muted_until_ms:
                pair.channel.connection.wake()
        conversation = pair.channel.connection.session.context
        return (
            pair.broker.sent(),
            pair.client.sent(),
            pair.channel.connection.reads_no_more,
            len(conversation.in_flight),
            conversation.muted_until_ms,
            len(pair.channel.connection.session.held),
            list(scene.counters.requests),
            dict(+scene.counters.requests_refused),
            scene.budget.used_bytes,
            scene.budget.announced.used_bytes,
        )


def nothing_else_differs(
    requests: Sequence[tuple[int, int, str, tuple[int, ...], int, bool]], pieces: Sequence[int]
) -> bool:
    return outcome(requests, pieces, 100) == outcome(requests, pieces, 1 << 30)


@settings(deadline=None)
@given(REQUESTS, PIECES)
def test_passed_on_or_kept_whole_is_the_same_at_the_end(
    requests: list[tuple[int, int, str, tuple[int, ...], int, bool]], pieces: list[int]
) -> None:
    assert nothing_else_differs(requests, pieces)


# ---- not before its last byte


def leaves_in_the_middle(scene: Scene) -> bool:
    """The rule: a request has happened at its last byte, so that a client that leaves before has sent nothing."""
    pair, left = begun(scene, produce(2))
    assert left
    pair.channel.eof_received()
    return pair.client.is_closing() and scene.counters.requests[PRODUCE] == 1


def answered_in_the_middle(scene: Scene) -> bool:
    """The same of what is in flight before it: it is answered, and then the connection ends."""
    pair = scene.connect()
    pair.client.receive(produce(1, padding=10) + produce(2)[:LARGE])
    assert len(pair.broker.sent()) > LARGE // 2
    pair.channel.eof_received()
    if pair.client.is_closing():
        return False
    pair.broker.receive(produce_answer(1))
    return pair.client.is_closing() and pair.client.sent() == produce_answer(1)


@rule("A request counts as sent when its last byte has arrived; a broker sees no reset.", "order")
def test_a_client_that_leaves_in_the_middle_has_sent_nothing(scene: Scene) -> None:
    assert leaves_in_the_middle(scene)
    assert answered_in_the_middle(scene)


@rule("A request counts as sent when its last byte has arrived; a broker sees no reset.", "order")
def test_the_broker_sees_the_end_of_the_stream_and_no_reset(scene: Scene) -> None:
    pair, left = begun(scene, produce(2))
    assert left
    pair.client.lost(ConnectionResetError())
    assert pair.broker.is_closing()
    assert not pair.broker.aborted
    assert scene.budget.announced.used_bytes == 0


# ---- time


def test_it_has_its_time(scene: Scene) -> None:
    pair, left = begun(scene, produce(2))
    assert left
    for _ in range(70):
        pair.channel.connection.check_age(scene.time_ms, AgeLimits(idle_ms=600_000))
        scene.time_ms += 1_000
    assert pair.client.is_closing()


def test_its_time_grows_with_what_has_come(scene: Scene) -> None:
    pair, left = begun(scene, produce(2, padding=40 * MiB))
    assert left > 20 * MiB
    seconds = 0
    while not pair.client.is_closing():
        pair.channel.connection.check_age(scene.time_ms, AgeLimits(idle_ms=600_000))
        scene.time_ms += 1_000
        seconds += 1
    assert 79 <= seconds <= 84
