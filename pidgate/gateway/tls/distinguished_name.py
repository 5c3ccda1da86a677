"""Distinguished names as printed by Java's X500Principal.getName() (RFC 2253), last attribute first. PURE.

Kafka's mapping rules match this text, so it equals Java's exactly: the types with a keyword, the escaped
characters, and hexadecimal for everything else.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.tls import der

MOST_ATTRIBUTES: Final = 32
"""Limit for attributes; a certificate has about five.

More are rejected because patterns with many groups backtrack.
"""
LONGEST_SUBJECT_BYTES: Final = 2_048

_KEYWORDS: Final = {
    bytes.fromhex(oid): keyword
    for oid, keyword in (
        ("550403", "CN"),
        ("550406", "C"),
        ("550407", "L"),
        ("550408", "ST"),
        ("550409", "STREET"),
        ("55040a", "O"),
        ("55040b", "OU"),
        ("0992268993f22c640101", "UID"),
        ("0992268993f22c640119", "DC"),
    )
}
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads all as UTF-8."""
_OID: Final = 0x06
_ESCAPED: Final = {**{ord(char): f"\\{char}" for char in ',=+<>#;"\\'}, 0: "\\00"}
_SPACES: Final = " \r"


class NoName(ValueError):
    """The subject does not identify a user reliably."""


def distinguished_name(subject: bytes) -> str:
    """Return a subject (the content of its DER Name) as text; empty without attributes.

    Raises NoName if it is too long or not UTF-8, since it could be read as another user's name.
    """
    if len(subject) > LONGEST_SUBJECT_BYTES:
        raise NoName(f"its subject has {len(subject)} bytes, above {LONGEST_SUBJECT_BYTES}")
    try:
        sets = [list(der.elements(found.content_of(der.SET))) for found in der.elements(subject)]
        if sum(map(len, sets)) > MOST_ATTRIBUTES:
            raise NoName(f"its subject has more than {MOST_ATTRIBUTES} attributes")
        return ",".join("+".join(map(_attribute, attributes)) for attributes in reversed(sets))
    except (ValueError, IndexError) as error:
        raise error if isinstance(error, NoName) else NoName("its subject cannot be read") from error


def _attribute(found: der.Element) -> str:
    kind, value = der.elements(found.content_of(der.SEQUENCE))
    oid = kind.content_of(_OID)
    keyword = _KEYWORDS.get(oid)
    if keyword is None:
        return f"{_dotted(oid)}=#{value.encoded.hex()}"
    if value.tag not in _TEXTS:
        return f"{keyword}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8'))}"


def _escaped(text: str) -> str:
    escaped = text.translate(_ESCAPED)
    body = escaped.lstrip(_SPACES)
    leading, body = escaped[: len(escaped) - len(body)], body.rstrip(_SPACES)
    trailing = escaped[len(leading) + len(body) :]
    return "".join(f"\\{char}" for char in leading) + body + "".join(f"\\{char}" for char in trailing)


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte % 0x80
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
