"""Ports that somebody listens on are not handed out, nor is any twice."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from tools.sandbox.ports import FIRST_PORT, LAST_PORT, free_block, free_port, is_free

ASKS = """
import random, sys
from tools.sandbox import ports

class Dice:
    places = iter(map(int, sys.argv[2:]))
    def randrange(self, *_): return next(self.places)

random.SystemRandom = Dice
print(ports.free_block(int(sys.argv[1])), flush=True)
sys.stdin.read()
"""
"""Asks for a block at the places that it is told to try, and holds it until its input ends."""


def test_a_listener_on_any_loopback_address_takes_the_port() -> None:
    port = free_port()
    assert is_free(port)
    with socket.create_server(("127.66.77.88", port)):
        assert not is_free(port)
    assert is_free(port)


def test_none_is_handed_out_twice() -> None:
    ports = [free_port() for _ in range(50)]
    first = free_block(100)
    assert len({*ports, *range(first, first + 100)}) == 150
    assert all(FIRST_PORT <= port < LAST_PORT for port in ports)


def asking(directory: Path, length: int, *places: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", ASKS, str(length), *map(str, places)],
        env={**os.environ, "TMPDIR": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_one_process_holds_no_other_is_given(tmp_path: Path) -> None:
    """Before anybody listens: a broker takes seconds to come to that."""
    # Nobody else comes near: this process holds all of them, and the two have a file of claims to themselves.
    first = free_block(3 + 40 + 4) + 3
    with asking(tmp_path, 40, first) as state_owner:
        assert state_owner.stdout is not None
        assert int(state_owner.stdout.readline()) == first
        with asking(tmp_path, 4, first - 3, first + 39, first, first + 40) as other:
            given, _ = other.communicate(timeout=30)
        assert int(given) == first + 40
        state_owner.communicate(timeout=30)
