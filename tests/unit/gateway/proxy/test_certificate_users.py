"""Who a client is by its certificate: named before its first request, and by nothing that it can choose."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest
from structlog.testing import capture_logs

from pidgate.protocol import messages
from pidgate.quota.entities import unidentified
from tests.support import raw
from tests.support.loopback import (
    HOST,
    Client,
    RunningGateway,
    ScriptedBroker,
    gateway_before,
    offers_plain,
    run,
    until,
)
from tests.support.tls_listener import client_tls, mutual_tls
from tools.sandbox.certificates import Authority, Pair

VERSION = 9
METADATA = raw.request(messages.METADATA, VERSION, {"topics": []}, correlation_id=1)
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("users"))


@pytest.fixture(scope="module")
def joe(authority: Authority) -> Pair:
    return authority.issue("joe", subject="/O=acme/CN=joe")


@pytest.fixture(scope="module")
def listener(authority: Authority) -> dict[str, Any]:
    return mutual_tls(authority)


def users(gateway: RunningGateway) -> list[str]:
    channels = gateway.gateway.traffic.shared.connections
    return [channel.client.user for channel in channels]


async def asked(client: Client) -> None:
    assert (await client.ask(messages.METADATA, VERSION, {"topics": []}))["brokers"]


@pytest.mark.parametrize(
    ("subject", "rules", "user"),
    [
        ("/O=acme/CN=joe", None, "CN=joe,O=acme"),
        ("/O=acme/CN=Joe", "RULE:^CN=([A-Za-z]+).*$/$1/L,DEFAULT", "joe"),
        ("/O=acme", "RULE:^CN=([A-Za-z]+).*$/$1/L,DEFAULT", "O=acme"),
        ("/", None, unidentified("SSL")),
    ],
)
def test_the_user_is_that_of_the_certificate(
    authority: Authority, listener: dict[str, Any], subject: str, rules: str | None, user: str
) -> None:
    named = {} if rules is None else {"ssl_principal_mapping_rules": rules}

    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": {**listener, **named}}) as gateway,
        ):
            pair = authority.issue("anybody", subject=subject)
            await asked(await gateway.connect(tls=client_tls(authority, pair)))
            assert users(gateway) == [user]

    run(scenario())


def test_who_shows_none_where_none_is_needed_is_anonymous(
    authority: Authority, joe: Pair, listener: dict[str, Any]
) -> None:
    async def scenario() -> None:
        tls = {**listener, "client_auth": "requested"}
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": tls}) as gateway,
        ):
            await asked(await gateway.connect(tls=client_tls(authority)))
            await asked(await gateway.connect(tls=client_tls(authority, joe)))
            assert users(gateway) == ["ANONYMOUS", "CN=joe,O=acme"]

    run(scenario())


def test_where_authentication_is_required_a_certificate_is_one_and_none_is_not(
    authority: Authority, joe: Pair, listener: dict[str, Any]
) -> None:
    async def scenario() -> None:
        of_listener = {"tls": {**listener, "client_auth": "requested"}, "authentication": "required"}
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener=of_listener) as gateway,
        ):
            await asked(await gateway.connect(tls=client_tls(authority, joe)))
            nobody = await gateway.connect(tls=client_tls(authority))
            with capture_logs() as logged:
                nobody.send(METADATA)
                assert await nobody.end() == b""
            (line,) = [line for line in logged if line["event"] == "connection_closed"]
            assert line["cause"] == "unauthenticated"
            assert users(gateway) == ["CN=joe,O=acme"]

    run(scenario())


def test_where_brokers_want_a_login_a_certificate_is_none_and_the_login_names_the_user(
    authority: Authority, joe: Pair, listener: dict[str, Any]
) -> None:
    async def scenario() -> None:
        of_listener = {"tls": listener, "authentication": None}
        async with (
            ScriptedBroker({SASL_HANDSHAKE: offers_plain}) as broker,
            gateway_before(broker.address, listener=of_listener) as gateway,
        ):
            await until(gateway.gateway.is_ready)
            context = client_tls(authority, joe)
            hasty = await gateway.connect(tls=context)
            hasty.send(METADATA)
            assert await hasty.end() == b""
            client = await gateway.connect(tls=context)
            assert (await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))["error_code"] == 0
            token = {"auth_bytes": b"\0alice\0secret"}
            assert (await client.ask(SASL_AUTHENTICATE, 2, token))["error_code"] == 0
            await asked(client)
            assert users(gateway) == ["alice"]

    run(scenario())


def test_who_fits_no_rule_is_closed_as_by_kafka(
    authority: Authority, joe: Pair, listener: dict[str, Any]
) -> None:
    async def scenario() -> None:
        tls = {**listener, "ssl_principal_mapping_rules": "RULE:^UID=(.*)$/$1/"}
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": tls}) as gateway,
        ):
            await until(gateway.gateway.is_ready)
            with capture_logs() as logged:
                client = await gateway.connect(tls=client_tls(authority, joe))
                client.send(METADATA)
                assert await client.end() == b""
            (line,) = [line for line in logged if line["event"] == "connection_closed"]
            assert line["cause"] == "unauthenticated"
            assert "CN=joe,O=acme" in line["reason"]
            assert broker.peers == []

    run(scenario())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_resumed_session_is_the_same_user(
    authority: Authority, joe: Pair, listener: dict[str, Any], version: ssl.TLSVersion, client_auth: str
) -> None:
    """It shows no certificate again: the gateway has it with the session, or there is none."""
    context = client_tls(authority, joe)
    context.maximum_version = version

    def connect(port: int, session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None]:
        opened = socket.create_connection((HOST, port), timeout=10)
        with context.wrap_socket(opened, server_hostname=HOST, session=session) as tls:
            tls.sendall(METADATA)
            assert tls.recv(65_536)
            return tls.session_reused is True, tls.session

    async def scenario() -> None:
        tls = {**listener, "client_auth": client_auth}
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"tls": tls}) as gateway,
        ):
            seen = list[str]()
            original = gateway.gateway.traffic.shared.connection_quotas.logged_in

            def noted(key: object, name: str, now_ms: int) -> int | None:
                seen.append(name)
                found: int | None = original(key, name, now_ms)
                return found

            gateway.gateway.traffic.shared.connection_quotas.logged_in = noted  # type: ignore[method-assign]
            session = None
            for is_reused in (False, True, True):
                reused, session = await asyncio.to_thread(connect, gateway.port, session)
                assert reused is is_reused
            assert seen == 3 * ["CN=joe,O=acme"]

    run(scenario())


def test_what_comes_with_the_handshake_is_the_users(
    authority: Authority, listener: dict[str, Any], joe: Pair
) -> None:
    """Too many connections of the user: the next one's first request is not forwarded."""

    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(
                broker.address, listener={"tls": listener}, limits={"connections_per_user": 1}
            ) as gateway,
        ):
            await asked(await gateway.connect(tls=client_tls(authority, joe)))
            one_more = await gateway.connect(tls=client_tls(authority, joe))
            one_more.send(METADATA)
            assert await one_more.end() == b""
            assert len(broker.peers) == 1

    run(scenario())
