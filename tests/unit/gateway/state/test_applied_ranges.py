"""When others were heard is told once, in order, and in bounded space."""

from itertools import pairwise

from pidgate.gateway.state.applied_ranges import MOST_RANGES, AppliedRanges
from pidgate.gateway.topics.records import EventRecord


def records(partition: int, first: int, length: int) -> list[EventRecord]:
    return [EventRecord(partition, offset, 0, b"") for offset in range(first, first + length)]


def told(heard: AppliedRanges) -> list[tuple[int, int, int, int]]:
    return [(one.partition, one.first_offset, one.next_offset, one.at_ms) for one in heard.take()]


def test_each_piece_is_told_once() -> None:
    heard = AppliedRanges()
    heard.applied([*records(0, 5, 3), *records(2, 40, 1)], 1_000)
    heard.applied(records(0, 8, 2), 1_007)
    assert told(heard) == [(0, 5, 8, 1_000), (2, 40, 41, 1_000), (0, 8, 10, 1_007)]
    heard.applied(records(0, 10, 1), 1_009)
    assert told(heard) == [(0, 10, 11, 1_009)]
    assert told(heard) == []


def test_a_gateway_that_decides_nothing_keeps_the_newest_and_one_for_all_before() -> None:
    heard = AppliedRanges()
    for number in range(1_000):
        heard.applied(records(number % 2, number, 1), number)
    pieces = told(heard)
    assert len(pieces) <= MOST_RANGES
    assert pieces[-1] == (1, 999, 1_000, 999)
    assert [first for _, first, _, _ in pieces[:2]] == [0, 1]
    for partition in (0, 1):
        mine = [piece for piece in pieces if piece[0] == partition]
        assert all(one[2] <= other[1] for one, other in pairwise(mine)), "pieces overlap, or are out of order"
