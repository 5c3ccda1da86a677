"""Certificates made byte by byte, as far as their subject: openssl writes none with these."""

from __future__ import annotations

from typing import Final

CN: Final = "550403"


def tlv(tag: int, content: bytes) -> bytes:
    """Return an element of DER."""
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = (length.bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + length.to_bytes(size, "big") + content


def multi(*values: tuple[str, str | bytes], tag: int = 0x0C) -> bytes:
    """Return a RelativeDistinguishedName of several attributes: type in hexadecimal, and value."""
    found = b""
    for oid, value in values:
        text = value if isinstance(value, bytes) else value.encode()
        found += tlv(0x30, tlv(0x06, bytes.fromhex(oid)) + tlv(tag, text))
    return tlv(0x31, found)


def attribute(oid: str, value: str | bytes, tag: int = 0x0C) -> bytes:
    """Return a RelativeDistinguishedName of one attribute."""
    return multi((oid, value), tag=tag)


def name(*attributes: bytes) -> bytes:
    """Return a Name."""
    return tlv(0x30, b"".join(attributes))


def whole_certificate(subject: bytes) -> bytes:
    """Return a certificate that any reader takes, with a key and a signature of zeroes."""
    ed25519 = tlv(0x30, tlv(0x06, bytes.fromhex("2b6570")))
    validity = tlv(0x30, tlv(0x17, b"260101000000Z") + tlv(0x18, b"20601231235959Z"))
    key = tlv(0x30, ed25519 + tlv(0x03, bytes(33)))
    signed = tlv(0xA0, b"\x02\x01\x02") + tlv(0x02, b"\x01") + ed25519 + name(attribute(CN, "ca"))
    return tlv(0x30, tlv(0x30, signed + validity + subject + key) + ed25519 + tlv(0x03, bytes(65)))


def certificate(subject: bytes) -> bytes:
    """Return a certificate whose end is missing: that of its signed part behind the subject."""
    validity = tlv(0x30, 2 * tlv(0x17, b"260101000000Z"))
    signed = tlv(0xA0, b"\x02\x01\x02") + tlv(0x02, b"\x01") + tlv(0x30, b"") + tlv(0x30, b"") + validity
    return tlv(0x30, tlv(0x30, signed + subject))
