"""Elements of DER (X.690), as far as certificates of RFC 5280 need them. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31


class Element(NamedTuple):
    """One element: its tag, its content, and all of it with tag and length."""

    tag: int
    content: bytes
    encoded: bytes

    def content_of(self, tag: int) -> bytes:
        """Return the content of an element that has to have this tag. Raises ValueError."""
        if self.tag != tag:
            raise ValueError(f"a tag {self.tag:#x} where {tag:#x} has to be")
        return self.content


def element(der: bytes, at: int) -> Element:
    """Return the element that begins at that place. Raises ValueError, IndexError."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length - 0x80  # bytes of the length itself
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
        if length < 0x80 or length.bit_length() <= 8 * (size - 1):
            raise ValueError("a length that is not in its shortest form")  # Java reads it as another name
    end = start + length
    if end > len(der):
        raise ValueError("cut short")
    return Element(der[at], der[start:end], der[at:end])


def content(der: bytes, at: int, tag: int) -> bytes:
    """Return the content of the element at that place, which has to have this tag. Raises ValueError, IndexError."""
    return element(der, at).content_of(tag)


def elements(der: bytes) -> Iterator[Element]:
    """Yield the elements that follow each other. Raises ValueError, IndexError."""
    at = 0
    while at < len(der):
        found = element(der, at)
        yield found
        at += len(found.encoded)
