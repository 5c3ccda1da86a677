"""Batches of ours as aiokafka's reader, which shares no code with it, sees them."""

import struct

import crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from pidgate.protocol.record_batch import MAX_SEQUENCE, RecordBatch, record_batch

VALUES = st.lists(st.binary(max_size=300), min_size=1, max_size=20)


@given(VALUES, st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, MAX_SEQUENCE), st.booleans())
def test_every_field_is_read_back(
    values: list[bytes], producer_id: int, epoch: int, sequence: int, is_transactional: bool
) -> None:
    made = RecordBatch(values).stamped(
        producer_id, epoch, sequence, 1_780_000_000_123, is_transactional=is_transactional
    )
    read = DefaultRecordBatch(bytearray(made))
    assert read.validate_crc()
    assert (read.magic, read.producer_id, read.producer_epoch) == (2, producer_id, epoch)
    assert read.base_sequence == sequence
    assert read.is_transactional == is_transactional
    records = list(read)
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(len(values)))
    assert {record.timestamp for record in records} == {1_780_000_000_123}
    assert {record.key for record in records} == {None}


def test_the_same_records_again_have_another_sequence_and_a_right_checksum() -> None:
    batch = RecordBatch([b"one", b"two"])
    first = batch.stamped(7, 0, 0, 5)
    second = batch.stamped(7, 0, batch.next_sequence(0), 5)
    assert first[57:] == second[57:]
    for made, sequence in ((first, 0), (second, 2)):
        (checksum,) = struct.unpack_from(">I", made, 17)
        assert checksum == crc32c.crc32c(made[21:])
        assert struct.unpack_from(">i", made, 53) == (sequence,)


def test_sequences_go_round_as_kafka_lets_them() -> None:
    batch = RecordBatch([b"x"] * 3)
    assert batch.next_sequence(MAX_SEQUENCE - 3) == MAX_SEQUENCE
    assert batch.next_sequence(MAX_SEQUENCE) == 2


def test_a_batch_has_records() -> None:
    with pytest.raises(ValueError, match="without records"):
        RecordBatch([])
    with pytest.raises(ValueError, match="without records"):
        record_batch([], 1, 0, 0, 0)
