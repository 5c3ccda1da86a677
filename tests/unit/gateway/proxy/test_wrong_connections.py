"""Connections that fail: each row of the table in docs/how-to/connections.md is caused, and compared with the log.

The table's second column is a part of the line. The line also has an address, or the key of the file that is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.config.loading import ConfigError, parse
from pidgate.gateway.state import manager
from pidgate.protocol import messages
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.proxy_header import SIGNATURE
from tests.support import raw
from tests.support.loopback import (
    HOST,
    Client,
    Peer,
    RunningGateway,
    ScriptedBroker,
    answer_to,
    gateway_before,
    offers_plain,
    run,
    until,
)
from tests.support.tls_listener import client_tls
from tools.sandbox.certificates import Authority, Pair

PAGE: Final = Path(__file__).parents[4] / "docs" / "how-to" / "connections.md"
NOT_AUTHORIZED: Final = 29
CREATE_TOPICS: Final = 19
EVENTS: Final = "__pidgate_events"
WAITED_S: Final = 10


def table() -> dict[str, str]:
    """Return the rows of the table: what connects wrongly, and what the log says."""
    _, _, after = PAGE.read_text().partition("| what connects wrongly | the log says |\n| --- | --- |\n")
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", after.partition("\n\n")[0], re.MULTILINE)
    return {what.replace("`", ""): said.partition(" (`")[0] for what, said in rows}


def texts(value: object) -> Iterator[str]:
    for one in value if isinstance(value, (list, tuple)) else (value,):
        yield str(one)


@dataclass
class Lines:
    """What was logged above debug, a text for each line."""

    logged: list[Any]

    def find(self, said: str) -> str | None:
        parts = [part.strip() for part in said.split("...")]
        for line in self.logged:
            text = ": ".join(text for value in line.values() for text in texts(value))
            if line["log_level"] != "debug" and all(part in text for part in parts):
                return text
        return None


@dataclass
class Site:
    """Certificates. `said`: what is waited for."""

    authority: Authority
    other: Authority
    pair: Pair
    said: str
    lines: Lines

    def files(self, pair: Pair | None = None) -> dict[str, str]:
        pair = pair or self.pair
        return {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}

    def mutual(self) -> dict[str, str]:
        ca_file = str(self.authority.ca_file)
        return {**self.files(), "client_auth": "required", "client_ca_file": ca_file}

    async def logged(self) -> None:
        async with asyncio.timeout(WAITED_S):
            await until(lambda: self.lines.find(self.said))


Cause = Callable[[Site], Awaitable[None]]
CAUSES: dict[str, Cause] = {}


def cause(*rows: str) -> Callable[[Cause], Cause]:
    """Register what causes these rows."""

    def registered(scenario: Cause) -> Cause:
        CAUSES.update(dict.fromkeys(rows, scenario))
        return scenario

    return registered


async def client_of(
    site: Site,
    act: Callable[[RunningGateway], Awaitable[Client | None]],
    listener: dict[str, Any] | None = None,
    answers: dict[int, Any] | None = None,
) -> None:
    """Let a client do this at a gateway, and wait for the line."""
    async with (
        ScriptedBroker(answers) as broker,
        gateway_before(broker.address, listener=listener) as gateway,
    ):
        await until(gateway.gateway.is_ready)
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            client = await act(gateway)
            if client is not None:
                await client.reader.read()
        await site.logged()


async def sends(gateway: RunningGateway, data: bytes) -> Client:
    client = await gateway.connect()
    client.send(data)
    return client


async def distrusts(gateway: RunningGateway, ca: Authority) -> None:
    """Refuse the gateway's certificate as a client with this CA. asyncio would drop the alert."""

    def shake_hands() -> None:
        with socket.create_connection((HOST, gateway.port)) as plain, pytest.raises(ssl.SSLError):
            client_tls(ca).wrap_socket(plain, server_hostname=HOST)

    await asyncio.to_thread(shake_hands)


def a_server(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    return context


async def before_broker(site: Site, broker: str, **cluster: Any) -> None:
    """Start a gateway before this broker, and wait for the line."""
    async with gateway_before(broker, cluster=cluster):
        await site.logged()


# ---- clients -------------------------------------------------------------------------------------------


@cause("a TLS client, a listener without TLS")
async def _(site: Site) -> None:
    await client_of(site, lambda gateway: gateway.connect(tls=client_tls(site.authority)))


@cause("a client without TLS, a TLS listener")
async def _(site: Site) -> None:
    request = raw.request(messages.METADATA, 9, {"topics": []})
    await client_of(site, lambda gateway: sends(gateway, request), {"tls": site.files()})


@cause("a browser or a health check")
async def _(site: Site) -> None:
    await client_of(site, lambda gateway: sends(gateway, b"GET /metrics HTTP/1.1\r\nHost: gw\r\n\r\n"))


@cause("a proxy that is not named")
async def _(site: Site) -> None:
    await client_of(site, lambda gateway: sends(gateway, SIGNATURE + b"\x20\x00\x00\x00"))


@cause("a client without a certificate")
async def _(site: Site) -> None:
    context = client_tls(site.authority)
    await client_of(site, lambda gateway: gateway.connect(tls=context), {"tls": site.mutual()})


@cause(
    "a client with another CA",
    "a client whose certificate has expired",
    "a client whose certificate is not valid yet",
)
async def _(site: Site) -> None:
    pair = site.other.issue("eve")
    if "expired" in site.said:
        pair = site.authority.issue("late", expired=True)
    if "not yet valid" in site.said:
        pair = site.authority.issue("early", not_yet=True)
    context = client_tls(site.authority, pair)
    await client_of(site, lambda gateway: gateway.connect(tls=context), {"tls": site.mutual()})


@cause("a client that does not trust the gateway")
async def _(site: Site) -> None:
    await client_of(site, lambda gateway: distrusts(gateway, site.other), {"tls": site.files()})


@cause("a client, when tls.cert_file has expired")
async def _(site: Site) -> None:
    pair = site.authority.issue("past", expired=True)
    await client_of(site, lambda gateway: distrusts(gateway, site.authority), {"tls": site.files(pair)})


@cause("a client with a mechanism that the brokers do not offer")
async def _(site: Site) -> None:
    request = raw.request(messages.SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"})
    answers = {messages.SASL_HANDSHAKE: offers_plain}
    await client_of(
        site, lambda gateway: sends(gateway, request), {"authentication": "required"}, answers=answers
    )


@cause("a client that does not log in")
async def _(site: Site) -> None:
    request = raw.request(messages.METADATA, 9, {"topics": []})
    answers = {messages.SASL_HANDSHAKE: offers_plain}
    await client_of(
        site, lambda gateway: sends(gateway, request), {"authentication": "required"}, answers=answers
    )


# ---- brokers -------------------------------------------------------------------------------------------


@cause(
    "a broker with another CA",
    "a broker whose certificate has expired",
    "a broker whose certificate is not valid yet",
    "a broker with another name in its certificate",
)
async def _(site: Site) -> None:
    ca, named = site.authority, ["DNS:kafka.example"]
    pairs: dict[str, Callable[[], Pair]] = {
        "a broker with another CA": lambda: site.other.issue("broker"),
        "a broker whose certificate has expired": lambda: ca.issue("past", expired=True),
        "a broker whose certificate is not valid yet": lambda: ca.issue("early", not_yet=True),
        "a broker with another name in its certificate": lambda: ca.issue("named", names=named),
    }
    for what, pair in pairs.items():
        if table()[what] == site.said:
            site.lines.logged.clear()
            async with ScriptedBroker(tls=a_server(pair())) as broker:
                await before_broker(site, broker.address, tls={"ca_file": str(site.authority.ca_file)})


@cause("a broker port that speaks TLS, no cluster.tls")
async def _(site: Site) -> None:
    async with ScriptedBroker(tls=a_server(site.pair)) as broker:
        await before_broker(site, broker.address)


@cause("a broker port without TLS, cluster.tls")
async def _(site: Site) -> None:
    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Close, as a broker does that reads a frame size of 369 MB."""
        await reader.read(4)
        writer.close()

    async with await asyncio.start_server(closes, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        await before_broker(site, f"{HOST}:{port}", tls={"ca_file": str(site.authority.ca_file)})


@cause("a port where nothing listens")
async def _(site: Site) -> None:
    await before_broker(site, f"{HOST}:1")


@cause("a wrong name")
async def _(site: Site) -> None:
    await before_broker(site, "nowhere.invalid:9092")


@cause("a broker that node_ids does not list")
async def _(site: Site) -> None:
    async with ScriptedBroker() as broker:
        broker.nodes = {1: (HOST, broker.port), 7: (HOST, broker.port)}
        ports = {"first": 0, "node_ids": [1]}
        async with gateway_before(broker.address) as free:
            ports["first"] = free.first_node_port
        async with gateway_before(broker.address, listener={"node_ports": ports}):
            await site.logged()


# ---- the file, and rights ------------------------------------------------------------------------------


@cause("a principal without rights on the gateway's topics")
async def _(site: Site) -> None:
    async def denied(head: RequestHead, _peer: Peer) -> bytes:
        topic = {"error_code": NOT_AUTHORIZED, "name": EVENTS, "partitions": []}
        nodes = [{"node_id": 1, "host": HOST, "port": broker.port}]
        return answer_to(head, {"brokers": nodes, "topics": [topic], "controller_id": 1})

    async def refused(head: RequestHead, _peer: Peer) -> bytes:
        return answer_to(head, {"topics": [{"error_code": NOT_AUTHORIZED, "name": EVENTS}]})

    answers = {messages.METADATA: denied, CREATE_TOPICS: refused}
    async with (
        ScriptedBroker(answers) as broker,
        gateway_before(broker.address, events={"enabled": True, "topic": EVENTS}),
    ):
        await site.logged()


@cause("brokers that want a login, no own_client")
async def _(site: Site) -> None:
    async def offers_scram(head: RequestHead, _peer: Peer) -> bytes:
        return answer_to(head, {"mechanisms": ["SCRAM-SHA-512"]})

    async with (
        ScriptedBroker({messages.SASL_HANDSHAKE: offers_scram}) as broker,
        gateway_before(broker.address, listener={"authentication": None}, events={"enabled": True}),
    ):
        await site.logged()


@cause("the gateway pointed at itself")
async def _(site: Site) -> None:
    address = f"{HOST}:19092"
    with pytest.raises(ConfigError) as refused:
        parse(f"cluster: {{bootstrap_servers: ['{address}']}}\nlisteners: [{{bind: '{address}'}}]\n")
    site.lines.logged.append({"log_level": "error", "text": str(refused.value)})


FILE_ONLY: Final = (
    "a principal without rights on the gateway's topics",
    "brokers that want a login, no own_client",
)
"""Rows whose line names a key or a topic, because no single address is wrong."""


def test_the_table_and_what_is_caused_here_are_the_same() -> None:
    assert sorted(table()) == sorted(CAUSES)


@pytest.fixture(autouse=True)
def _stops_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have gateways stop without the time that their last events may take."""
    monkeypatch.setattr(manager, "LAST_EVENTS_S", 0.1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "somebody else")


@pytest.mark.parametrize("what", table())
def test_the_line_names_the_cause_the_address_and_what_to_set(
    what: str, authority: Authority, other: Authority, pair: Pair
) -> None:
    said = table()[what]
    with capture_logs() as logged:
        site = Site(authority, other, pair, said, Lines(logged))
        run(CAUSES[what](site))
    line = site.lines.find(said)
    assert line is not None
    named = (EVENTS, "own_client") if what in FILE_ONLY else (HOST, "nowhere.invalid:9092")
    assert any(one in line for one in named), line


def test_with_sni_a_client_that_names_no_broker_is_served_as_at_a_bootstrap_port(
    authority: Authority,
) -> None:
    pair = authority.issue("wild", names=["DNS:*.kafka.example", "IP:127.0.0.1"])
    tls = {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}

    async def scenario() -> None:
        sni = "broker-{node_id}.kafka.example"
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": tls, "sni": sni}) as gateway,
        ):
            await until(gateway.gateway.is_ready)
            for name in (None, HOST, "elsewhere.kafka.example", "broker-9.kafka.example"):
                context = client_tls(authority)
                context.check_hostname = False
                client = await gateway.connect(tls=context, name=name)
                answer = await client.ask(messages.METADATA, 9, {"topics": []})
                assert [one["host"] for one in answer["brokers"]] == ["broker-1.kafka.example"], name

    with capture_logs() as logged:
        run(scenario())
    assert not [line for line in logged if line["event"] == "connection_closed" and "tls" in str(line)]
