"""Who somebody is: bearer tokens, certificates, PROXY headers, the gateway's own logins.

Compared with Kafka's classes, Java's, jose4j's and HAProxy.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from typing import Final, cast

from pidgate.gateway.tls import certificate
from pidgate.gateway.tls.certificate import NotACertificate, subject, validities
from pidgate.gateway.tls.der import content
from pidgate.gateway.tls.distinguished_name import NoName, distinguished_name
from pidgate.gateway.tls.principals import CertificateUsers
from pidgate.protocol import proxy_header
from pidgate.protocol.logins import LoginRefused, tokens
from pidgate.protocol.oauthbearer import principal_in, token_in
from tests.fuzz.haproxy_oracle import haproxy
from tests.fuzz.kafka_oracle import BEARER, CERTIFICATE, CLAIMS, LOGIN, NAME, Refused, kafka
from tests.fuzz.requests import REFUSALS, NotTaken
from tests.fuzz.target import Target
from tests.support import subjects

# ---- OAUTHBEARER ----------------------------------------------------------------------------------------


def _bearer(data: bytes) -> object:
    """Token, and the name in it."""
    if not data:
        raise NotTaken
    return token_in(data), principal_in(data, "sub")


def _same_bearer(data: bytes, found: object) -> None:
    """The token is Kafka's to the letter; a name that is read is the one that every validator of brokers reads."""
    token, name = cast("tuple[str | None, str | None]", found)
    try:
        theirs = json.loads(kafka().ask(BEARER, data))
    except Refused:
        theirs = None
    assert token == theirs
    if name is not None:
        assert token is not None
        claims = json.loads(kafka().ask(CLAIMS, token.encode()))
        assert set(claims.values()) <= {name}, claims


def _bearer_seeds() -> Iterator[bytes]:
    head = base64.urlsafe_b64encode(b'{"alg":"RS256"}').rstrip(b"=").decode()
    for claims in ('{"sub":"bob"}', '{"sub":"b\\u00f6b","x":[1.5,{}]}', '{"sub":7}', '{"sub":"a","sub":"b"}'):
        body = base64.urlsafe_b64encode(claims.encode()).rstrip(b"=").decode()
        for start in ("n,,", "n,a=al=2Cice,"):
            yield f"{start}\x01auth=Bearer {head}.{body}.c2ln\x01x=1\x01\x01".encode()
    yield b"n,,\x01auth=bearer  a.b-_.c\x01\x01"


# ---- certificates ---------------------------------------------------------------------------------------


def _name(data: bytes) -> object:
    try:
        name = content(data, 0, 0x30)
    except (ValueError, IndexError) as error:
        raise NotTaken from error
    return distinguished_name(name)


def _same_name(data: bytes, name: object) -> None:
    """Java takes less: whatever both take is one name."""
    try:
        assert json.loads(kafka().ask(NAME, data)) == name
    except Refused:
        return


def _name_seeds() -> Iterator[bytes]:
    for text in ("joe", " a,b ", "\u00fc", "", "#x", "\0"):
        yield subjects.name(subjects.attribute(subjects.CN, text))
    for tag in (0x13, 0x14, 0x16, 0x1B, 0x1E, 0x04):
        yield subjects.name(subjects.attribute(subjects.CN, "ab", tag=tag))
    for oid in ("550403", "0992268993f22c640101", "2a864886f70d010901", "883703", "00"):
        yield subjects.name(subjects.attribute(oid, "x"), subjects.attribute("55040a", "acme"))
    yield subjects.name(subjects.multi((subjects.CN, "joe"), ("55040b", "x")))
    yield subjects.name()


def _certificate(data: bytes) -> object:
    """The user and the subject, and from when until when it is valid."""
    users = CertificateUsers("DEFAULT")
    name = distinguished_name(subject(data))
    pem = f"{certificate.BEGIN}\n{base64.b64encode(data).decode()}\n{certificate.END}\n"
    (validity,) = validities(pem)
    return name, users.user(data), validity


def _same_certificate(data: bytes, found: object) -> None:
    name, _, validity = cast("tuple[str, object, certificate.Validity]", found)
    try:
        theirs = json.loads(kafka().ask(CERTIFICATE, data))
    except Refused:
        return
    assert name == theirs["name"]
    assert validity.begins.timestamp() == theirs["begins"]
    assert validity.ends.timestamp() == theirs["ends"]


def _certificate_seeds() -> Iterator[bytes]:
    for name in _name_seeds():
        yield subjects.whole_certificate(name)


# ---- PROXY headers --------------------------------------------------------------------------------------


def _proxy(data: bytes) -> object:
    """As the gateway reads it: as much as the head says."""
    proxy_header.check_beginning(data)
    head = data[: proxy_header.HEAD_BYTES]
    if len(head) < proxy_header.HEAD_BYTES:
        raise NotTaken
    end = proxy_header.HEAD_BYTES + proxy_header.bytes_behind(head)
    if len(data) < end:
        raise NotTaken
    return proxy_header.origin(data[:end]), end


def _same_proxy(data: bytes, found: object) -> None:
    """HAProxy has no refusal for some TLVs that are cut short; whatever both take is of one address."""
    origin, end = cast("tuple[proxy_header.Origin | None, int]", found)
    reader = haproxy()
    if origin is None or reader is None:
        return
    theirs = reader.ask(data[:end])
    if theirs is not None:
        source, source_port, destination, port = theirs
        assert origin == ((_unmapped(source), int(source_port)), (_unmapped(destination), int(port)))


def _unmapped(text: str) -> str:
    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _proxy_seeds() -> Iterator[bytes]:
    four, six = ("192.0.2.1", 4000), ("2001:db8::7", 65_535)
    mapped = ("::ffff:192.0.2.9", 1)
    for source, destination in (
        (four, ("192.0.2.2", 9092)),
        (six, ("::1", 9092)),
        (six, four),
        (mapped, six),
    ):
        header = proxy_header.header_of(source, destination)
        yield header
        tlv = b"\x04\x00\x03abc\x03\x00\x04\x00\x00\x00\x00"
        length = int.from_bytes(header[14:16], "big") + len(tlv)
        yield header[:14] + length.to_bytes(2, "big") + header[16:] + tlv
    yield proxy_header.LOCAL_HEADER
    yield proxy_header.SIGNATURE + b"\x21\x31\x00\xd8" + bytes(216)


# ---- logins of the gateway's own ------------------------------------------------------------------------

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_NONCE: Final = "abcdefghijklmnop"
_BETWEEN: Final = b"\n"


def _login(data: bytes) -> object:
    """The client's last message, and whether it takes the server's: what is behind the first line of the input."""
    if not data or data[0] >= len(_MECHANISMS):
        raise NotTaken
    server_first, _, server_last = data[1:].partition(_BETWEEN)
    dialog = tokens(_MECHANISMS[data[0]], "bob", "bob-secret", _NONCE)
    next(dialog)
    final = dialog.send(server_first)
    try:
        dialog.send(server_last)
    except StopIteration:
        return final, True
    except LoginRefused:
        return final, False
    raise AssertionError("a third token")


def _same_login(data: bytes, found: object) -> None:
    """Kafka's client signs what it has understood and not what was said, so only where these are the same."""
    final, is_taken = cast("tuple[bytes, bool]", found)
    server_first, _, server_last = data[1:].partition(_BETWEEN)
    try:
        theirs = json.loads(kafka().ask(LOGIN, data[:1] + server_first))
    except Refused:
        return
    if theirs["understood"].encode() != server_first:
        return
    assert final.decode() == theirs["final"]
    if server_last == b"v=" + theirs["signature"].encode():
        assert is_taken
    elif is_taken:
        assert f"v={theirs['signature']}".encode() in server_last.split(b",")


def _login_seeds() -> Iterator[bytes]:
    salt = base64.b64encode(b"salt").decode()
    for mechanism in range(2):
        for iterations in (1, 4096):
            first = f"r={_NONCE}xyz,s={salt},i={iterations}".encode()
            yield bytes([mechanism]) + first + b"\nv=AAAA"
            signature = json.loads(kafka().ask(LOGIN, bytes([mechanism]) + first))["signature"]
            yield bytes([mechanism]) + first + f"\nv={signature}".encode()
    yield b"\0r=" + _NONCE.encode() + b",s=AAAA,i=0\n"
    yield b"\0r=" + _NONCE.encode() + b",s=AAAA,i=16385\n"


TARGETS: Final = (
    Target("bearer_tokens", _bearer, _same_bearer, _bearer_seeds, REFUSALS),
    Target("subject_names", _name, _same_name, _name_seeds, (NoName, NotTaken)),
    Target("certificates", _certificate, _same_certificate, _certificate_seeds, (NotACertificate, NoName)),
    Target("proxy_headers", _proxy, _same_proxy, _proxy_seeds, REFUSALS),
    Target("own_logins", _login, _same_login, _login_seeds, (LoginRefused, NotTaken)),
)
