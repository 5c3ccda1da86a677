"""Emptying a listening socket's backlog: what a drain does before it closes a port.

A closing socket resets the connections in its backlog, which are open and not yet accepted. So a packet filter first
drops each SYN that would open a new one, and the gateway accepts and serves the backlog. The client's kernel sends its
SYN again a second later, when the socket is closed. Then another gateway on the port gets the connection
(SO_REUSEPORT), or the client is refused and tries another address.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Final

_SO_ATTACH_FILTER: Final = 26
_LOAD_BYTE, _AND, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x54, 0x15, 0x06
_FLAGS_AT: Final = 13
"""Offset of the flags in the TCP header, where a packet begins for a socket's filter."""
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


def drop_new_connections(listening: socket.socket) -> bool:
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
