"""DER elements (X.690), as needed for RFC 5280 certificates. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31


class Element(NamedTuple):
    """An element: tag, content, and the whole encoding."""

    tag: int
    content: bytes
    encoded: bytes

    def content_of(self, tag: int) -> bytes:
        """Return the content. Raises ValueError if the tag differs."""
        if self.tag != tag:
            raise ValueError(f"tag {self.tag:#x} instead of {tag:#x}")
        return self.content


def element(der: bytes, at: int) -> Element:
    """Return the element at this position. Raises ValueError, IndexError."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length - 0x80  # bytes of the length field
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
        if length < 0x80 or length.bit_length() <= 8 * (size - 1):
            raise ValueError("a length not in its shortest form")  # Java reads a different name
    end = start + length
    if end > len(der):
        raise ValueError("cut short")
    return Element(der[at], der[start:end], der[at:end])


def content(der: bytes, at: int, tag: int) -> bytes:
    """Return the content of the element at this position. Raises ValueError if the tag differs, IndexError."""
    return element(der, at).content_of(tag)


def elements(der: bytes) -> Iterator[Element]:
    """Yield consecutive elements. Raises ValueError, IndexError."""
    at = 0
    while at < len(der):
        found = element(der, at)
        yield found
        at += len(found.encoded)
