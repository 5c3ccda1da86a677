"""An answer is looked at unless the very same one was; nobody can make one pass for another."""

from __future__ import annotations

import zlib

from pidgate.gateway.seen_answers import MOST_ANSWERS, SeenAnswers

# Two texts of one CRC-32 each, for any text around them.
COLLIDING = (b"plumless", b"buckeroo")


class ByChecksum(SeenAnswers):
    """Mutant: what anyone can compute tells answers apart."""

    @staticmethod
    def _hash_of(answer: memoryview) -> int:
        return zlib.crc32(answer)


def looked_at(seen: SeenAnswers) -> list[bool]:
    return [seen.is_new(memoryview(bytearray(b"\0\0\0\1topic " + name))) for name in COLLIDING]


def test_no_answer_passes_for_another() -> None:
    assert zlib.crc32(COLLIDING[0]) == zlib.crc32(COLLIDING[1])
    assert looked_at(SeenAnswers()) == [True, True]
    assert looked_at(ByChecksum()) == [True, False]


def test_the_same_is_known_whatever_its_correlation_id_and_the_oldest_is_forgotten() -> None:
    seen = SeenAnswers()
    assert seen.is_new(memoryview(b"\0\0\0\1answer"))
    assert not seen.is_new(memoryview(bytearray(b"\0\0\0\2answer")))
    for number in range(MOST_ANSWERS):
        assert seen.is_new(memoryview(b"\0\0\0\3%d" % number))
    assert seen.is_new(memoryview(b"\0\0\0\4answer"))
