"""Producer ids out of segment files, against batches as a producer writes them."""

from pathlib import Path

import pytest

from pidgate.protocol.record_batch import record_batch
from tools.sandbox.demo.segments import producer_ids, read_topic


def batch(producer_id: int, base_sequence: int = 0) -> bytes:
    return record_batch([b"value"], producer_id, 0, base_sequence, 0)


def write_segment(
    data: Path, partition: str, *batches: bytes, name: str = "00000000000000000000.log"
) -> None:
    directory = data / partition
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(b"".join(batches))


def test_every_batch_tells_its_producer_id_in_order() -> None:
    assert list(producer_ids(batch(7) + batch(4711) + batch(7, 1))) == [7, 4711, 7]


@pytest.mark.parametrize("torn", [1, 20, 61, 65])
def test_a_batch_cut_off_by_a_crash_is_passed_over(torn: int) -> None:
    assert list(producer_ids(batch(1) + batch(2)[:torn])) == [1]


def test_a_topic_is_all_its_partitions_and_segments_and_no_other_topic(tmp_path: Path) -> None:
    write_segment(tmp_path, "clicks-0", batch(1), batch(2))
    write_segment(tmp_path, "clicks-0", batch(3), name="00000000000000000002.log")
    write_segment(tmp_path, "clicks-11", batch(1))
    write_segment(tmp_path, "clicks-old-0", batch(9))
    (tmp_path / "clicks-0" / "00000000000000000000.index").write_bytes(b"no batches")

    found = read_topic(tmp_path, "clicks")

    assert found.ids == {1, 2, 3}
    assert found.states == 4
    assert found.partitions_of() == {1: 2, 2: 1, 3: 1}
    assert found.doubled() == []


def test_an_id_with_two_batches_in_a_partition_is_doubled(tmp_path: Path) -> None:
    write_segment(tmp_path, "clicks-0", batch(1), batch(2), batch(1))

    assert read_topic(tmp_path, "clicks").doubled() == [(0, 1)]
