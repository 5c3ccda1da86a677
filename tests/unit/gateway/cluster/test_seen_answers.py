"""An answer is looked at unless the very same one was; nobody can make one pass for another."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from pidgate.gateway.cluster.seen_answers import MOST_ANSWERS, SeenAnswers, hash_of
from pidgate.protocol.work import at_once

# Two texts of one CRC-32 each, for any text around them.
COLLIDING = (b"plumless", b"buckeroo")


def hashed(answer: bytes | bytearray) -> int:
    return at_once(hash_of(memoryview(answer)))


def looked_at(by: Callable[[bytes], int]) -> list[bool]:
    seen = SeenAnswers()
    return [seen.is_new(by(b"\0\0\0\1topic " + name)) for name in COLLIDING]


def test_no_answer_passes_for_another() -> None:
    assert zlib.crc32(COLLIDING[0]) == zlib.crc32(COLLIDING[1])
    assert looked_at(hashed) == [True, True]
    assert looked_at(zlib.crc32) == [True, False]  # mutant: what anyone can compute tells answers apart


def test_the_same_is_known_whatever_its_correlation_id_and_the_oldest_is_forgotten() -> None:
    seen = SeenAnswers()
    assert seen.is_new(hashed(b"\0\0\0\1answer"))
    assert not seen.is_new(hashed(bytearray(b"\0\0\0\2answer")))
    for number in range(MOST_ANSWERS):
        assert seen.is_new(hashed(b"\0\0\0\3%d" % number))
    assert seen.is_new(hashed(b"\0\0\0\4answer"))
