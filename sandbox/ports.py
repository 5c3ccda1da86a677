"""Free TCP ports for brokers and gateways.

Ports are taken from below the kernel's ephemeral range (32768-60999 on Linux), so that no
outgoing connection of a busy test can sit on one when a broker comes back to it, and at random, so that two
test runs on one machine rarely meet. Nothing is reserved: a port can still be taken before it is used.
"""

import random
import socket

FIRST_PORT = 20_000
LAST_PORT = 32_000

_handed_out: set[int] = set()


def is_free(port: int) -> bool:
    """True when nobody listens on this port on any IPv4 address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections in TIME_WAIT do not hinder a server; one that listens does, even with this option.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def free_block(length: int) -> int:
    """The first of `length` consecutive free ports; none of them was handed out by this process before.

    Raises OSError when no such block could be found.
    """
    dice = random.SystemRandom()
    for _ in range(1_000):
        first = dice.randrange(FIRST_PORT, LAST_PORT - length)
        block = range(first, first + length)
        if not _handed_out.isdisjoint(block):
            continue
        if all(is_free(port) for port in block):
            _handed_out.update(block)
            return first
    raise OSError(f"no {length} consecutive free ports between {FIRST_PORT} and {LAST_PORT}")


def free_port() -> int:
    """One free port."""
    return free_block(1)
