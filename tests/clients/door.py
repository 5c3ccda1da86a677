"""Doors before the gateway's ports: one does something when the first client knocks, all make the way longer.

Clients take from one to ten seconds until they connect (a JVM on a busy machine), so that nothing can be timed
from the start of their process. And on one machine an answer is there before a client has sent its second
batch; a way as long as between two data centres lets it fill its pipeline.
"""

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

ANSWERS_LATER_S: Final = 0.03

Address = tuple[str, int]


class Door:
    """Listens at `address` (port 0: any) and passes everything on to `inside`, answers a little later.

    Before the first connection goes on, `at_first_knock` runs; when it raises, `failure` keeps the error and
    the door is shut.
    """

    def __init__(
        self, address: Address, inside: Address, at_first_knock: Callable[[], None] | None = None
    ) -> None:
        self._inside = inside
        self._at_first_knock = at_first_knock
        self._listening = socket.create_server(address)
        self._open: list[socket.socket] = [self._listening]
        self.failure: Exception | None = None

    @property
    def address(self) -> Address:
        host, port = self._listening.getsockname()
        return host, port

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shut()

    def _shut(self) -> None:
        for connection in self._open:
            _close(connection)

    def _serve(self) -> None:
        knock = self._at_first_knock
        try:
            while True:
                client, _ = self._listening.accept()
                self._open.append(client)
                if knock is not None:
                    knock()
                    knock = None
                self._let_in(client)
        except OSError:
            self._shut()  # Either the door was shut, or the gateway behind it is gone.
        except Exception as failure:  # noqa: BLE001 - whoever waits for the client is told
            self.failure = failure
            self._shut()

    def _let_in(self, client: socket.socket) -> None:
        gateway = socket.create_connection(self._inside)
        self._open.append(gateway)
        answers: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        for run, arguments in (
            (_pass_on, (client, gateway)),
            (_read, (gateway, answers)),
            (_write, (client, answers)),
        ):
            threading.Thread(target=run, args=arguments, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        pass  # Closed at one of its ends: the other one follows.
    finally:
        _close(target)


def _read(gateway: socket.socket, answers: "queue.SimpleQueue[tuple[float, bytes]]") -> None:
    data = b"first"
    while data:
        try:
            data = gateway.recv(65_536)
        except OSError:
            data = b""
        answers.put((time.monotonic() + ANSWERS_LATER_S, data))


def _write(client: socket.socket, answers: "queue.SimpleQueue[tuple[float, bytes]]") -> None:
    try:
        while (answer := answers.get())[1]:
            due_s, data = answer
            time.sleep(max(0.0, due_s - time.monotonic()))
            client.sendall(data)
    except OSError:
        pass  # The client is gone; the other direction tells the gateway.
    finally:
        _close(client)


def _close(connection: socket.socket) -> None:
    # An error says that it is not connected any more.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
