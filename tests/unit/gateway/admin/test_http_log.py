"""The log of the admin address's HTTP server: no text of a request in it, and no more lines than a limit allows."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import structlog

from pidgate.gateway import logs
from pidgate.gateway.admin import site
from pidgate.gateway.metrics.registry import MetricsRegistry
from pidgate.units import Address

TOKEN = "s3cr3t-admin-token"
HEAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode()
WITH_A_LINE_END = HEAD + b"\r\r\nConnection: close\r\n\r\n"
"""What curl sends with a token out of a file with Windows' line ends."""
BAD_BODY = (
    HEAD.replace(b"GET", b"POST") + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + TOKEN.encode() + b"\r\n"
)


class Broken:
    """A gateway whose metrics cannot be read."""

    def is_ready(self) -> bool:
        return True

    def not_ready_reason(self) -> str:
        return ""

    async def ask_fleet(self) -> dict[str, Any]:
        return {}

    @property
    def registry(self) -> MetricsRegistry:
        raise LookupError("a mistake of ours")

    overview_registry = registry


@pytest.fixture(autouse=True)
def _log_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logs, "_mistakes", logs.LogLimit())
    root = logging.getLogger()
    handlers, level, hook = list(root.handlers), root.level, sys.unraisablehook
    yield
    sys.unraisablehook = hook
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def answer_to(address: Address, request: bytes) -> bytes:
    with closing(socket.create_connection(address, timeout=5)) as connection:
        connection.sendall(request)
        connection.settimeout(5)
        return connection.recv(65_536)


def logged_of(*requests: bytes) -> list[dict[str, Any]]:
    """The lines that a site writes while it is asked so."""
    stream = io.StringIO()
    logs.configure("info", stream, "json")

    async def serve() -> None:
        running = await site.start(Address("127.0.0.1", 0), Broken())
        try:
            for request in requests:
                assert await asyncio.to_thread(answer_to, running.address, request)
        finally:
            await running.close()

    asyncio.run(serve())
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    "request_", [WITH_A_LINE_END, BAD_BODY, b"GET / HTTP/1.1\r\n" + TOKEN.encode() + b"\r\n\r\n"]
)
def test_a_request_that_cannot_be_read_is_one_line_without_its_text(request_: bytes) -> None:
    (line,) = logged_of(*[request_] * 20)
    assert (line["event"], line["level"], line["address"]) == (
        "admin_request_unreadable",
        "warning",
        "127.0.0.1",
    )
    assert TOKEN not in str(line)
    assert set(line) == {"timestamp", "level", "event", "address", "cause", "suppressed_count"}


def test_a_mistake_of_ours_has_its_traceback_once_a_second() -> None:
    (line,) = logged_of(*[HEAD + b"\r\n\r\n"] * 5)
    assert line["event"] == "unexpected_error"
    assert line["address"] == "127.0.0.1"
    assert "LookupError: a mistake of ours" in line["exception"]
    assert TOKEN not in str(line)
