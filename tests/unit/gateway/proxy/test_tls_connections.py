"""TLS of a whole gateway in this process: who is let in, who is told why not, and that no limit is left out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.proxy.bounds import Bounds
from pidgate.gateway.tls import live
from pidgate.protocol import messages
from tests.support import raw
from tests.support.loopback import HOST, Client, RunningGateway, ScriptedBroker, gateway_before, run, until
from tests.support.tls_listener import client_tls
from tools.sandbox.certificates import Authority, Pair

VERSION = 9
METADATA = raw.request(messages.METADATA, VERSION, {"topics": []}, correlation_id=1)


def files(pair: Pair) -> dict[str, str]:
    return {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}


def broker_of(pair: Pair, client_ca: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    if client_ca is not None:
        context.load_verify_locations(client_ca.ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def nodes_by(client: Client) -> list[int]:
    answer = await client.ask(messages.METADATA, VERSION, {"topics": []})
    return [broker["node_id"] for broker in answer["brokers"]]


async def ends(client: Client) -> bool:
    """The connection is closed; with an alert, that is an error here."""
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        return await client.reader.read() == b""
    return True


def lines(logged: list[Any], event: str) -> list[dict[str, Any]]:
    return [line for line in logged if line["event"] == event and line["log_level"] != "debug"]


@pytest.mark.parametrize(("clients", "brokers"), [(True, True), (True, False), (False, True)])
def test_each_side_by_itself(authority: Authority, pair: Pair, clients: bool, brokers: bool) -> None:
    async def scenario() -> None:
        cluster = {"tls": {"ca_file": str(authority.ca_file), **files(pair)}} if brokers else {}
        listener = {"tls": files(pair)} if clients else {}
        tls = broker_of(pair, authority) if brokers else None
        async with (
            ScriptedBroker(tls=tls) as broker,
            gateway_before(broker.address, cluster=cluster, listener=listener) as gateway,
        ):
            context = client_tls(authority) if clients else None
            client = await gateway.connect(tls=context)
            assert await nodes_by(client) == [1]
            await until(lambda: gateway.gateway.is_ready())
            at_node = await gateway.connect(gateway.first_node_port + 1, tls=context)
            assert await nodes_by(at_node) == [1]

    run(scenario())


def test_who_has_to_show_a_certificate_and_shows_none_is_closed_with_the_reason(
    authority: Authority, pair: Pair
) -> None:
    async def scenario() -> None:
        tls = {**files(pair), "client_auth": "required", "client_ca_file": str(authority.ca_file)}
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": tls}) as gateway,
        ):
            with capture_logs() as logged:
                nobody = await gateway.connect(tls=client_tls(authority))
                assert await ends(nobody)
            (line,) = lines(logged, "connection_closed")
            assert line["cause"] == "tls"
            assert line["reason"].endswith("it sent no certificate, and tls.client_auth is required")
            assert line["address"] == HOST
            joe = await gateway.connect(tls=client_tls(authority, authority.issue("joe")))
            assert await nodes_by(joe) == [1]
            assert gateway.metric("connections_closed_total", cause="tls") == 1
            assert broker.peers[0].requests[0].api_key == messages.METADATA
            assert len(broker.peers) == 1, "brokers are not dialled for who is not let in"

    run(scenario())


def test_a_client_without_tls_and_one_with_it_at_the_wrong_port_are_told_apart(
    authority: Authority, pair: Pair
) -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": files(pair)}) as with_tls,
            gateway_before(broker.address) as without,
        ):
            with capture_logs() as logged:
                plain = await with_tls.connect()
                plain.send(b"\0\0\0\x20\0\x12\0\x03\0\0\0\1\0\1x" + bytes(20))
                await plain.end()
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await without.connect(tls=client_tls(authority))
            first, second = lines(logged, "connection_closed")
            assert "it did not speak TLS" in first["reason"]
            assert "it speaks TLS, and this listener has none" in second["reason"]

    run(scenario())


def test_who_only_looks_whether_the_port_is_open_is_not_logged(pair: Pair) -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": files(pair)}) as gateway,
        ):
            with capture_logs() as logged:
                await gateway.connect()
                gateway.clients[-1].writer.close()
                await until(lambda: gateway.metric("connections_closed_total", cause="client") == 1)
            assert lines(logged, "connection_closed") == []

    run(scenario())


@pytest.mark.parametrize("fault", ["expired", "another name", "another CA"])
def test_a_broker_that_cannot_be_trusted_gets_nothing_and_the_log_names_the_remedy(
    authority: Authority, fault: str, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "somebody else")
    certificates = {
        "expired": lambda: authority.issue("expired", expired=True),
        "another name": lambda: authority.issue("named", names=["DNS:kafka.example"]),
        "another CA": lambda: other.issue("broker"),
    }
    remedies = {
        "expired": "certificate has expired; renew it on the broker",
        "another name": "its subjectAltName must contain 127.0.0.1",
        "another CA": "set cluster.tls.ca_file to its CA",
    }
    tls = broker_of(certificates[fault]())

    async def scenario() -> None:
        cluster = {"tls": {"ca_file": str(authority.ca_file)}}
        async with ScriptedBroker(tls=tls) as broker:
            with capture_logs() as logged:
                async with gateway_before(broker.address, cluster=cluster) as gateway:
                    client = await gateway.connect()
                    client.send(METADATA)
                    assert await client.end() == b""
                    failures = gateway.metric("upstream_failures_total", cause="tls")
            reasons = [line["reason"] for line in lines(logged, "upstream_failed")]
            reasons += [line["reason"] for line in lines(logged, "connection_closed")]
            reasons += [line["cause"] for line in lines(logged, "cluster_not_reached")]
            assert any(remedies[fault] in reason for reason in reasons), reasons
            assert failures == 1
            assert broker.peers == []

    run(scenario())


def test_silent_handshakes_are_bounded_and_others_are_served(authority: Authority, pair: Pair) -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(
                broker.address, listener={"tls": files(pair)}, bounds=Bounds(tls_handshakes=20)
            ) as gateway,
        ):
            flood = [socket.create_connection((HOST, gateway.port)) for _ in range(100)]
            try:
                most = 0
                asking = asyncio.ensure_future(_asked(gateway, client_tls(authority)))
                while not asking.done():
                    quotas = gateway.gateway.traffic.shared.connection_quotas
                    most = max(most, len(quotas._shaking))
                    await asyncio.sleep(0.01)
                assert await asking == [1]
                # uvloop accepts what waits already before it notices that the port has paused.
                assert most <= 110
                assert gateway.metric("connections_limited_total", limit="handshake") >= 20
            finally:
                for one in flood:
                    one.close()

    run(scenario())


async def _asked(gateway: RunningGateway, context: ssl.SSLContext) -> list[int]:
    return await nodes_by(await gateway.connect(tls=context))


def test_a_handshake_has_its_time(pair: Pair) -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(
                broker.address, listener={"tls": files(pair)}, bounds=Bounds(tls_handshake_ms=200)
            ) as gateway,
        ):
            with capture_logs() as logged:
                silent = await gateway.connect()
                assert await silent.end() == b""
            (line,) = lines(logged, "connection_closed")
            assert line["reason"] == "TLS was not set up in time"

    run(scenario())


def test_a_drain_waits_for_no_idle_client(authority: Authority, pair: Pair) -> None:
    """Neither for one that has asked, and reads nothing any more, nor for one in its handshake."""

    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": files(pair)}) as gateway,
        ):
            idle = await gateway.connect(tls=client_tls(authority))
            assert await nodes_by(idle) == [1]
            idle.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await gateway.connect()
            began_s = time.monotonic()
            await gateway.gateway.drain()
            assert time.monotonic() - began_s < 2

    run(scenario())


def test_a_rotated_certificate_is_shown_to_those_who_come_and_nobody_is_dropped(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_EVERY_S", 0.02)
    pair = authority.issue("rotated")

    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": files(pair)}) as gateway,
        ):
            old = await gateway.connect(tls=client_tls(authority))
            first = shown(old)
            assert await nodes_by(old) == [1]
            authority.issue("rotated")
            new = old
            while shown(new) == first:
                new = await gateway.connect(tls=client_tls(authority))
            assert await nodes_by(new) == [1]
            assert await nodes_by(old) == [1]

    run(scenario())


def shown(client: Client) -> bytes:
    found: ssl.SSLObject = client.writer.get_extra_info("ssl_object")
    certificate = found.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def test_a_client_that_sends_its_request_with_the_end_of_its_handshake_is_answered(
    authority: Authority, pair: Pair
) -> None:
    """What comes in one read with it belongs to the reader already."""

    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": files(pair)}) as gateway,
        ):
            reader, writer = await asyncio.open_connection(HOST, gateway.port)
            up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = client_tls(authority).wrap_bio(down, up, server_hostname=HOST)
            with pytest.raises(ssl.SSLWantReadError):
                tls.do_handshake()
            writer.write(up.read())
            while True:
                down.write(await reader.read(65_536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                    break
            tls.write(METADATA)
            writer.write(up.read())
            answer = b""
            while not answer:
                down.write(await reader.read(65_536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    answer = tls.read(65_536)
            assert answer[4:8] == b"\0\0\0\1"
            writer.close()

    run(scenario())


# ---- one port for all brokers (SNI) --------------------------------------------------------------------

PATTERN = "broker-{node_id}.kafka.example"


def test_clients_reach_the_broker_whose_name_they_ask_for(authority: Authority) -> None:
    wildcard = authority.issue("wildcard", names=["DNS:*.kafka.example"])

    async def scenario() -> None:
        context = client_tls(authority)
        async with ScriptedBroker() as one, ScriptedBroker() as five:
            one.nodes = five.nodes = {1: (HOST, one.port), 5: (HOST, five.port)}
            listener = {"tls": files(wildcard), "sni": PATTERN}
            async with gateway_before(one.address, listener=listener) as gateway:
                bootstrap = await gateway.connect(tls=context, name="bootstrap.kafka.example")
                answer = await bootstrap.ask(messages.METADATA, VERSION, {"topics": []})
                shown = {broker["node_id"]: (broker["host"], broker["port"]) for broker in answer["brokers"]}
                assert shown == {
                    1: ("broker-1.kafka.example", gateway.port),
                    5: ("broker-5.kafka.example", gateway.port),
                }
                before = len(one.peers), len(five.peers)
                for name in ("broker-5.kafka.example", "BROKER-5.kafka.example"):
                    client = await gateway.connect(tls=context, name=name)
                    assert await nodes_by(client) == [1, 5]
                assert (len(one.peers), len(five.peers)) == (before[0], before[1] + 2)
                client = await gateway.connect(tls=context, name="broker-1.kafka.example")
                assert await nodes_by(client) == [1, 5]
                assert (len(one.peers), len(five.peers)) == (before[0] + 1, before[1] + 2)
                # A broker that nobody knows yet: a bootstrap server stands in, as at its port.
                client = await gateway.connect(tls=context, name="broker-77.kafka.example")
                assert await nodes_by(client) == [1, 5]

    run(scenario())
