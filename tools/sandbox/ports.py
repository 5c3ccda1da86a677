"""Free TCP ports for brokers and gateways.

Ports are taken from below the kernel's ephemeral range (32768-60999 on Linux), so that no
outgoing connection of a busy test can sit on one when a broker comes back to it. A broker binds its port seconds
after it was handed out, and test processes run side by side: so each port is claimed until it is given back or the
process ends, by a lock on one byte of a file that all sandboxes of this user share. Strangers can still take one.
"""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

FIRST_PORT = 10_000
LAST_PORT = 32_000

_handed_out: set[int] = set()


@cache
def _claims() -> int:
    """The file whose byte N stands for port N. Open until the process ends: closing it would drop every lock."""
    path = Path(tempfile.gettempdir()) / f"pidgate-sandbox-ports.{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _claim(first: int, length: int) -> bool:
    """Return False when another process has claimed one of these ports."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, length, first)
    except OSError:
        return False
    return True


def is_free(port: int) -> bool:
    """Return True when nobody listens on this port on any IPv4 address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections in TIME_WAIT do not hinder a server; one that listens does, even with this option.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def free_block(length: int) -> int:
    """Return the first of `length` consecutive free ports; none of them is handed out, by this process or by
    another that still runs.

    Raises OSError when no such block could be found.
    """
    dice = random.SystemRandom()
    for _ in range(1_000):
        first = dice.randrange(FIRST_PORT, LAST_PORT - length)
        block = range(first, first + length)
        if not _handed_out.isdisjoint(block):
            continue
        if not _claim(first, length):
            continue
        _handed_out.update(block)
        if all(is_free(port) for port in block):
            return first
        give_back(first, length)
    raise OSError(f"no {length} consecutive free ports between {FIRST_PORT} and {LAST_PORT}")


def give_back(first: int, length: int) -> None:
    """Let others have the ports of a block that was handed out: its user has ended, and nobody comes back to it."""
    _handed_out.difference_update(range(first, first + length))
    fcntl.lockf(_claims(), fcntl.LOCK_UN, length, first)


def free_port() -> int:
    """Return a free port. Raises OSError."""
    return free_block(1)
