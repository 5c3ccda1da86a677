"""The readiness probe against answers of a broker."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pidgate.load.exchanges import message_of
from pidgate.protocol import codec, messages
from tests.support.frames import framed
from tools.sandbox.wire import broker_view, init_producer_id_error

METADATA = codec.encode_response(
    1,
    message_of(
        codec.message_class(messages.METADATA, "response"),
        messages.METADATA_PROBE_VERSION,
        {
            "brokers": [
                {"node_id": 1, "host": "127.0.0.1", "port": 20480},
                {"node_id": 102, "host": "127.0.0.1", "port": 20481, "rack": "r"},
            ],
            "controller_id": 102,
        },
    ),
)
# InitProducerId v1: correlation id 1, throttle 0, COORDINATOR_LOAD_IN_PROGRESS, no producer.
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


def test_brokers_and_controller_are_read() -> None:
    with serving(METADATA) as address:
        view = broker_view(address)
    assert view.brokers == {1: ("127.0.0.1", 20480), 102: ("127.0.0.1", 20481)}
    assert view.controller_id == 102


def test_the_error_code_is_read() -> None:
    with serving(framed(LOADING)) as address:
        assert init_producer_id_error(address) == 14
