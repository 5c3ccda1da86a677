"""A server of blocking sockets: a thread for each connection, for what stands in for a broker or a proxy in tests."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pidgate.load.plan import Address


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Listen on a free port of 127.0.0.1 and let `serve` have each connection; yields the address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    yield listening.getsockname()
    listening.shutdown(socket.SHUT_RDWR)
    accepting.join()
    listening.close()
