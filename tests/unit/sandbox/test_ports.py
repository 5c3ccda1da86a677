"""Ports that somebody listens on are not handed out, nor is any twice."""

import socket
import subprocess
import sys

from sandbox.ports import FIRST_PORT, LAST_PORT, free_block, free_port, is_free


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


def test_what_one_process_holds_no_other_is_given() -> None:
    """Before anybody listens: a broker takes seconds to come to that."""
    first = free_block(40)
    script = f"""
import random
from sandbox import ports

class Dice:
    places = iter([{first} - 3, {first} + 39, {first}, {first} + 40])
    def randrange(self, *_): return next(self.places)

random.SystemRandom = Dice
print(ports.free_block(4))
"""
    other = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )
    assert int(other.stdout) == first + 40
