"""The admin site over real HTTP."""

import asyncio
import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from pidgate.gateway.admin import site
from pidgate.gateway.admin.access import OwnNames
from pidgate.gateway.config.listening import CannotListen
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.metrics.registry import GatewayCollector, MetricsRegistry
from pidgate.units import Address
from tests.support.rules import rule


class View:
    """A gateway as the site sees it."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.reason = "127.0.0.1:9092: connection refused"
        self.registry = self.overview_registry = MetricsRegistry(
            GatewayCollector(self.counters, lambda: (), self.is_ready, "1.2.3")
        )

    def is_ready(self) -> bool:
        return self.reason == ""

    def not_ready_reason(self) -> str:
        return self.reason

    async def ask_fleet(self) -> dict[str, Any]:
        return {}


def get(url: str) -> tuple[int, str, str]:
    """Status, content type and text."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def asked(view: View, ask: Callable[[str], object]) -> None:
    """Serve `view` and call `ask(base url)` from another thread."""

    async def serve() -> None:
        running = await site.start(Address("127.0.0.1", 0), view)
        try:
            await asyncio.to_thread(ask, f"http://{running.address}")
        finally:
            await running.close()

    asyncio.run(serve())


def test_alive_and_ready_are_two_things() -> None:
    view = View()

    def ask(base: str) -> None:
        assert get(f"{base}/livez")[::2] == (200, "alive\n")
        assert get(f"{base}/readyz")[::2] == (503, "not ready: 127.0.0.1:9092: connection refused\n")
        view.reason = ""
        assert get(f"{base}/readyz")[::2] == (200, "ready\n")

    asked(view, ask)


def test_the_head_of_a_page_is_answered() -> None:
    def ask(base: str) -> None:
        for path in ("/metrics", "/livez"):
            with closing(http.client.HTTPConnection(base.removeprefix("http://"), timeout=5)) as connection:
                connection.request("HEAD", path)
                answer = connection.getresponse()
                assert (answer.status, answer.read()) == (200, b"")

    asked(View(), ask)


def shown_to(host: str, path: str) -> int:
    """The status of a request for `path` that calls the gateway so."""
    statuses = list[int]()

    def ask(base: str) -> None:
        connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=5)
        with closing(connection):
            connection.request("GET", path, headers={"Host": host})
            statuses.append(connection.getresponse().status)

    view = View()
    view.reason = ""
    asked(view, ask)
    return statuses[0]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:9290", "localhost", "LOCALHOST:80", "[::1]:9290", "[::1]", "10.0.0.7", socket.gethostname()],
)
def test_an_address_and_an_own_name_are_answered(host: str) -> None:
    assert shown_to(host, "/metrics") == 200


@rule("The admin address answers to its own names only, and sets quotas with a token only.", "connections")
@pytest.mark.parametrize(
    "host", ["evil.example:9290", "evil.example", "", "127.0.0.1.evil.example", "localhost.evil"]
)
@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/", "/livez"])
def test_a_name_of_another_site_is_not(host: str, path: str) -> None:
    assert shown_to(host, path) == (200 if path == "/livez" else 403)


def test_names_that_are_configured_are_own_ones() -> None:
    names = OwnNames("0.0.0.0", ["gw.example"])
    assert names.includes_host("gw.example:9290")
    assert names.includes_host("GW.example.")
    assert not names.includes_host("other.example")


def test_metrics_are_prometheus_text_and_taken_at_each_scrape() -> None:
    view = View()

    def ask(base: str) -> None:
        status, kind, text = get(f"{base}/metrics")
        assert status == 200
        assert kind.startswith("text/plain; version=")
        assert "pidgate_connections_total 0.0" in text
        view.counters.connections_total = 3
        assert "pidgate_connections_total 3.0" in get(f"{base}/metrics")[2]

    asked(view, ask)


def test_a_port_in_use_is_explained() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = taken.getsockname()
        with pytest.raises(
            CannotListen, match="the port is in use; stop the process listening there"
        ) as caught:
            asyncio.run(site.start(Address(*address), View()))
    assert caught.value.what == "admin.bind"
