"""Ports that somebody listens on are not handed out, nor is any twice."""

import socket

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
