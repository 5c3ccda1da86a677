"""The user in whose name the gateway logs in at brokers, for a client that has shown it a certificate."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.cluster.nodes import Nodes
from pidgate.gateway.cluster.own_questions import OwnQuestions
from pidgate.gateway.cluster.upstream_identity import NoIdentity, TokenIdentity
from pidgate.gateway.config.settings import SaslSettings
from pidgate.gateway.proxy.bounds import Bounds
from pidgate.names import LONGEST_NAME
from pidgate.protocol import logins, messages
from pidgate.protocol.delegation_tokens import CREATE_DELEGATION_TOKEN
from pidgate.protocol.frames import encode_string
from pidgate.protocol.headers import RequestHead
from tests.support import raw
from tests.support.loopback import (
    NODE_ID,
    Answer,
    Peer,
    RunningGateway,
    ScriptedBroker,
    answer_to,
    gateway_before,
    offers_plain,
    run,
    until,
)
from tests.support.tls_listener import client_tls, mutual_tls
from tools.sandbox.certificates import Authority

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
LONG = "".join(f"/OU=department-{number}-{40 * 'x'}" for number in range(5))


def broker_that(creates: Answer) -> ScriptedBroker:
    """A broker that lets the gateway in, and gives tokens as `creates` says."""
    return ScriptedBroker({messages.SASL_HANDSHAKE: offers_plain, CREATE_DELEGATION_TOKEN: creates})


@asynccontextmanager
async def gateway_of_joe(
    folder: Path,
    creates: Answer,
    subject: str = "/O=acme/CN=joe",
    rules: str = "DEFAULT",
    bounds: Bounds | None = None,
    identity: str = "delegation_token",
) -> AsyncIterator[tuple[RunningGateway, ScriptedBroker, ssl.SSLContext]]:
    """A gateway before a broker that gives tokens as `creates` says; with it the TLS of its client joe."""
    authority = Authority(folder)
    own = authority.issue("joe", subject=subject)
    tls = {**mutual_tls(authority), "ssl_principal_mapping_rules": rules}
    async with (
        broker_that(creates) as broker,
        gateway_before(
            broker.address,
            listener={"tls": tls},
            cluster={"upstream_identity": identity},
            own_client=own_sasl(folder),
            bounds=bounds,
        ) as gateway,
    ):
        await until(gateway.gateway.is_ready)
        yield gateway, broker, client_tls(authority, own)


def own_sasl(folder: Path) -> dict[str, Any]:
    """The gateway's own login."""
    password = folder / "password"
    password.write_text("own-secret")
    password.chmod(0o600)
    return {"mechanism": "PLAIN", "username": "pidgate", "password_file": str(password)}


async def closed_as(gateway: RunningGateway, client_tls: ssl.SSLContext, port: int) -> dict[str, Any]:
    """Have a client of joe's ask something; return the line in the log about the end of its connection."""
    with capture_logs() as logged:
        client = await gateway.connect(port, tls=client_tls)
        client.send(raw.request(messages.METADATA, 9, {"topics": []}))
        assert await client.end() == b""
    (line,) = [line for line in logged if line["event"] == "connection_closed"]
    return dict(line)


@pytest.mark.parametrize(
    ("subject", "rules", "owner"),
    [
        ("/O=acme/CN=joe", "DEFAULT", "CN=joe,O=acme"),
        (f"/O=acme{LONG}/CN=joe", "RULE:^CN=([a-z]+),.*$/$1/", "joe"),
        (f"/O=acme{LONG}/CN=joe", "DEFAULT", None),
    ],
)
def test_a_token_is_asked_for_the_certificates_whole_name_or_for_none(
    tmp_path: Path, subject: str, rules: str, owner: str | None
) -> None:
    """A name that is cut and hashed, as quotas have it, is another principal's to brokers."""
    asked = list[bytes]()

    async def refuses(head: RequestHead, peer: Peer) -> bytes:
        asked.append(peer.frames[-1])
        return answer_to(head, {"error_code": 65})

    async def scenario() -> None:
        async with gateway_of_joe(tmp_path, refuses, subject, rules) as (gateway, _broker, client_tls):
            line = await closed_as(gateway, client_tls, gateway.port)
            assert line["cause"] == "login"
            if owner is None:
                assert asked == []
                assert f"more than {LONGEST_NAME} get no token; shorten it with" in line["reason"]
            else:
                (frame,) = asked
                assert encode_string(owner, flexible=True) in frame

    run(scenario())


def no_broker_is_forgotten_for_a_slow_token(folder: Path) -> bool:
    """The rule: how long the question for a token takes says nothing of the broker that the client asked for."""
    nodes = dict[str, bool]()

    async def never(_head: RequestHead, _peer: Peer) -> None:
        return None

    async def scenario() -> None:
        bounds = Bounds(connect_timeout_ms=200)
        async with gateway_of_joe(folder, never, bounds=bounds) as (gateway, broker, client_tls):
            nodes_known = gateway.gateway.traffic.shared.nodes
            nodes_known.learn_node(NODE_ID, "127.0.0.1", broker.port)
            line = await closed_as(gateway, client_tls, gateway.first_node_port + NODE_ID)
            nodes["is known"] = NODE_ID in nodes_known.known_addresses
            nodes["login"] = line["cause"] == "login" and "no broker gave a token" in line["reason"]

    run(scenario())
    return nodes == {"is known": True, "login": True}


def test_no_broker_is_forgotten_for_a_slow_token(tmp_path: Path) -> None:
    assert no_broker_is_forgotten_for_a_slow_token(tmp_path)


LIFE_MS = 1_000_000


def test_a_token_is_used_until_it_expires_where_brokers_give_no_other(tmp_path: Path) -> None:
    """And not beyond; nor one that they refuse."""
    gives, now_ms = [True], [0]

    async def creates(head: RequestHead, _peer: Peer) -> bytes:
        if not gives[0]:
            return answer_to(head, {"error_code": 65})
        times = {"issue_timestamp_ms": 5, "expiry_timestamp_ms": 5 + LIFE_MS, "max_timestamp_ms": 9}
        return answer_to(head, {**times, "token_id": "id-1", "hmac": b"secret"})

    async def scenario() -> None:
        async with broker_that(creates) as broker:
            sasl, nodes = SaslSettings(**own_sasl(tmp_path)), Nodes([("127.0.0.1", broker.port)])
            questions = OwnQuestions(sasl, lambda: "n", nodes, 5_000, None, sends_proxy_header=False)
            identity = TokenIdentity(sasl, lambda: "n", questions, lambda: now_ms[0])
            login = await identity.login_of("joe", is_certified=True)
            assert login is not None
            assert login.user == "id-1"
            gives[0] = False
            for now_ms[0] in (LIFE_MS * 3 // 4 - 1, LIFE_MS * 3 // 4, LIFE_MS - 1):
                assert await identity.login_of("joe", is_certified=True) is login
            (tmp_path / "password").rename(tmp_path / "moved")
            assert await identity.login_of("joe", is_certified=True) is login
            (tmp_path / "moved").rename(tmp_path / "password")
            identity.record_refusal("joe", login)
            with pytest.raises(NoIdentity):
                await identity.login_of("joe", is_certified=True)
            gives[0] = True
            login = await identity.login_of("joe", is_certified=True)
            gives[0] = False
            now_ms[0] += LIFE_MS
            with pytest.raises(NoIdentity, match="CreateTokens"):
                await identity.login_of("joe", is_certified=True)

    run(scenario())


CREDENTIALS: tuple[tuple[int, int, raw.Body, int], ...] = (
    (17, 1, {"mechanism": "PLAIN"}, 34),
    (36, 0, {"auth_bytes": b"\0mallory\0secret"}, 34),
    (36, 2, {"auth_bytes": b"\0mallory\0secret"}, 34),
    *((38, version, {"renewers": [], "max_lifetime_ms": -1}, 64) for version in range(4)),
    *((39, version, {"hmac": b"h", "renew_period_ms": 1}, 64) for version in range(3)),
    *((40, version, {"hmac": b"h", "expiry_time_period_ms": 1}, 64) for version in range(3)),
    *((41, version, {"owners": None}, 64) for version in range(4)),
    (50, 0, {"users": None}, 31),
)
"""Requests about a login or credentials, and the error code of their refusal."""
ALTER_SCRAM = 51


@pytest.mark.parametrize("identity", ["own", "delegation_token"])
def test_a_client_for_whom_the_gateway_logged_in_gets_no_login_and_no_credentials(
    tmp_path: Path, identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers would rename the gateway's own session, or make a token of the gateway's user."""
    if identity == "delegation_token":  # by SCRAM, which the scripted broker does not speak
        plain = partial(logins.tokens, "PLAIN", "id-1", "secret", "")
        monkeypatch.setattr(logins, "tokens", lambda *_: plain())

    async def creates(head: RequestHead, _peer: Peer) -> bytes:
        times = {"issue_timestamp_ms": 5, "expiry_timestamp_ms": 5 + LIFE_MS, "max_timestamp_ms": 9}
        return answer_to(head, {**times, "token_id": "id-1", "hmac": b"secret"})

    async def scenario() -> None:
        async with gateway_of_joe(tmp_path, creates, identity=identity) as (gateway, broker, client_tls):
            client = await gateway.connect(tls=client_tls)
            await client.ask(messages.METADATA, 9, {"topics": []})  # the gateway has logged in
            before = [head.api_key for peer in broker.peers for head in peer.requests]
            for api_key, version, body, code in CREDENTIALS:
                answer = await client.ask(api_key, version, body)
                assert answer["error_code"] == code, (api_key, version)
            scram = {"name": "mallory", "mechanism": 1}
            answer = await client.ask(ALTER_SCRAM, 0, {"deletions": [scram], "upsertions": []})
            assert [(one["user"], one["error_code"]) for one in answer["results"]] == [("mallory", 31)]
            assert [head.api_key for peer in broker.peers for head in peer.requests] == before
            (connection,) = gateway.gateway.traffic.shared.connections
            assert connection.client.user == "CN=joe,O=acme"

    run(scenario())


def test_a_client_that_logs_in_by_itself_may_use_all_of_them(tmp_path: Path) -> None:
    """The control: without an identity of the gateway's each of these requests reaches the broker."""

    async def scenario() -> None:
        async with (
            ScriptedBroker({messages.SASL_HANDSHAKE: offers_plain}) as broker,
            gateway_before(broker.address) as gateway,
        ):
            await until(gateway.gateway.is_ready)
            client = await gateway.connect()
            for api_key, version, body, _code in CREDENTIALS[:1] + CREDENTIALS[3:]:
                client.send(raw.request(api_key, version, body))
                await client.frame()
            client.send(raw.request(ALTER_SCRAM, 0, {"deletions": [], "upsertions": []}))
            await client.frame()
            reached = [head.api_key for peer in broker.peers for head in peer.requests]
            assert set(reached) == {17, 38, 39, 40, 41, 50, ALTER_SCRAM}

    run(scenario())
