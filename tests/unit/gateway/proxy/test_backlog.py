"""A port that drains resets no connection: real sockets, whose backlog nobody accepts."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pidgate.gateway.proxy.backlog import drop_new_connections
from pidgate.gateway.proxy.listeners import listening_socket

CLIENTS = 16


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def two_on_one_port(stack: ExitStack) -> tuple[socket.socket, socket.socket, int]:
    first = stack.enter_context(listening_socket("127.0.0.1", 0, True))
    port = first.getsockname()[1]
    return first, stack.enter_context(listening_socket("127.0.0.1", port, True)), port


def connecting(stack: ExitStack, port: int) -> list[socket.socket]:
    clients = [stack.enter_context(socket.socket()) for _ in range(CLIENTS)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
    return clients


def backlog_of(listening: socket.socket, stack: ExitStack) -> list[socket.socket]:
    found = []
    while True:
        try:
            found.append(stack.enter_context(listening.accept()[0]))
        except BlockingIOError:
            return found


def test_what_is_in_the_backlog_is_reset_by_closing_alone(stack: ExitStack) -> None:
    """The control: without emptying, a close is noticed."""
    first, second, port = two_on_one_port(stack)
    clients = connecting(stack, port)
    time.sleep(0.05)
    first.close()
    mine = len(backlog_of(second, stack))
    assert 0 < mine < CLIENTS
    reset = 0
    for client in clients:
        try:
            client.recv(1)
        except BlockingIOError:
            continue
        except ConnectionResetError:
            reset += 1
    assert reset == CLIENTS - mine


def test_an_emptied_port_resets_nobody_and_the_other_gets_the_rest(stack: ExitStack) -> None:
    first, second, port = two_on_one_port(stack)
    clients = connecting(stack, port)
    assert drop_new_connections(first)
    late = connecting(stack, port)
    time.sleep(0.05)
    accepted = backlog_of(first, stack)
    first.close()
    accepted += backlog_of(second, stack)
    assert CLIENTS <= len(accepted) < 2 * CLIENTS, "of those that came late some wait for the other"
    deadline = time.monotonic() + 5
    while len(accepted) < 2 * CLIENTS and time.monotonic() < deadline:
        time.sleep(0.05)
        accepted += backlog_of(second, stack)
    assert len(accepted) == 2 * CLIENTS
    for client in (*clients, *late):
        with pytest.raises(BlockingIOError):
            client.recv(1)
