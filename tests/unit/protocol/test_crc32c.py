"""The checksum against RFC 3720's examples and another implementation; and that parts make the whole."""

import crc32c as other
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.protocol.crc32c import Follow, crc32c


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_known_checksums(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_the_checksum_of_a_whole_comes_from_those_of_its_parts(head: bytes, rest: bytes) -> None:
    assert Follow(len(rest)).after(crc32c(head)) ^ crc32c(rest) == other.crc32c(head + rest)


def test_also_before_a_megabyte() -> None:
    rest = bytes(1_000_003)
    assert Follow(len(rest)).after(crc32c(b"head")) ^ other.crc32c(rest) == other.crc32c(b"head" + rest)


def test_nothing_can_follow_backwards() -> None:
    with pytest.raises(ValueError, match="-1"):
        Follow(-1)
