"""The time in which the certificates of a PEM file are valid: X.509 read as far as that (RFC 5280, 4.1).

Python's ssl module shows it of a peer's certificate only, and of no file.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Final, NamedTuple

BEGIN: Final = "-----BEGIN CERTIFICATE-----"
END: Final = "-----END CERTIFICATE-----"

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18


class NotACertificate(ValueError):
    """There is no certificate in it that can be read."""


class Validity(NamedTuple):
    """The first and the last second in which a certificate is valid."""

    begins: datetime
    ends: datetime


def validities(pem: str) -> list[Validity]:
    """Return the validity of each certificate in the text, in its order. Raises NotACertificate."""
    found = []
    for block in pem.split(BEGIN)[1:]:
        body, end, _ = block.partition(END)
        try:
            found.append(_validity(ssl.PEM_cert_to_DER_cert(f"{BEGIN}{body}{end}")))
        except (ValueError, IndexError) as error:
            raise NotACertificate(f"its certificate {len(found) + 1} cannot be read") from error
    if not found:
        raise NotACertificate(f"there is no {BEGIN} in it")
    return found


def _validity(der: bytes) -> Validity:
    """Raises ValueError, IndexError."""
    certificate, _ = _content(der, 0, _SEQUENCE)
    signed, _ = _content(certificate, 0, _SEQUENCE)
    at = 0
    if signed[0] == _VERSION:
        at = _skip(signed, at)
    for _ in ("serial number", "signature", "issuer"):
        at = _skip(signed, at)
    times, _ = _content(signed, at, _SEQUENCE)
    return Validity(_time(times, 0), _time(times, _skip(times, 0)))


def _content(der: bytes, at: int, tag: int) -> tuple[bytes, int]:
    """Return the content of the element at that place, which has to have this tag, and its end."""
    if der[at] != tag:
        raise ValueError(f"a tag {der[at]:#x} where {tag:#x} has to be")
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length - 0x80  # bytes of the length itself
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
    if start + length > len(der):
        raise ValueError("cut short")
    return der[start : start + length], start + length


def _skip(der: bytes, at: int) -> int:
    return _content(der, at, der[at])[1]


def _time(der: bytes, at: int) -> datetime:
    if der[at] == _UTC_TIME:
        # Two digits of the year: 50 to 99 are of the last century.
        text = _content(der, at, _UTC_TIME)[0].decode("ascii")
        text = ("19" if text[:2] >= "50" else "20") + text
    else:
        text = _content(der, at, _GENERALIZED_TIME)[0].decode("ascii")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
