"""The relay before a broker: what it notes, and that it changes nothing; with a real process and real sockets."""

import json
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pidgate.load.blocking import BlockingConnection
from pidgate.load.plan import Address
from tests.support.serving import serving
from tools.bench.loads.client import CLIENT_ID
from tools.bench.targets import Proxy, sockets_listening
from tools.sandbox.ports import free_port

PRODUCE, METADATA = 0, 3
PRODUCE_TAKES_S = 0.2


def request(api_key: int, correlation_id: int, client_id: str, padding: int = 100) -> bytes:
    name = client_id.encode()
    body = struct.pack(">hhih", api_key, 9, correlation_id, len(name)) + name + bytes(padding)
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def broker() -> Iterator[Address]:
    """Answers with the request itself, a Produce after a while."""

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as frames, suppress(OSError):
            while size := frames.read(4):
                frame = frames.read(struct.unpack(">i", size)[0])
                if struct.unpack_from(">h", frame)[0] == PRODUCE:
                    time.sleep(PRODUCE_TAKES_S)
                connection.sendall(size + frame)

    with serving(serve) as address:
        yield address


def test_it_notes_how_long_the_broker_takes_for_produce_of_the_loads(broker: Address, tmp_path: Path) -> None:
    port, notes = free_port(), tmp_path / "notes.json"
    command = [
        sys.executable,
        "-m",
        "tools.bench.relay",
        f"127.0.0.1:{port}",
        f"{broker[0]}:{broker[1]}",
        str(notes),
    ]
    sent = [
        request(METADATA, 1, CLIENT_ID),
        request(PRODUCE, 2, CLIENT_ID, padding=300_000),
        request(PRODUCE, 3, "somebody-else"),
        request(PRODUCE, 4, CLIENT_ID),
    ]
    with Proxy(command, tmp_path / "log") as relay:
        while not sockets_listening(port):
            assert relay.is_alive, relay.log_tail()
            time.sleep(0.05)
        before_ns = time.monotonic_ns()
        with BlockingConnection(("127.0.0.1", port)) as connection:
            assert [struct.pack(">i", len(one) - 4) + connection.ask(one) for one in sent] == sent
        after_ns = time.monotonic_ns()
        relay.signal(signal.SIGTERM)
        assert relay.wait(30) == 0, relay.log_tail()
    answered = json.loads(notes.read_text())
    assert len(answered) == 2
    for at_ns, took_ns in answered:
        assert before_ns < at_ns < after_ns
        assert PRODUCE_TAKES_S <= took_ns / 1e9 < (after_ns - before_ns) / 1e9
