"""Owners of tokens that no answer has shown: asked with the gateway's own credentials, once for all who wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pidgate.gateway.cluster import token_lookup
from pidgate.protocol.delegation_tokens import DESCRIBE_DELEGATION_TOKEN
from pidgate.protocol.headers import RequestHead
from pidgate.quota.entities import unidentified
from tests.support import raw
from tests.support.loopback import Client, Peer, RunningGateway, ScriptedBroker, gateway_before, run, until

SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA = 17, 36, 3
FIRST, FINAL = b"n,,n=id-1,r=abc,tokenauth=true", b"c=biws,r=abcd,p=x"
ALL_SUCH = unidentified("SCRAM-SHA-256")


class Brokers:
    """Let everybody in, and show the tokens that they are given, when they may."""

    def __init__(self, *shown: tuple[str, str]) -> None:
        self.shown = list(shown)
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def _handshake(self, head: RequestHead, _peer: Peer) -> bytes:
        return self._answer(head, {"mechanisms": ["PLAIN", "SCRAM-SHA-256"]})

    async def _authenticate(self, head: RequestHead, peer: Peer) -> bytes:
        frame = peer.frames[-1]
        token = b"v=x" if FINAL in frame else b"r=abcd,s=c2FsdA==,i=4096" if b"n,,n=" in frame else b""
        return self._answer(head, {"auth_bytes": token})

    async def _describe(self, head: RequestHead, _peer: Peer) -> bytes:
        self.asked += 1
        await self.may_answer.wait()
        tokens = [
            {"principal_type": "User", "principal_name": owner, "token_id": token_id, "hmac": b"x"}
            for token_id, owner in self.shown
        ]
        return self._answer(head, {"tokens": tokens})

    def _answer(self, head: RequestHead, body: raw.Body) -> bytes:
        return raw.response(head.api_key, head.api_version, body, correlation_id=head.correlation_id)

    @asynccontextmanager
    async def behind(self, folder: Path) -> AsyncIterator[tuple[RunningGateway, ScriptedBroker]]:
        """A gateway whose own login is by PLAIN."""
        password = folder / "password"
        password.write_text("own-secret")
        password.chmod(0o600)
        own: dict[str, Any] = {"mechanism": "PLAIN", "username": "pidgate", "password_file": str(password)}
        answers = {
            SASL_HANDSHAKE: self._handshake,
            SASL_AUTHENTICATE: self._authenticate,
            DESCRIBE_DELEGATION_TOKEN: self._describe,
        }
        async with (
            ScriptedBroker(answers) as broker,
            gateway_before(
                broker.address, listener={"authentication": "required"}, own_client=own
            ) as gateway,
        ):
            yield gateway, broker


async def logged_in(gateway: RunningGateway) -> Client:
    client = await gateway.connect()
    await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
    for token in (FIRST, FINAL):
        assert (await client.ask(SASL_AUTHENTICATE, 2, {"auth_bytes": token}))["error_code"] == 0
    return client


def users(gateway: RunningGateway) -> list[str]:
    channels = gateway.gateway.traffic.shared.connections
    return [channel.client.user for channel in channels]


def keys(broker: ScriptedBroker) -> list[int]:
    """What clients' connections have brought."""
    return [head.api_key for peer in broker.peers for head in peer.requests]


def test_what_comes_behind_the_login_waits_for_the_owner(tmp_path: Path) -> None:
    async def scenario() -> None:
        brokers = Brokers(("id-0", "bob"), ("id-1", "alice"))
        brokers.may_answer.clear()
        async with brokers.behind(tmp_path) as (gateway, broker):
            clients = [await logged_in(gateway) for _ in range(2)]
            for client in clients:
                client.send(raw.request(METADATA, 9, {"topics": []}))
            await until(lambda: brokers.asked or METADATA in keys(broker))
            await asyncio.sleep(0.05)
            assert METADATA not in keys(broker)
            brokers.may_answer.set()
            for client in clients:
                assert raw.decoded(METADATA, 9, await client.frame())["brokers"]
            assert users(gateway) == ["alice", "alice"]
            assert brokers.asked == 1
            await logged_in(gateway)
            assert brokers.asked == 1

    run(scenario())


def test_a_token_that_is_not_shown_is_asked_for_twice_and_then_is_one_of_all_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_lookup, "ASKED_EVERY_MS", 5)

    async def scenario() -> None:
        brokers = Brokers(("id-0", "bob"))
        async with brokers.behind(tmp_path) as (gateway, _broker):
            client = await logged_in(gateway)
            assert (await client.ask(METADATA, 9, {"topics": []}))["brokers"]
            assert users(gateway) == [ALL_SUCH]
            await logged_in(gateway)
            assert users(gateway) == [ALL_SUCH] * 2
            assert brokers.asked == token_lookup.TRIES

    run(scenario())


def test_without_an_answer_nobody_is_held_up_for_good(tmp_path: Path) -> None:
    async def scenario() -> None:
        brokers = Brokers(("id-1", "alice"))
        async with brokers.behind(tmp_path) as (gateway, _broker):
            (tmp_path / "password").unlink()
            client = await logged_in(gateway)
            assert (await client.ask(METADATA, 9, {"topics": []}))["brokers"]
            assert users(gateway) == [ALL_SUCH]

    run(scenario())


MANY = 8
"""Owners that are kept, in the test of more tokens than that."""


def test_with_more_tokens_than_are_kept_who_waits_gets_his_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the last one that brokers list; and those who were asked for before stay known."""

    async def scenario() -> None:
        brokers = Brokers(*((f"id-{number}", "bob") for number in range(2, 5 * MANY)), ("id-1", "alice"))
        async with brokers.behind(tmp_path) as (gateway, _broker):
            owners = gateway.gateway.traffic.shared.token_owners
            monkeypatch.setattr(owners, "_most", MANY)
            await logged_in(gateway)
            await until(lambda: users(gateway) == ["alice"])
            assert brokers.asked == 1
            assert len(owners.known_tokens()) == MANY
            assert owners.known_tokens()[-1] == ("id-1", "alice")
            lookup = gateway.gateway.traffic.shared.token_lookup
            assert lookup is not None
            await lookup._learn({"id-30"})
            assert owners.known_tokens()[-1] == ("id-30", "bob")
            assert owners.owner_of("id-1") == "alice"

    run(scenario())
