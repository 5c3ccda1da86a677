"""The relay of fault tests is as bad as it says: each fault is seen at both ends of a connection."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.faulty_relay import HOST, FaultyRelay


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while data := self.request.recv(65_536):
                self.request.sendall(data)
        except ConnectionResetError:
            pass


@pytest.fixture
def relay() -> Iterator[FaultyRelay]:
    with socketserver.ThreadingTCPServer((HOST, 0), Echo) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        with FaultyRelay((HOST, server.server_address[1])) as relay:
            yield relay
        server.shutdown()
        serving.join()


def connected(relay: FaultyRelay) -> socket.socket:
    client = socket.create_connection((HOST, relay.port), timeout=5)
    assert echoed(client)
    return client


def echoed(client: socket.socket, data: bytes = b"x") -> bool:
    client.sendall(data)
    got = b""
    while len(got) < len(data):
        more = client.recv(65_536)
        if not more:
            return False
        got += more
    return got == data


def test_it_hands_on_until_it_is_cut(relay: FaultyRelay) -> None:
    with connected(relay) as client:
        assert echoed(client, bytes(200_000))
        relay.cut()
        assert client.recv(1) == b""
    with pytest.raises(OSError):
        connected(relay)
    relay.heal()
    connected(relay).close()


def test_a_reset_is_no_end(relay: FaultyRelay) -> None:
    with connected(relay) as client:
        relay.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    connected(relay).close()


def test_slow_is_slow_until_it_is_healed(relay: FaultyRelay) -> None:
    with connected(relay) as client:
        relay.slow(20_000)
        began_s = time.monotonic()
        assert echoed(client, bytes(4_000))
        assert time.monotonic() - began_s > 0.3
        relay.heal()
        assert echoed(client, bytes(200_000))


def test_what_hangs_hangs_also_for_who_comes_and_is_reset_when_it_heals(relay: FaultyRelay) -> None:
    with connected(relay) as client:
        relay.hang()
        with socket.create_connection((HOST, relay.port), timeout=5) as comer:
            for one in (client, comer):
                one.settimeout(0.2)
                one.sendall(b"x")
                with pytest.raises(TimeoutError):
                    one.recv(1)
        client.settimeout(5)
        relay.heal()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    connected(relay).close()
