"""PROXY protocol header, version 2: the original addresses of a proxied connection. PURE.

It precedes everything else on a connection, including TLS:

    signature     12 bytes
    version 2 and command, 4 bits each    0 LOCAL: the proxy's own connection, 1 PROXY
    family and protocol, 4 bits each      1 IPv4, 2 IPv6; 1 a stream
    length        uint16, length of the rest
    addresses     source, destination, their ports; then TLVs: type, uint16 length, value

Source: haproxy.org, doc/proxy-protocol.txt.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Final, NamedTuple

from pidgate.protocol.crc32c import crc32c
from pidgate.protocol.errors import MalformedFrame

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES: Final = 16
"""Signature, version and command, family, length."""
MOST_BYTES_BEHIND_HEAD: Final = 4096
"""Limit for addresses and TLVs. Proxies send a few hundred bytes, mostly a client certificate."""

Endpoint = tuple[str, int]

_PROXY: Final = 0x21
_LOCAL: Final = 0x20
_V1: Final = b"PROXY"
_TLS_HANDSHAKE: Final = b"\x16\x03"
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_UNIX_STREAM: Final = 0x31
_UNSPECIFIED: Final = 0x00
_ADDRESSES: Final = {_TCP4: Struct(">4s4sHH"), _TCP6: Struct(">16s16sHH"), _UNIX_STREAM: Struct("108s108s")}
_FAMILY_AND_LENGTH: Final = Struct(">BBH")
_LENGTH: Final = Struct(">H")
_TLV_HEAD_BYTES: Final = 3
_CRC32C: Final = 0x03
_CRC32C_BYTES: Final = 4

LOCAL_HEADER: Final = SIGNATURE + _FAMILY_AND_LENGTH.pack(_LOCAL, _UNSPECIFIED, 0)
"""Header of a connection opened by the sender itself."""


class Origin(NamedTuple):
    """Both ends of the connection accepted by the proxy."""

    source: Endpoint
    destination: Endpoint


def check_beginning(beginning: bytes) -> None:
    """Raise MalformedFrame as soon as the first bytes cannot be a version 2 header."""
    if SIGNATURE.startswith(beginning[: len(SIGNATURE)]):
        return
    if beginning.startswith(_V1[: len(beginning)]):
        raise MalformedFrame("its PROXY header has version 1, only version 2 is supported")
    what = "with TLS" if beginning.startswith(_TLS_HANDSHAKE[: len(beginning)]) else "otherwise"
    raise MalformedFrame(f"it begins {what} instead of a PROXY header")


def bytes_behind(head: bytes) -> int:
    """Return the number of header bytes after the head (HEAD_BYTES). Raises MalformedFrame."""
    check_beginning(head)
    command, _, length = _FAMILY_AND_LENGTH.unpack_from(head, len(SIGNATURE))
    if command >> 4 != _PROXY >> 4:
        raise MalformedFrame(f"its PROXY header has version {command >> 4}, only version 2 is supported")
    if command not in (_PROXY, _LOCAL):
        raise MalformedFrame(f"its PROXY header has the unknown command {command & 0x0F}")
    if length > MOST_BYTES_BEHIND_HEAD:
        raise MalformedFrame(
            f"its PROXY header has {length} bytes after its head, the limit is {MOST_BYTES_BEHIND_HEAD}"
        )
    return int(length)


def origin(header: bytes) -> Origin | None:
    """Parse a complete header; None if it has no addresses because the connection is the proxy's own.

    Raises MalformedFrame.
    """
    command, family, _ = _FAMILY_AND_LENGTH.unpack_from(header, len(SIGNATURE))
    at = HEAD_BYTES
    found = None
    if command == _LOCAL:
        # The protocol requires the rest to be skipped.
        return None
    if family in _ADDRESSES:
        addresses = _ADDRESSES[family]
        if len(header) < at + addresses.size:
            raise MalformedFrame("its PROXY header ends within the addresses")
        if family != _UNIX_STREAM:
            source, destination, source_port, port = addresses.unpack_from(header, at)
            found = Origin((_text(source), source_port), (_text(destination), port))
        at += addresses.size
    elif family != _UNSPECIFIED:
        raise MalformedFrame(f"its PROXY header has connection kind 0x{family:02x}, which is not a stream")
    _check_tlvs(header, at)
    return found


def _check_tlvs(header: bytes, at: int) -> None:
    while at < len(header):
        value = at + _TLV_HEAD_BYTES
        if value > len(header):
            raise MalformedFrame("its PROXY header ends within a TLV")
        (length,) = _LENGTH.unpack_from(header, at + 1)
        kind, at = header[at], value + length
        if at > len(header):
            raise MalformedFrame(f"a TLV of {length} bytes is longer than its PROXY header")
        if kind == _CRC32C:
            without = header[:value] + bytes(length) + header[at:]
            if length != _CRC32C_BYTES or crc32c(without) != int.from_bytes(header[value:at], "big"):
                raise MalformedFrame("the checksum of its PROXY header is wrong")


def _text(packed: bytes) -> str:
    """Return an address as a socket of its family shows it."""
    address = ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def header_of(source: Endpoint, destination: Endpoint) -> bytes:
    """Return the header of a connection from source to destination. Raises ValueError for an invalid address."""
    addresses = [_address(host) for host, _ in (source, destination)]
    family = _TCP4
    if not all(isinstance(address, IPv4Address) for address in addresses):
        family = _TCP6
        addresses = [
            IPv6Address(f"::ffff:{address}") if isinstance(address, IPv4Address) else address
            for address in addresses
        ]
    body = _ADDRESSES[family].pack(addresses[0].packed, addresses[1].packed, source[1], destination[1])
    return SIGNATURE + _FAMILY_AND_LENGTH.pack(_PROXY, family, len(body)) + body


def _address(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host.partition("%")[0])  # strip the interface name
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
