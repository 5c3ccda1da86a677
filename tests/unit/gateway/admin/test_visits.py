"""Connections of the admin address: silent ones, ones that read nothing, and many at once."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp import web
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from pidgate.gateway.admin import site, visits
from pidgate.gateway.config.tls_settings import ServerTlsSettings
from pidgate.gateway.metrics.families import gauge
from pidgate.gateway.metrics.registry import MetricsRegistry
from pidgate.gateway.tls.live import LiveContext
from pidgate.units import Address
from tools.sandbox.certificates import Authority

PAGE_BYTES = 8 * 2**20


class Large(Collector):
    """A page of 8 MiB; counts how often it was collected."""

    def __init__(self) -> None:
        self.collected = 0

    def collect(self) -> list[Metric]:
        self.collected += 1
        return [gauge("large", "x" * PAGE_BYTES, self.collected)]


class Fixed(Collector):
    """One family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> list[Metric]:
        return [self._family]


class View:
    """A gateway with a large page."""

    def __init__(self) -> None:
        self.page = Large()
        self.registry = self.overview_registry = MetricsRegistry(self.page)
        self.page.collected = 0

    def is_ready(self) -> bool:
        return True

    def not_ready_reason(self) -> str:
        return ""

    async def ask_fleet(self) -> dict[str, Any]:
        return {}


class Flood:
    """A path that sends events without a pause, and says what ended it."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[type[BaseException]] = asyncio.get_running_loop().create_future()

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/flood", self.flood)

    async def flood(self, request: web.Request) -> web.StreamResponse:
        stream = visits.Stream(request)
        await stream.begin()
        try:
            while True:
                await stream.send(bytes(2**20))
        except (ConnectionError, TimeoutError) as error:
            self.ended.set_result(type(error))
            raise


def test_a_client_that_reads_no_events_loses_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "SLOW_AFTER_S", 0.3)
    monkeypatch.setattr(visits, "LIFE_S", 0.1)

    async def serve() -> None:
        flood = Flood()
        running = await site.start(Address("127.0.0.1", 0), View(), page=flood)
        try:
            async with asyncio.timeout(15):
                reader, writer = await asyncio.open_connection(*running.address, limit=2**10)
                writer.write(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert await flood.ended is TimeoutError
                assert b"data: " in await reader.read(2**10), "it began, and went on after LIFE_S"
                writer.transport.abort()
        finally:
            await running.close()

    uvloop.run(serve())


def served(attack: Callable[[Address, View], Awaitable[None]], tls: LiveContext | None = None) -> None:
    """Serve on the event loop that the gateway runs on."""

    async def serve() -> None:
        view = View()
        running = await site.start(Address("127.0.0.1", 0), view, tls=tls)
        try:
            async with asyncio.timeout(15):
                await attack(running.address, view)
        finally:
            await running.close()

    uvloop.run(serve())


async def ask(address: Address, path: str, tls: ssl.SSLContext | None = None, source: str = "") -> bytes:
    """Return the whole answer, up to the end of the connection."""
    local = (source, 0) if source else None
    reader, writer = await asyncio.open_connection(*address, ssl=tls, local_addr=local)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    try:
        return await reader.read()
    finally:
        writer.close()


def connect(address: Address, source: str = "127.0.0.2", sent: bytes = b"") -> socket.socket:
    """Connect from another address of this machine, and read nothing."""
    opened = socket.create_connection(address, source_address=(source, 0))
    opened.sendall(sent)
    opened.setblocking(False)
    return opened


def is_open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_scrapers_that_never_read_hold_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "MOST_BYTES", 32 * 2**20)

    async def attack(address: Address, view: View) -> None:
        assert (await ask(address, "/metrics")).endswith(b"large 1.0\n")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        silent = []
        for _ in range(150):
            silent.append(connect(address, sent=SCRAPE))
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.3)
        assert len(await ask(address, "/metrics")) > PAGE_BYTES  # the control: others are still answered
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert 2 <= view.page.collected < 50
        assert sum(map(is_open, silent)) > 0  # the attack arrived
        assert grown * 1024 < 100 * 2**20  # it would be 1,200
        for one in silent:
            one.close()

    served(attack)


def test_scrapers_of_one_moment_share_a_page_of_values_that_are_read_from_then_on() -> None:
    async def attack(address: Address, view: View) -> None:
        pages = await asyncio.gather(*(ask(address, "/metrics") for _ in range(8)))
        assert [len(page) > PAGE_BYTES for page in pages] == [True] * 8
        assert view.page.collected <= 3
        assert (await ask(address, "/metrics")).endswith(f"large {view.page.collected}.0\n".encode())

    served(attack)


def test_a_page_is_what_the_library_makes_of_it() -> None:
    """It is formatted in pieces, so that no step takes long."""
    many = gauge("many", "Of\nmany.", {f"user-{number}": number for number in range(1_001)}, "user")

    async def scrape(address: Address, view: View) -> None:
        view.registry.unregister(view.page)
        for family in (many, gauge("none", "Nobody.", {}, "user"), gauge("one", "One.", 1)):
            view.registry.register(Fixed(family))
        answer = await ask(address, "/metrics")
        assert answer.endswith(b"\r\n\r\n" + generate_latest(view.registry))

    served(scrape)


@pytest.mark.parametrize("with_tls", [False, True])
def test_silent_connections_keep_no_health_check_out(
    with_tls: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A connection counts before its TLS handshake too."""
    monkeypatch.setattr(visits, "MOST_BYTES", 10 * visits.CONNECTION_BYTES)
    server, client = pair_of(tmp_path) if with_tls else (None, None)

    async def attack(address: Address, _view: View) -> None:
        silent = [connect(address) for _ in range(100)]
        while sum(map(is_open, silent)) > 10:  # noqa: ASYNC110 - the kernel accepts them in its own time
            await asyncio.sleep(0.01)
        for _ in range(3):
            assert (await ask(address, "/livez", client)).endswith(b"alive\n")
        assert is_open(silent[-1])  # the attack was there all the time
        for one in silent:
            one.close()

    served(attack, server)


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nHost:", SCRAPE], ids=["none", "half", "no read"]
)
@pytest.mark.parametrize("with_tls", [False, True])
def test_a_connection_ends_in_time(
    with_tls: bool, sent: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(visits, "LIFE_S", 0.4)
    server, client = pair_of(tmp_path) if with_tls else (None, None)

    def read_late(address: Address) -> int:
        """Return the bytes that came, once the connection has ended."""
        plain = socket.create_connection(address, timeout=3)
        with plain if client is None or not sent else client.wrap_socket(plain) as connection:
            connection.sendall(sent)
            time.sleep(0.8)
            read = 0
            with suppress(ConnectionError, ssl.SSLError):
                while data := connection.recv(65_536):
                    read += len(data)
            return read

    async def attack(address: Address, _view: View) -> None:
        assert await asyncio.to_thread(read_late, address) < PAGE_BYTES
        assert (await ask(address, "/livez", client)).endswith(b"alive\n")

    served(attack, server)


def pair_of(folder: Path) -> tuple[LiveContext, ssl.SSLContext]:
    authority = Authority(folder)
    pair = authority.issue("localhost")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(authority.ca_file)
    client.check_hostname = False
    settings = ServerTlsSettings(cert_file=str(pair.cert_file), key_file=str(pair.key_file))
    return LiveContext.of_server(settings, ("admin", "tls")), client
