"""The bare pass-throughs and the ports that targets get, with real processes and sockets."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidgate.protocol.messages import API_VERSIONS
from tests.support import raw
from tests.support.serving import serving
from tools.bench.targets import BARE, Broker, running
from tools.sandbox.ports import free_port


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Answers the first ApiVersions of each connection, then sends back whatever comes."""

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            connection.sendall(raw.response(API_VERSIONS, 3, {"error_code": 0}, correlation_id=1))
            while data := connection.recv(65536):
                connection.sendall(data)

    with serving(serve) as address:
        yield Broker(1, address, address, free_port())


@pytest.mark.parametrize("shape", BARE)
def test_a_bare_pass_through_changes_nothing(shape: str, broker: Broker, tmp_path: Path) -> None:
    hello = bytes.fromhex("0000000a") + b"ten bytes!"
    bulk = bytes(range(256)) * 8192
    with running(shape, broker, tmp_path, None) as through:
        assert through.pid is not None
        assert through.address[1] == broker.proxy_port, "where the broker sends clients"
        with socket.create_connection(through.address) as connection:
            connection.sendall(hello)  # before the proxy can have reached the broker
            assert connection.recv(65536)
            sender = threading.Thread(target=connection.sendall, args=(bulk,))
            sender.start()
            received = bytearray()
            while len(received) < len(bulk):
                received += connection.recv(65536)
            sender.join()
    assert received == bulk
