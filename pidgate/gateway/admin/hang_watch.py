"""A thread beside the event loop: when the loop hangs, it answers at the admin address and logs where.

While the loop runs the thread only sends messages to systemd's watchdog. A hang is counted in wake-ups of the thread:
a process that was stopped as a whole, or got no core, does not count as hanging. A hang in C code that holds the
interpreter stops this thread, too. Nothing answers then, and no message is sent.
"""

from __future__ import annotations

import select
import socket
import ssl
import sys
import threading
import traceback
from contextlib import suppress
from typing import Final

from pidgate.gateway.admin import service_manager
from pidgate.gateway.clock import monotonic_s, next_tick
from pidgate.gateway.logs import Event, logger

CHECK_S: Final = 2.0
HANGS_AFTER: Final = 3
"""Wake-ups of the thread without a turn of the loop. Two seconds are a busy machine, six are not."""
CLIENT_S: Final = 0.3
"""Time for a client of the admin address to send its request: Kubernetes gives a probe 1 s."""
LARGEST_REQUEST_BYTES: Final = 16 * 1024
FRAMES_LOGGED: Final = 12
REMEDY: Final = (
    "report the stack; let a liveness probe of /livez, or systemd's WatchdogSec, restart the gateway"
)

log = logger()


class HangWatch:
    """Watch the running event loop: `beat` is a task of the loop, `start` and `stop` are called in it.

    `listening`: the admin address. The thread accepts there only while the loop hangs.
    """

    def __init__(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._listening = listening
        self._tls = tls
        self._turns = 0
        self._loop_thread = threading.get_ident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pidgate-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. It is not waited for."""
        self._ended.set()

    async def beat(self) -> None:
        """Show that the loop turns."""
        while True:
            self._turns += 1
            await next_tick()

    def _run(self) -> None:
        seen, missed = -1, 0
        while not self._ended.is_set():
            if missed < HANGS_AFTER:
                self._ended.wait(CHECK_S)
            else:
                self._answer_for(CHECK_S, f"the event loop hangs, for {missed * CHECK_S:.0f} s\n")
            if self._turns != seen:
                seen, missed = self._turns, 0
                service_manager.notify("WATCHDOG=1")
                continue
            missed += 1
            if missed == HANGS_AFTER:
                log.error(
                    Event.EVENT_LOOP_HANGS,
                    seconds=round(missed * CHECK_S),
                    stack=self._stack(),
                    remedy=REMEDY,
                )

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        found = traceback.extract_stack(frame)[-FRAMES_LOGGED:]
        # One text: the console's renderer takes a key of this name for one.
        return "\n".join(f"{one.filename}:{one.lineno} {one.name}" for one in found)

    def _answer_for(self, seconds: float, text: str) -> None:
        """Answer each connection that waits or comes in this time, whatever it asks for."""
        poll, until_s = select.poll(), monotonic_s() + seconds
        poll.register(self._listening, select.POLLIN)
        while (left_s := until_s - monotonic_s()) > 0 and not self._ended.is_set():
            if not poll.poll(left_s * 1000):
                return
            with suppress(OSError):  # the loop was faster, or the client is gone
                accepted, _ = self._listening.accept()
                with accepted:
                    accepted.settimeout(CLIENT_S)
                    _answer(accepted, self._tls, text.encode())


def _answer(accepted: socket.socket, tls: ssl.SSLContext | None, text: bytes) -> None:
    """Read a request and answer 503. Raises OSError."""
    opened = accepted if tls is None else tls.wrap_socket(accepted, server_side=True)
    request = b""
    while b"\r\n\r\n" not in request and len(request) < LARGEST_REQUEST_BYTES:
        received = opened.recv(LARGEST_REQUEST_BYTES)
        if not received:
            return
        request += received
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\n"
    opened.sendall(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    if isinstance(opened, ssl.SSLSocket):
        opened.unwrap()
