"""The PROXY header: read as it was written, in pieces, and nothing else taken for one."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.protocol.crc32c import crc32c
from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.proxy_header import (
    HEAD_BYTES,
    LOCAL_HEADER,
    MOST_BYTES_BEHIND_HEAD,
    SIGNATURE,
    Origin,
    bytes_behind,
    check_beginning,
    header_of,
    origin,
)

PORTS = st.integers(0, 65_535)
V4 = st.ip_addresses(v=4).map(str)
V6 = st.ip_addresses(v=6).map(str).filter(lambda address: "." not in address and "::ffff:" not in address)
PROXY, TCP4, TCP6, UNIX = 0x21, 0x11, 0x21, 0x31
ADDRESSES = ip_address("10.0.0.7").packed + ip_address("10.0.0.1").packed + struct.pack(">HH", 4711, 9292)
NAMED = Origin(("10.0.0.7", 4711), ("10.0.0.1", 9292))


def header(body: bytes = ADDRESSES, *, command: int = PROXY, family: int = TCP4) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


def tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


def read(whole: bytes) -> Origin | None:
    assert bytes_behind(whole[:HEAD_BYTES]) == len(whole) - HEAD_BYTES
    for end in range(HEAD_BYTES + 1):
        check_beginning(whole[:end])
    return origin(whole)


@given(st.one_of(st.tuples(V4, V4), st.tuples(V6, V6)), PORTS, PORTS)
def test_what_is_written_is_read(hosts: tuple[str, str], source: int, destination: int) -> None:
    ends = Origin((hosts[0], source), (hosts[1], destination))
    assert read(header_of(*ends)) == ends


def test_what_is_written_is_what_the_protocol_says() -> None:
    assert header_of(*NAMED) == header()
    assert header_of(("::1", 1), ("::2", 2)) == header(
        ip_address("::1").packed + ip_address("::2").packed + b"\0\1\0\2", family=TCP6
    )
    assert header(b"", command=0x20, family=0) == LOCAL_HEADER


def test_addresses_of_two_families_are_shown_as_those_of_one() -> None:
    written = header_of(("10.0.0.7", 1), ("2001:db8::1", 2))
    assert read(written) == Origin(("10.0.0.7", 1), ("2001:db8::1", 2))
    # As a socket for both families shows a client of the old one, and one of a link.
    assert header_of(("::ffff:10.0.0.7", 4711), ("::ffff:10.0.0.1", 9292)) == header()
    assert read(header_of(("fe80::1%eth0", 1), ("fe80::2%eth0", 2))) == Origin(("fe80::1", 1), ("fe80::2", 2))
    with pytest.raises(ValueError, match="does not appear"):
        header_of(("/run/socket", 1), ("10.0.0.1", 2))


@pytest.mark.parametrize(
    "whole",
    [
        LOCAL_HEADER,
        header(command=0x20),
        header(b"\xff" * 40, command=0x20, family=0x99),
        header(b"", family=0),
        header(b"/run/a".ljust(216, b"\0"), family=UNIX),
    ],
)
def test_without_an_address_the_connection_is_the_proxys_own(whole: bytes) -> None:
    assert read(whole) is None


@given(st.lists(st.tuples(st.integers(4, 255), st.binary(max_size=200)), max_size=8))
def test_tlvs_are_passed_over(tlvs: list[tuple[int, bytes]]) -> None:
    assert read(header(ADDRESSES + b"".join(tlv(*one) for one in tlvs))) == NAMED


@pytest.mark.parametrize("is_right", [True, False])
def test_a_checksum_is_checked(is_right: bool) -> None:
    before = header(ADDRESSES + tlv(0xE0, b"x") + tlv(3, bytes(4)))
    checksum = crc32c(before) ^ (not is_right)
    whole = before[:-4] + checksum.to_bytes(4, "big")
    if is_right:
        assert read(whole) == NAMED
        return
    with pytest.raises(MalformedFrame, match="checksum"):
        read(whole)


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        (header(ADDRESSES[:-1]), "within the addresses"),
        (header(b"", family=TCP6), "within the addresses"),
        (header(ADDRESSES + b"\x04"), "within a TLV"),
        (header(ADDRESSES + b"\x04\xff\xff" + bytes(100)), "a TLV of 65535 bytes is longer"),
        (header(ADDRESSES + tlv(3, b"abc")), "checksum"),
        (header(family=0x12), "kind 0x12"),
        (header(family=0x99), "kind 0x99"),
        (header(command=0x22), "unknown command 2"),
        (header(command=0x11), "version 1"),
        (header(command=0x31), "version 3"),
        (header(bytes(MOST_BYTES_BEHIND_HEAD + 1)), "4097 bytes"),
        (header(bytes(0xFFFF)), "65535 bytes"),
    ],
)
def test_what_is_refused_and_why(whole: bytes, why: str) -> None:
    with pytest.raises(MalformedFrame, match=why):
        read(whole)


@pytest.mark.parametrize(
    ("beginning", "why"),
    [
        (b"PROXY TCP4 10.0.0.7 10.0.0.1 4711 9292\r\n", "version 1, only version 2"),
        (b"P", "version 1"),
        (b"\x16\x03\x01\x02\x00", "begins with TLS"),
        (b"\x00\x00\x00\x14", "begins otherwise"),
        (SIGNATURE[:-1] + b"\r", "begins otherwise"),
        (b"\n", "begins otherwise"),
    ],
)
def test_what_is_no_header_is_told_by_its_first_bytes(beginning: bytes, why: str) -> None:
    with pytest.raises(MalformedFrame, match=why):
        check_beginning(beginning)
