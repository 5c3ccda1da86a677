"""The readiness probe against answers of a broker, byte for byte."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pidgate.sandbox.wire import broker_view, init_producer_id_error

# Metadata v1: correlation id 1; brokers 1 and 102 (no rack, rack "r"); controller 102; no topics.
METADATA = bytes.fromhex(
    "00000001 00000002"
    "00000001 0009 3132372e302e302e31 00005000 ffff"
    "00000066 0009 3132372e302e302e31 00005001 0001 72"
    "00000066 00000000"
)
# InitProducerId v0: correlation id 1, throttle 0, COORDINATOR_LOAD_IN_PROGRESS, no producer.
LOADING = bytes.fromhex("00000001 00000000 000e ffffffffffffffff ffff")


@contextmanager
def serving(answer: bytes) -> Iterator[tuple[str, int]]:
    """A server that reads one request and sends these bytes in two pieces."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(answer[:5])
                connection.sendall(answer[5:])

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        thread.join()


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_brokers_and_controller_are_read() -> None:
    with serving(framed(METADATA)) as address:
        view = broker_view(address)
    assert view.brokers == {1: ("127.0.0.1", 20480), 102: ("127.0.0.1", 20481)}
    assert view.controller_id == 102


def test_the_error_code_is_read() -> None:
    with serving(framed(LOADING)) as address:
        assert init_producer_id_error(address) == 14


def test_a_broker_that_hangs_up_is_not_ready() -> None:
    with serving(framed(METADATA)[:20]) as address, pytest.raises(OSError, match="closed in the middle"):
        broker_view(address)
