"""X.509 certificates, parsed for their validity and subject (RFC 5280, 4.1).

Python's ssl module gives the validity of a peer's certificate only, and a subject without its value types.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple

from pidgate.gateway.tls import der

BEGIN: Final = "-----BEGIN CERTIFICATE-----"
END: Final = "-----END CERTIFICATE-----"

_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18

# Fields of the signed part after the optional version: serial number, signature, issuer, ...
_VALIDITY: Final = 4
_SUBJECT: Final = 5


class NotACertificate(ValueError):
    """The input contains no readable certificate."""


class Validity(NamedTuple):
    """First and last second of a certificate's validity."""

    begins: datetime
    ends: datetime


def validities(pem: str) -> list[Validity]:
    """Return the validity of each certificate in the text, in order. Raises NotACertificate."""
    found = []
    for block in pem.split(BEGIN)[1:]:
        body, end, _ = block.partition(END)
        try:
            found.append(_validity(ssl.PEM_cert_to_DER_cert(f"{BEGIN}{body}{end}")))
        except (ValueError, IndexError) as error:
            raise NotACertificate(f"its certificate {len(found) + 1} cannot be read") from error
    if not found:
        raise NotACertificate(f"it has no {BEGIN}")
    return found


def subject(certificate: bytes) -> bytes:
    """Return the content of a DER certificate's subject Name. Raises NotACertificate."""
    try:
        return _field(certificate, _SUBJECT)
    except (ValueError, IndexError) as error:
        raise NotACertificate("it cannot be read") from error


def _validity(certificate: bytes) -> Validity:
    """Read the validity period. Raises ValueError, IndexError."""
    begins, ends = der.elements(_field(certificate, _VALIDITY))
    return Validity(_time(begins), _time(ends))


def _field(certificate: bytes, number: int) -> bytes:
    """Return the content of the field with this number in the signed part. Raises ValueError, IndexError."""
    signed = der.content(der.content(certificate, 0, der.SEQUENCE), 0, der.SEQUENCE)
    fields = list(islice(der.elements(signed), number + 1))
    has_version = fields[0].tag == _VERSION
    return fields[number if has_version else number - 1].content_of(der.SEQUENCE)


def _time(found: der.Element) -> datetime:
    text = found.content.decode("ascii")
    if found.tag == _UTC_TIME:
        # UTCTime has a two digit year: 50 to 99 belong to the 20th century.
        text = ("19" if text[:2] >= "50" else "20") + text
    elif found.tag != _GENERALIZED_TIME:
        raise ValueError(f"tag {found.tag:#x} instead of a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
