"""The bare pass-throughs and the ports that targets get, with real processes and sockets."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidgate.protocol.messages import API_VERSIONS
from tests.support import raw
from tests.support.serving import serving
from tools.bench.targets import BARE, Broker, TargetFailed, running, sockets_listening
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


def test_direct_has_no_process(broker: Broker, tmp_path: Path) -> None:
    with running("direct", broker, tmp_path, None) as through:
        assert (through.address, through.pid) == (broker.address, None)


def test_a_proxy_that_dies_at_once_is_told_with_its_output(tmp_path: Path) -> None:
    nowhere = Broker(1, ("127.0.0.1", 0), ("127.0.0.1", 0), free_port())
    broken = tmp_path / "haproxy"
    broken.write_text("#!/bin/sh\necho no such option\nexit 1\n")
    broken.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
        with pytest.raises(TargetFailed, match="no such option"), running("haproxy", nowhere, tmp_path, None):
            pass


def test_sockets_that_share_a_port_are_counted_each() -> None:
    sockets = [socket.socket() for _ in range(2)]
    try:
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sockets[0].bind(("127.0.0.1", 0))
        address = sockets[0].getsockname()
        sockets[1].bind(address)
        sockets[0].listen()
        assert sockets_listening(address[1]) == 1  # bound is not listening
        sockets[1].listen()
        assert sockets_listening(address[1]) == 2
    finally:
        for one in sockets:
            one.close()
