"""Emptying a listening socket's backlog: what a drain does before it closes a port.

A socket that closes resets the connections that its clients have opened and nobody has accepted. So the port first
takes no new connection: a packet filter drops the SYN that would open one, and the client's kernel sends it again a
second later. By then the socket is closed. Another gateway on the port gets the connection (SO_REUSEPORT), or the
client is refused and tries another address. What is in the backlog meanwhile is accepted and served.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Final

_SO_ATTACH_FILTER: Final = 26
_LOAD_BYTE, _AND, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x54, 0x15, 0x06
_FLAGS_AT: Final = 13
"""Offset of the flags in a TCP header, with which a packet begins for a socket's filter."""
_SYN, _SYN_OR_ACK = 0x02, 0x12
_DROP, _PASS = 0, 0xFFFFFFFF
_DROP_SYN: Final = (
    (_LOAD_BYTE, 0, 0, _FLAGS_AT),
    (_AND, 0, 0, _SYN_OR_ACK),
    (_JUMP_IF_EQUAL, 0, 1, _SYN),
    (_RETURN, 0, 0, _DROP),
    (_RETURN, 0, 0, _PASS),
)
"""Classic BPF: drop a packet with SYN and without ACK."""


def open_no_more(listening: socket.socket) -> bool:
    """Have the kernel open no more connections on the socket; return False where it cannot (Linux only)."""
    program = b"".join(struct.pack("HBBI", *step) for step in _DROP_SYN)
    steps = ctypes.create_string_buffer(program)
    try:
        listening.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(_DROP_SYN), ctypes.addressof(steps))
        )
    except OSError:
        return False
    return True
