"""Who is in a certificate: its subject as Java prints it, and who has none that can be read."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from pidgate.gateway.tls.certificate import NotACertificate, subject
from pidgate.gateway.tls.distinguished_name import (
    LONGEST_SUBJECT_BYTES,
    MOST_ATTRIBUTES,
    NoName,
    distinguished_name,
)
from pidgate.gateway.tls.principals import CertificateUsers
from pidgate.quota.entities import is_unidentified, unidentified
from tests.support.subjects import CN, attribute, certificate, multi, name, tlv
from tools.sandbox.certificates import Authority

NOBODY = unidentified("SSL")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("principals"))


def issued(authority: Authority, stem: str, subject_of_openssl: str) -> bytes:
    pem: str = Path(authority.issue(stem, subject=subject_of_openssl).cert_file).read_text()
    return ssl.PEM_cert_to_DER_cert(pem)


def test_the_subject_of_a_real_certificate(authority: Authority) -> None:
    found = issued(authority, "joe", "/C=US/ST=MD/O=ac\\,me/OU=a/OU=b/CN=joe/UID=j1/DC=org")
    assert distinguished_name(subject(found)) == r"DC=org,UID=j1,CN=joe,OU=b,OU=a,O=ac\,me,ST=MD,C=US"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ([], ""),
        ([attribute(CN, "joe")], "CN=joe"),
        ([attribute(CN, " a b ")], r"CN=\ a b\ "),
        ([attribute(CN, "  ")], r"CN=\ \ "),
        ([attribute(CN, ',+"\\<>;=#')], r"CN=\,\+\"\\\<\>\;\=\#"),
        ([attribute(CN, "a\0b")], r"CN=a\00b"),
        ([attribute(CN, "grüße")], "CN=grüße"),
        ([attribute(CN, "joe", tag=0x13)], "CN=joe"),
        ([attribute(CN, "joe", tag=0x16)], "CN=joe"),
        ([attribute(CN, "joe", tag=0x1C)], "CN=#1c036a6f65"),  # UniversalString
        ([attribute("550405", "7")], "2.5.4.5=#0c0137"),  # serialNumber has no keyword of RFC 2253
        ([attribute("2a864886f70d010901", "a@b", tag=0x16)], "1.2.840.113549.1.9.1=#1603614062"),
        ([attribute("883703", "x")], "2.999.3=#0c0178"),
        ([multi((CN, "joe"), ("55040b", "x")), attribute("55040a", "acme")], "O=acme,CN=joe+OU=x"),
    ],
)
def test_names_are_printed_as_java_does(attributes: list[bytes], expected: str) -> None:
    assert distinguished_name(b"".join(attributes)) == expected


@pytest.mark.parametrize(
    "attributes",
    [
        [attribute(CN, b"jo\xff")],
        [attribute(CN, "a")] * (MOST_ATTRIBUTES + 1),
        [attribute(CN, LONGEST_SUBJECT_BYTES * "a")],
        [b"\x31\x03\x30\x01"],
        [b"\x30\x00"],
        [tlv(0x31, tlv(0x30, b"\x06\x00\x0c\x01a"))],
        [tlv(0x31, tlv(0x30, b"\x06\x03\x55\x04\x03"))],
    ],
)
def test_a_subject_that_is_not_read_for_sure_is_one_of_all_such(attributes: list[bytes]) -> None:
    with pytest.raises(NoName):
        distinguished_name(b"".join(attributes))
    assert CertificateUsers("DEFAULT").user(certificate(name(*attributes))) == NOBODY


@pytest.mark.parametrize("text", ["joe\n", "a\rb", "a\u2028b"])
def test_ends_of_lines_which_java_treats_otherwise_name_nobody(text: str) -> None:
    assert CertificateUsers("DEFAULT").user(certificate(name(attribute(CN, text)))) == NOBODY


def test_no_subject_is_nobody_and_not_anonymous() -> None:
    assert CertificateUsers("DEFAULT").user(certificate(name())) == NOBODY
    # A rule that makes nothing of a name.
    assert CertificateUsers("RULE:CN=(.*),O=x/$1/").user(
        certificate(name(attribute("55040a", "x"), attribute(CN, "")))
    ) == NOBODY  # fmt: skip


def test_no_certificate_makes_a_user_of_those_that_cannot_be_identified() -> None:
    """A NUL, with which they begin, is printed as an escape."""
    for text in ("\0PLAIN", "\0"):
        user = CertificateUsers("RULE:^CN=(.*)$/$1/").user(certificate(name(attribute(CN, text))))
        assert not is_unidentified(user)


def test_garbage_is_no_certificate() -> None:
    whole = certificate(name(attribute(CN, "joe")))
    empty = (tlv(0x30, tlv(0x30, b"")), tlv(0x30, tlv(0x30, tlv(0xA0, b""))))
    for garbage in (*(whole[:end] for end in range(len(whole))), *empty):
        with pytest.raises(NotACertificate):
            subject(garbage)
        assert CertificateUsers("DEFAULT").user(garbage) == NOBODY
