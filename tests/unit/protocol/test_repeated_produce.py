"""What is recognised is what `walk` says, whatever came before and whatever lies around the frame."""

from collections.abc import Callable, Sequence
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.headers import peek_request
from pidgate.protocol.produce import ForbiddenTopic, ProducerBatch, walk, walk_counting
from pidgate.protocol.repeated_produce import BEGINNING_BYTES, MOST_BATCHES, RepeatedProduce
from tests.support.frames import Topics, places_of, produce_request, record_batch
from tests.support.rules import rule

Walked = tuple[int, bool, list[ProducerBatch]] | type[KafkaProtocolError]


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Requests as producers send them, few enough kinds that they repeat; some damaged, cut or long."""
    version = draw(st.sampled_from((8, 9, 12, 13)))
    topics: list[str | UUID] = [UUID(int=1), UUID(int=2)] if version >= 13 else ["orders", "clicks"]
    transactional_id = draw(st.sampled_from((None, None, "payments")))
    data: Topics = []
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        batches = [
            record_batch(
                draw(st.sampled_from((-1, 7, 7, 7, 4711))),
                base_sequence=draw(st.integers(0, 2**31 - 1)),
                transactional=draw(st.booleans()),
                records=bytes(draw(st.sampled_from((0, 3, 66, 67, 2_000, 16_322, 16_323, 70_000)))),
                count=draw(st.sampled_from((0, 1, 7, 1_000))),
            )
            for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3))))
        ]
        data.append((draw(st.sampled_from(topics)), [(draw(st.integers(0, 3)), batch) for batch in batches]))
    acks = draw(st.sampled_from((-1, 1)))
    frame = bytearray(produce_request(version, data, acks=acks, transactional_id=transactional_id))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 3)))):
        frame[draw(st.integers(4, min(len(frame), 160) - 1))] = draw(
            st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF))
        )
    cut = draw(st.sampled_from((0, 0, 0, 1, 40)))
    return bytes(frame[: len(frame) - cut])


def outcome(call: object, buf: bytes, start: int, end: int) -> Walked:
    try:
        walked: Walked = call(buf, peek_request(buf, start, end))  # type: ignore[operator]
    except KafkaProtocolError as error:
        return type(error)
    return walked


@given(st.lists(frames(), min_size=1, max_size=8))
def test_repetition_changes_nothing(sent: list[bytes]) -> None:
    repeated = RepeatedProduce()
    for frame in sent:
        expected = outcome(walk, frame, 0, len(frame))
        # In a read that begins and ends with other frames, and in one that ends with it.
        for before, behind in ((b"abcd", sent[0]), (b"", b"")):
            read = before + frame + behind
            start, end = len(before), len(before) + len(frame)
            known = repeated.recognise_request(read, start, end)
            for buffer in (read, bytearray(read)):
                assert repeated.recognise_request(buffer, start, end) is known
                if not known:
                    continue
                assert not isinstance(expected, type)
                assert (repeated.acks, recognised(repeated)) == (expected[0], known_of(expected[2]))
                assert repeated.record_count == sum(
                    walk_counting(frame, peek_request(frame, 0, len(frame)))[3]
                )
                head = peek_request(frame, 0, len(frame))
                assert repeated.correlation_id == head.correlation_id
                assert repeated.version == head.api_version
        whole = frame[:-3] + bytes(3)
        if repeated.recognise_beginning(frame[:BEGINNING_BYTES], len(frame)):
            acks, transactional, batches = walk(whole, peek_request(whole, 0, len(whole)))
            assert (repeated.acks, recognised(repeated)) == (acks, known_of(batches))
            assert transactional or not repeated.transactional
            assert repeated.correlation_id == peek_request(whole, 0, len(whole)).correlation_id
        elif repeated.recognise_request(frame, 0, len(frame)):
            assert repeated.batches > 1, "known as a whole, and not by its beginning"
        assert outcome(repeated.walk, frame, 0, len(frame)) == expected
        if not isinstance(expected, type):
            assert repeated.record_counts == walk_counting(frame, peek_request(frame, 0, len(frame)))[3]


Known = list[tuple[int, int, bytes, int]]
"""Producer id, epoch, topic and partition of each batch: nobody asks for the base sequence of a known id."""


def recognised(repeated: RepeatedProduce) -> Known:
    return [(repeated.producer_id, repeated.epoch, *place) for place in places_of(repeated)]


def known_of(batches: Sequence[ProducerBatch]) -> Known:
    return [(producer_id, epoch, topic, partition) for producer_id, epoch, _, topic, partition in batches]


@pytest.mark.parametrize("version", [9, 12, 13])
def test_the_second_request_of_a_kind_is_recognised(version: int) -> None:
    topic: str | UUID = UUID(int=1) if version >= 13 else "orders"
    repeated = RepeatedProduce()
    for sequence in range(20):
        batch = record_batch(4711, base_sequence=sequence, records=bytes(sequence * 1000))
        frame = produce_request(version, [(topic, [(sequence % 3, batch)])], correlation_id=sequence - 10)
        if sequence == 0:
            assert not repeated.recognise_request(frame, 0, len(frame))
            repeated.walk(frame, peek_request(frame, 0, len(frame)))
        else:
            assert repeated.recognise_request(frame, 0, len(frame))
            assert repeated.partitions == [[sequence % 3]]
            assert (repeated.producer_id, repeated.correlation_id) == (4711, sequence - 10)


@pytest.mark.parametrize("records_bytes", [0, 200_000, 1 << 21, (1 << 21) + 10, 1 << 26])
def test_a_large_one_is_recognised_by_its_beginning(records_bytes: int) -> None:
    small, large = (
        produce_request(9, [("orders", [(3, record_batch(4711, records=bytes(nbytes)))])])
        for nbytes in (10, records_bytes)
    )
    repeated = RepeatedProduce()
    repeated.walk(small, peek_request(small, 0, len(small)))
    beginning = large[:BEGINNING_BYTES]
    assert repeated.recognise_beginning(beginning, len(large))
    assert (repeated.producer_id, repeated.partitions) == (4711, [[3]])
    for other_bytes in (len(large) - 1, len(large) + 1, 200, 1 << 30):
        assert not repeated.recognise_beginning(beginning, other_bytes)
    for shorter in range(len(large) - records_bytes - 3):
        assert not repeated.recognise_beginning(large[:shorter], len(large))


def test_several_partitions_of_one_id_are_recognised_and_of_two_ids_are_not() -> None:
    def request(ids: Sequence[int], first: int) -> bytes:
        batches: list[tuple[int, bytes | None]] = [
            (first + n, record_batch(one, records=bytes(300 * n), count=n)) for n, one in enumerate(ids)
        ]
        return produce_request(12, [("orders", batches)])

    repeated = RepeatedProduce()
    frame = request([4711] * 30, 0)
    repeated.walk(frame, peek_request(frame, 0, len(frame)))
    frame = request([4712] * 30, 7)
    assert repeated.recognise_request(frame, 0, len(frame))
    assert repeated.partitions == [list(range(7, 37))]
    assert (repeated.producer_id, repeated.record_count) == (4712, sum(range(30)))
    for of_another in ([4712] * 15 + [4711] * 15, [4711] + [4712] * 29, [4712] * 29 + [4711]):
        frame = request(of_another, 7)
        assert not repeated.recognise_request(frame, 0, len(frame))
    frame = request([4712] * MOST_BATCHES, 7)
    assert repeated.recognise_request(frame, 0, len(frame))
    frame = request([4712] * (MOST_BATCHES + 1), 7)
    assert not repeated.recognise_request(frame, 0, len(frame))


@pytest.mark.parametrize("version", [9, 13])
def test_other_topics_each_time_are_recognised(version: int) -> None:
    """As a Java application sends them that writes to many: no request is like the one before it."""
    topics: list[str | UUID] = (
        [UUID(int=n) for n in range(6)] if version >= 13 else [f"topic-{n}" for n in range(6)]
    )
    dice = Random(936)
    repeated = RepeatedProduce()
    for sequence in range(50):
        data: Topics = [
            (topic, [(n, record_batch(7, records=dice.randbytes(dice.randint(0, 40_000)), count=3))])
            for n, topic in enumerate(dice.sample(topics, dice.randint(1, 6)))
        ]
        frame = produce_request(version, data)
        if sequence:
            for read in (frame, bytearray(frame)):
                assert repeated.recognise_request(read, 0, len(frame))
                assert recognised(repeated) == known_of(walk(frame, peek_request(frame, 0, len(frame)))[2])
                assert (repeated.batches, repeated.record_count) == (len(data), 3 * len(data))
        else:
            repeated.walk(frame, peek_request(frame, 0, len(frame)))


FORBIDDEN = frozenset({b"nrders", b"clickr"})
"""A bit away from those that are written to."""


def misread(make: Callable[[frozenset[bytes]], RepeatedProduce]) -> list[bytes]:
    """Return what is read otherwise than by `walk`, of a request with one byte changed, at any place."""
    data: Topics = [
        (topic, [(partition, record_batch(7, records=b"\0")) for partition in (0, 1)])
        for topic in ("orders", "clicks")
    ]
    plain = produce_request(9, data)
    repeated = make(FORBIDDEN)
    repeated.walk(plain, peek_request(plain, 0, len(plain)))
    assert repeated.recognise_request(plain, 0, len(plain))
    found = []
    for at in range(8, len(plain)):
        for other in (plain[at] ^ 1, plain[at] ^ 2, plain[at] ^ 0x80, (plain[at] + 1) & 0xFF):
            frame = plain[:at] + bytes([other]) + plain[at + 1 :]
            try:
                batches = walk_counting(frame, peek_request(frame, 0, len(frame)), FORBIDDEN)[2]
            except (KafkaProtocolError, ForbiddenTopic):
                batches = []
            for read in (frame, bytearray(frame)):
                if repeated.recognise_request(read, 0, len(frame)) and recognised(repeated) != known_of(
                    batches
                ):
                    found.append(frame)
    return found


@rule("A repeated Produce is recognised only if no field that the quota reads differs.", "protocol")
def test_whatever_byte_is_changed_it_is_read_as_by_walk() -> None:
    assert not misread(RepeatedProduce)


def test_what_is_forbidden_meanwhile_is_not_recognised() -> None:
    forbidden: set[bytes] = set()
    repeated = RepeatedProduce(forbidden)
    frame = produce_request(9, [("orders", [(0, record_batch(4711))])])
    repeated.walk(frame, peek_request(frame, 0, len(frame)))
    assert repeated.recognise_request(frame, 0, len(frame))
    forbidden.add(b"orders")
    assert not repeated.recognise_request(frame, 0, len(frame))


def test_a_batch_of_no_transaction_does_not_repeat_one_of_a_transaction() -> None:
    def frame(*, transactional: bool) -> bytes:
        batch = record_batch(7, transactional=transactional, records=bytes(66))
        return produce_request(9, [("orders", [(0, batch)])], transactional_id="payments")

    marked, unmarked = frame(transactional=True), frame(transactional=False)
    repeated = RepeatedProduce()
    repeated.walk(marked, peek_request(marked, 0, len(marked)))
    assert repeated.recognise_request(marked, 0, len(marked))
    assert repeated.transactional
    assert not repeated.recognise_request(unmarked, 0, len(unmarked))
    repeated = RepeatedProduce()
    repeated.walk(unmarked, peek_request(unmarked, 0, len(unmarked)))
    assert not repeated.recognise_request(unmarked, 0, len(unmarked)), "not how a client repeats itself"
