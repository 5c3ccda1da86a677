"""Free TCP ports for brokers and gateways.

Ports are below the kernel's ephemeral range (32768-60999 on Linux), so that no outgoing connection occupies
the port of a restarting broker. A broker binds its port seconds after its allocation, and test processes run
in parallel. Each port is therefore claimed until it is returned or the process ends, by a lock on one byte of
a file shared by all sandboxes of this user. Other programs can still take one.
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
    """Return the file whose byte N represents port N. It stays open, because closing it would drop all locks."""
    path = Path(tempfile.gettempdir()) / f"pidgate-sandbox-ports.{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _claim(first: int, length: int) -> bool:
    """Return False if another process has claimed one of these ports."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, length, first)
    except OSError:
        return False
    return True


def is_free(port: int) -> bool:
    """Return whether no process listens on this port on any local IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # With this option only listening sockets conflict, not connections in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def free_block(length: int) -> int:
    """Return the first of `length` consecutive free ports that no running sandbox has claimed.

    Raises OSError if there is no such block.
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
    """Release a block of ports whose user has ended for good."""
    _handed_out.difference_update(range(first, first + length))
    fcntl.lockf(_claims(), fcntl.LOCK_UN, length, first)


def free_port() -> int:
    """Return a free port. Raises OSError."""
    return free_block(1)
