"""What is walked by repetition is what `walk` says, whatever came before and whatever lies behind the frame."""

from collections.abc import Collection
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import repeated_produce
from protocol.errors import KafkaProtocolError
from protocol.produce import ProducerBatch, walk, walk_counting
from protocol.repeated_produce import RepeatedProduce
from tests.support.frames import produce_request, record_batch

Walked = tuple[int, bool, list[ProducerBatch]] | type[KafkaProtocolError]


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Requests as producers send them, few enough kinds that they repeat; some damaged, cut or long."""
    version = draw(st.sampled_from((8, 9, 12, 13)))
    topics: list[str | UUID] = [UUID(int=1), UUID(int=2)] if version >= 13 else ["orders", "clicks"]
    topic = draw(st.sampled_from(topics))
    transactional_id = draw(st.sampled_from((None, None, "payments")))
    batches = [
        record_batch(
            draw(st.sampled_from((-1, 7, 4711))),
            base_sequence=draw(st.integers(0, 2**31 - 1)),
            transactional=draw(st.booleans()),
            records=bytes(draw(st.sampled_from((0, 3, 66, 67, 2_000, 16_322, 16_323, 70_000)))),
            count=draw(st.sampled_from((1, 7, 1_000))),
        )
        for _ in range(draw(st.sampled_from((1, 1, 1, 2))))
    ]
    partitions: list[tuple[int, bytes | None]] = [(draw(st.integers(0, 3)), batch) for batch in batches]
    acks = draw(st.sampled_from((-1, 1)))
    frame = bytearray(
        produce_request(version, [(topic, partitions)], acks=acks, transactional_id=transactional_id)
    )
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 3)))):
        frame[draw(st.integers(4, min(len(frame), 160) - 1))] = draw(
            st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF))
        )
    cut = draw(st.sampled_from((0, 0, 0, 1, 40)))
    return bytes(frame[: len(frame) - cut])


def outcome(call: object, buf: bytearray, start: int, end: int) -> Walked:
    try:
        walked: Walked = call(buf, start, end)  # type: ignore[operator]
    except KafkaProtocolError as error:
        return type(error)
    return walked


@given(st.lists(frames(), min_size=1, max_size=8))
def test_repetition_changes_nothing(sent: list[bytes]) -> None:
    repeated = RepeatedProduce()
    shared = bytearray(80_000)  # as the gateway's read buffer: old bytes lie behind each frame
    for frame in sent:
        shared[4 : 4 + len(frame)] = frame
        in_shared = (shared, 4, 4 + len(frame))
        assert outcome(repeated.walk, *in_shared) == outcome(walk, *in_shared)
        alone = (bytearray(frame), 0, len(frame))
        assert outcome(repeated.walk, *alone) == outcome(walk, *alone)
        if not isinstance(outcome(walk, *alone), type):
            assert repeated.record_counts == walk_counting(*alone)[3]


@pytest.mark.parametrize("version", [9, 12, 13])
def test_the_second_request_of_a_kind_is_not_walked_again(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic: str | UUID = UUID(int=1) if version >= 13 else "orders"
    repeated = RepeatedProduce()
    walks = 0

    def counting_walk(buf: bytearray, start: int, end: int, forbidden: Collection[bytes]) -> object:
        nonlocal walks
        walks += 1
        return walk_counting(buf, start, end, forbidden)

    monkeypatch.setattr(repeated_produce, "walk_counting", counting_walk)
    for sequence in range(20):
        batch = record_batch(4711, base_sequence=sequence, records=bytes(sequence * 1000))
        frame = bytearray(
            produce_request(version, [(topic, [(sequence % 3, batch)])], correlation_id=sequence)
        )
        _, _, batches = repeated.walk(frame, 0, len(frame))
        assert [(found[2], found[4]) for found in batches] == [(sequence, sequence % 3)]
    assert walks == 1
