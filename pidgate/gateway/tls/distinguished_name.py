"""A distinguished name as Java's X500Principal.getName() prints it (RFC 2253): the last attribute first. PURE.

Kafka's rules are matched against this very text, so it is Java's to the letter: which types have a keyword, which
characters are escaped, and that all else is written in hexadecimal.
"""

from __future__ import annotations

from typing import Final

from pidgate.gateway.tls import der

MOST_ATTRIBUTES: Final = 32
"""A certificate has five. A pattern with many groups tries all ways to part them, so more are not named."""
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
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads all of them as UTF-8."""
_OID: Final = 0x06
_ESCAPED: Final = {**{ord(char): f"\\{char}" for char in ',=+<>#;"\\'}, 0: "\\00"}
_SPACES: Final = " \r"


class NoName(ValueError):
    """The subject names nobody for sure."""


def distinguished_name(subject: bytes) -> str:
    """Return the text of a subject, the content of its Name in DER; empty for one without attributes.

    Raises NoName for one that is too long, or whose text is no UTF-8: it would be read as that of another.
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
