"""PROXY protocol of a whole gateway in this process: whom it believes, what counts then, and what brokers are told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.proxy.bounds import Bounds
from pidgate.protocol import messages
from pidgate.protocol.proxy_header import LOCAL_HEADER, SIGNATURE, Origin, header_of
from tests.support import raw
from tests.support.loopback import HOST, Client, RunningGateway, ScriptedBroker, gateway_before, run, until
from tests.support.proxy_relay import ProxyRelay
from tests.support.tls_listener import client_tls
from tools.sandbox.certificates import Authority, Pair

METADATA = raw.request(messages.METADATA, 9, {"topics": []}, correlation_id=1)
LISTED = {"proxy_protocol_from": [f"{HOST}/32"]}
UNLISTED = {"proxy_protocol_from": ["10.9.9.9", "10.8.0.0/16"]}
HERE = (HOST, 9292)


def header_from(host: str, port: int = 4711) -> bytes:
    return header_of((host, port), HERE)


def addresses(gateway: RunningGateway) -> list[str]:
    """Those of the open connections."""
    return [channel.client.address for channel in gateway.gateway.traffic.shared.connections]


def counted(gateway: RunningGateway) -> dict[str, int]:
    return dict(gateway.gateway.traffic.shared.connection_quotas._addresses)


async def served(client: Client) -> None:
    await client.frame()


def closed_lines(logged: list[Any]) -> list[Any]:
    return [line for line in logged if line["event"] == "connection_closed" and line["log_level"] != "debug"]


@pytest.mark.parametrize("cut", [None, 1, 16, 17, 27])
def test_the_address_in_the_header_is_the_clients(cut: int | None) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, gateway_before(broker.address, listener=LISTED) as gateway:
            client = await gateway.connect()
            whole = header_from("10.0.0.7") + METADATA
            pieces = [whole] if cut is None else [whole[at : at + cut] for at in range(0, len(whole), cut)]
            for piece in pieces:
                client.send(piece)
                if cut is not None:
                    await asyncio.sleep(0.001)
            await served(client)
            assert addresses(gateway) == ["10.0.0.7"]
            client.send(METADATA)
            await served(client)
            own = await gateway.connect()
            own.send(LOCAL_HEADER + METADATA)
            await served(own)
            assert addresses(gateway) == ["10.0.0.7", HOST]
            other = await gateway.connect()
            other.send(header_from("2001:db8::7") + METADATA)
            await served(other)
            assert addresses(gateway)[-1] == "2001:db8::7"

    run(scenario())


async def address_is_bounded(gateway: RunningGateway) -> bool:
    """The rule: two connections of a client's address, whatever comes through the same proxy, and none twice."""
    first, second, third, other = [await gateway.connect() for _ in range(4)]
    silent = await gateway.connect()  # counts for nobody
    for client in (first, second):
        client.send(header_from("10.0.0.7") + METADATA)
        await served(client)
    third.send(header_from("10.0.0.7") + METADATA)
    is_closed = await ends_within(third)
    other.send(header_from("10.0.0.8") + METADATA)
    await served(other)
    first.writer.close()
    silent.writer.close()
    await until(lambda: len(addresses(gateway)) == (2 if is_closed else 3))
    fourth = await gateway.connect()
    fourth.send(header_from("10.0.0.7") + METADATA)
    has_room = not await ends_within(fourth, 0.2)
    return is_closed and has_room and counted(gateway) == {"10.0.0.7": 2, "10.0.0.8": 1}


async def ends_within(client: Client, within_s: float = 2.0) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await client.end()
            return True
    return False


@pytest.mark.parametrize("believed", [True, False])
def test_an_address_has_so_many_connections_through_all_proxies(believed: bool) -> None:
    """Not believed: the mutant, which counts everybody as the proxy."""

    async def scenario() -> None:
        with pytest.MonkeyPatch.context() as patch:
            if not believed:
                patch.setattr("pidgate.gateway.proxy.behind_proxies.origin", lambda _header: None)
            async with (
                ScriptedBroker() as broker,
                gateway_before(
                    broker.address, listener=LISTED, limits={"connections_per_address": 2}
                ) as gateway,
            ):
                if believed:
                    assert await address_is_bounded(gateway)
                else:
                    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                        await address_is_bounded(gateway)

    run(scenario())


@pytest.mark.parametrize("listener", [UNLISTED, {}], ids=["unlisted", "without"])
@pytest.mark.parametrize("header", [header_from("10.0.0.7"), b"PROXY TCP4 10.0.0.7 10.0.0.1 1 2\r\n"])
def test_from_an_unlisted_address_no_header_is_believed(listener: dict[str, Any], header: bytes) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, gateway_before(broker.address, listener=listener) as gateway:
            with capture_logs() as logged:
                client = await gateway.connect()
                client.send(header + METADATA)
                assert await client.end() == b""
            (line,) = closed_lines(logged)
            assert (line["cause"], line["address"]) == ("protocol", HOST)
            assert "it sends a PROXY header" in line["reason"]
            assert "listeners.proxy_protocol_from" in line["reason"]
            plain = await gateway.connect()
            plain.send(METADATA)
            await served(plain)
            assert addresses(gateway) == [HOST]

    run(scenario())


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (METADATA, "it begins otherwise instead of a PROXY header"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), "it begins with TLS"),
        (b"PROXY TCP4 10.0.0.7 10.0.0.1 1 2\r\n", "version 1, only version 2 is supported"),
        (SIGNATURE + b"\x21\x11\xff\xff" + bytes(200), "65535 bytes after its head"),
        (SIGNATURE + b"\x21\x11\x00\x10" + bytes(12) + b"\x04\x00\x09x", "longer than its PROXY header"),
        (SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12), "version 3"),
    ],
)
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_a_listed_address_without_a_header_is_closed_with_the_reason(
    pair: Pair, first: bytes, why: str, has_tls: bool
) -> None:
    async def scenario() -> None:
        tls = {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}
        listener = {**LISTED, **({"tls": tls} if has_tls else {})}
        async with ScriptedBroker() as broker, gateway_before(broker.address, listener=listener) as gateway:
            await until(lambda: gateway.gateway.is_ready())
            accepted = broker.accepted
            with capture_logs() as logged:
                client = await gateway.connect()
                client.send(first)
                assert await client.end() == b""
            (line,) = closed_lines(logged)
            assert line["cause"] == "proxy"
            assert why in line["reason"]
            assert f"listeners.proxy_protocol_from lists {HOST}" in line["reason"]
            assert gateway.metric("connections_closed_total", cause="proxy") == 1
            assert broker.accepted == accepted
            assert counted(gateway) == {}

    run(scenario())


@pytest.mark.parametrize("sent", [b"", SIGNATURE[:5], header_from("10.0.0.7")[:-1]])
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_a_header_that_does_not_come_is_not_waited_for(pair: Pair, sent: bytes, has_tls: bool) -> None:
    async def scenario() -> None:
        tls = {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}
        listener = {**LISTED, **({"tls": tls} if has_tls else {})}
        bounds = Bounds(login_time_ms=100, tls_handshake_ms=100)
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener=listener, bounds=bounds) as gateway,
        ):
            client = await gateway.connect()
            client.send(sent)
            assert await client.end() == b""
            cause = "tls" if has_tls else "login"
            assert gateway.metric("connections_closed_total", cause=cause) == 1
            # A proxy that only looks whether the port is open is no line in the log.
            with capture_logs() as logged:
                looks = await gateway.connect()
                looks.send(sent)
                looks.writer.write_eof()
                assert await looks.end() == b""
            assert closed_lines(logged) == []
            await until(lambda: addresses(gateway) == [])

    run(scenario())


async def with_header_before_tls(gateway: RunningGateway, context: ssl.SSLContext, header: bytes) -> Client:
    opened = socket.create_connection((HOST, gateway.port))
    opened.sendall(header)
    opened.setblocking(False)
    client = Client(*await asyncio.open_connection(sock=opened, ssl=context, server_hostname="localhost"))
    gateway.clients.append(client)
    return client


def test_with_tls_the_header_is_before_it(authority: Authority, pair: Pair) -> None:
    async def scenario() -> None:
        tls = {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={**LISTED, "tls": tls}) as gateway,
        ):
            client = await with_header_before_tls(gateway, client_tls(authority), header_from("10.0.0.7"))
            for _ in range(3):
                client.send(METADATA)
                await served(client)
            assert addresses(gateway) == ["10.0.0.7"]

    run(scenario())


def test_memory_that_runs_out_before_the_header_changes_nothing() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, gateway_before(broker.address, listener=LISTED) as gateway:
            assert await outlives_scarcity(gateway)

    run(scenario())


async def outlives_scarcity(gateway: RunningGateway) -> bool:
    """The rule: while the header comes, nothing turns the socket to reads of another kind."""
    client = await gateway.connect()
    header = header_from("10.0.0.7")
    client.send(header[:9])
    await until(lambda: addresses(gateway))
    gateway.gateway.traffic.shared._read_sparingly()
    client.send(header[9:] + METADATA)
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
        await served(client)
        return addresses(gateway) == ["10.0.0.7"]
    client.writer.close()
    with contextlib.suppress(OSError):
        await client.writer.wait_closed()
    return False


# ---- towards brokers


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def brokers_tls(
    request: pytest.FixtureRequest, authority: Authority, pair: Pair
) -> Iterator[tuple[ssl.SSLContext | None, dict[str, Any]]]:
    """Of the broker, and of the gateway's `cluster`."""
    if not request.param:
        yield None, {}
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    yield context, {"tls": {"ca_file": str(authority.ca_file)}}


def test_brokers_are_told_whose_connection_it_is(
    brokers_tls: tuple[ssl.SSLContext | None, dict[str, Any]],
) -> None:
    context, cluster = brokers_tls

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(ScriptedBroker(tls=context))
            relay = await stack.enter_async_context(ProxyRelay((HOST, broker.port)))
            broker.nodes = {1: (HOST, relay.port)}
            gateway = await stack.enter_async_context(
                gateway_before(relay.address, listener=LISTED, cluster={**cluster, "proxy_protocol": True})
            )
            await until(lambda: gateway.gateway.is_ready())
            assert relay.told, "the first contact has a header, too"
            assert relay.origins == []
            through = await gateway.connect(gateway.first_node_port + 1)
            through.send(header_from("10.0.0.7", 4711) + METADATA)
            await served(through)
            assert relay.origins[-1] == Origin(("10.0.0.7", 4711), HERE)
            own = await gateway.connect()
            own.send(LOCAL_HEADER + METADATA)
            await served(own)
            here = own.writer.get_extra_info("sockname")
            assert relay.origins[-1] == Origin(here, (HOST, gateway.port))
            assert relay.refused == []

    run(scenario())


def test_without_being_asked_nothing_is_sent() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            ProxyRelay((HOST, broker.port)) as relay,
            gateway_before(relay.address) as gateway,
        ):
            client = await gateway.connect()
            client.send(METADATA)
            assert await client.end() == b""
            assert relay.told == []
            assert relay.refused

    run(scenario())
