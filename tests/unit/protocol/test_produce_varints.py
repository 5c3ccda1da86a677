"""The varints that are read by hand on the hot path, against the general reader: every odd form, at every place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.frames import Reader, uvarint
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.produce import BATCH_HEADER_BYTES, FIRST_TOPIC_ID, TRANSACTIONAL, unpack_batch, walk
from pidgate.protocol.repeated_produce import BEGINNING_BYTES, RepeatedProduce
from tests.support.frames import places_of, record_batch
from tests.support.rules import rule

Walked = tuple[int, bool, list[tuple[int, int, int, bytes, int]]]
Walk = Callable[[bytes, RequestHead], Walked]

VERSIONS: Final = range(9, 14)
NAMES: Final = (None, "", "payments", "p" * 200)
RECORDS_BYTES: Final = (0, 65, 66, 67, 16_321, 16_322, 16_323, (1 << 21) - 63, (1 << 21) - 62)
"""With the head of a batch, lengths around the ends of one, two and three bytes."""


def forms(value: int) -> Iterator[bytes]:
    """Every form of a number up to six bytes: with and without bits that Kafka drops, and without its end."""
    shortest = uvarint(value)
    yield shortest
    for length in range(len(shortest) + 1, 7):
        open_end = shortest[:-1] + bytes([shortest[-1] | 0x80])
        padded = open_end + b"\x80" * (length - len(shortest) - 1)
        for last in (0x00, 0x01, 0x10, 0x40, 0x70, 0x7F):
            yield padded + bytes([last])
        yield padded


def parts(version: int, name: str | None, sizes: Sequence[int]) -> list[bytes | int]:
    """Return a request in one partition for each size; numbers are those that stand as varints."""
    named: list[bytes | int] = [0] if name is None else [len(name) + 1, name.encode()]
    topic: list[bytes | int] = (
        [bytes(range(16))] if version >= FIRST_TOPIC_ID else [len("orders") + 1, b"orders"]
    )
    found: list[bytes | int] = [bytes((0, 0, 0, version, 0, 0, 0, 7, 0, 1)) + b"c", 0, *named]
    found += [b"\xff\xff\0\0\x75\x30", 2, *topic, len(sizes) + 1]
    for index, size in enumerate(sizes):
        batch = record_batch(4711, 3, 9, transactional=name is not None, records=bytes(size))
        found += [index.to_bytes(4, "big"), len(batch) + 1, batch, 0]
    return [*found, 0, 0]


def frame_of(found: Sequence[bytes | int]) -> bytes:
    return b"".join(uvarint(part) if isinstance(part, int) else part for part in found)


def odd_frames() -> Iterator[tuple[bytes, bytes]]:
    """Yield the plain request, and one of it in which one number stands in another form."""
    requests: list[tuple[int, str | None, tuple[int, ...]]] = [
        (version, name, (0,)) for version in VERSIONS for name in NAMES
    ]
    requests += [(9, None, (size, 0)[: 1 + (size < 1000)]) for size in RECORDS_BYTES]
    for version, name, sizes in requests:
        found = parts(version, name, sizes)
        plain = frame_of(found)
        for at, part in enumerate(found):
            # Of what is large, the length alone is odd: all else is as in small ones.
            if isinstance(part, int) and (len(plain) < 1000 or part > 1000):
                before, behind = frame_of(found[:at]), frame_of(found[at + 1 :])
                for form in forms(part):
                    yield plain, before + form + behind


def general(buf: bytes, head: RequestHead) -> Walked:
    """Read a request field by field with the general reader. Raises KafkaProtocolError."""
    reader = Reader(buf, head.body, head.end, flexible=True)
    transactional = reader.raw_string() is not None
    acks = reader.i16()
    reader.i32()
    batches = []
    for _ in range(reader.count(3)):
        topic = (
            b"\0" + reader.read_bytes(16)
            if head.api_version >= FIRST_TOPIC_ID
            else reader.raw_string() or b""
        )
        for _ in range(reader.count(6)):
            index, length = reader.i32(), reader.length(wide=True)
            records = reader.read_bytes(max(length, 0))
            reader.skip_tags()
            if len(records) >= BATCH_HEADER_BYTES:
                _, _, attributes, producer_id, epoch, sequence, _ = unpack_batch(records, 0)
                batches.append((producer_id, epoch, sequence, topic, index))
                transactional &= bool(attributes & TRANSACTIONAL)
        reader.skip_tags()
    reader.skip_tags()
    reader.finish()
    return acks, transactional, batches


def outcome(read: Walk, frame: bytes) -> Walked | None:
    """Return what is read; None: it is refused."""
    try:
        return read(frame, peek_request(frame, 0, len(frame)))
    except KafkaProtocolError:
        return None


def differences(read: Walk) -> list[bytes]:
    return [frame for _, frame in odd_frames() if outcome(read, frame) != outcome(general, frame)]


def misread_repeats(make: Callable[[], RepeatedProduce]) -> tuple[int, list[bytes]]:
    """Return how many odd frames are known again behind their plain one, and those that then differ."""
    known, wrong = 0, []
    for plain, frame in odd_frames():
        repeated = make()
        repeated.walk(plain, peek_request(plain, 0, len(plain)))
        read = outcome(general, frame)
        if repeated.recognise_request(frame, 0, len(frame)):
            known += 1
            wrong += [] if read == seen(repeated, read) else [frame]
        # Three bytes of tags behind the batch are all that a beginning does not show.
        whole = frame[:-3] + bytes(3)
        if repeated.recognise_beginning(frame[:BEGINNING_BYTES], len(frame)):
            known += 1
            read = outcome(general, whole)
            wrong += [] if read == seen(repeated, read) else [frame]
    return known, wrong


def seen(repeated: RepeatedProduce, read: Walked | None) -> Walked:
    """Return what was recognised; the sequences, which nobody asks for, as they were read."""
    sequences = [] if read is None else [batch[2] for batch in read[2]]
    batches = [
        (repeated.producer_id, repeated.epoch, sequence, topic, partition)
        for (topic, partition), sequence in zip(places_of(repeated), sequences, strict=False)
    ]
    return repeated.acks, repeated.transactional, batches


@rule("Numbers, strings and headers have one parser, exact as Kafka's.", "protocol")
def test_a_walk_reads_every_form_as_the_general_reader_does() -> None:
    found = [outcome(general, frame) for _, frame in odd_frames()]
    assert 1_000 < sum(one is not None for one in found) < len(found)
    assert differences(walk) == []


def test_what_is_known_again_is_what_the_general_reader_reads() -> None:
    known, wrong = misread_repeats(RepeatedProduce)
    assert known > 500
    assert wrong == []
