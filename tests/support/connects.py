"""Clients that connect, ask one thing and go, over and over: how many are reset, refused or left without an answer."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

Outcome = Literal["answered", "reset", "closed", "refused", "timed out", "late"]
PROMPT_S: Final = 0.05
"""A client that was kept from asking for longer (it had no core) may find its connection closed by a drain."""
_API_VERSIONS: Final = bytes.fromhex("00000010 0012 0000 00000001 0006 7075 6c736572")


class Connects:
    """Connects of all threads so far, by outcome."""

    def __init__(self, port: int, patience_s: float) -> None:
        self._port = port
        self._patience_s = patience_s
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._outcomes: Counter[Outcome] = Counter()

    def outcomes(self) -> Counter[Outcome]:
        """Return them, and count anew."""
        with self._lock:
            found, self._outcomes = self._outcomes, Counter()
        return found

    def end(self) -> None:
        self._is_over.set()

    def run(self) -> None:
        while not self._is_over.is_set():
            outcome = self._one()
            with self._lock:
                self._outcomes[outcome] += 1
            time.sleep(0.005)

    def _one(self) -> Outcome:
        is_late = False
        try:
            with socket.create_connection(("127.0.0.1", self._port), self._patience_s) as client:
                connected_s = time.monotonic()
                client.sendall(_API_VERSIONS)
                is_late = time.monotonic() - connected_s > PROMPT_S
                if client.recv(4):
                    return "answered"
                return "late" if is_late else "closed"
        except TimeoutError:
            return "timed out"
        except ConnectionRefusedError:
            return "refused"
        except (ConnectionResetError, BrokenPipeError):
            return "late" if is_late else "reset"


@contextmanager
def connects(port: int, threads: int = 8, patience_s: float = 5.0) -> Iterator[Connects]:
    """Connect to the port from so many threads until the block ends."""
    made = Connects(port, patience_s)
    running = [threading.Thread(target=made.run) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield made
    finally:
        made.end()
        for thread in running:
            thread.join()
