"""Before its first token a client holds no broker connection: the gateway answers as its broker answered before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pidgate.gateway.cluster.broker_answers import KEPT_MS, BrokerAnswers
from pidgate.gateway.cluster.resolving import Resolver
from pidgate.protocol import messages
from pidgate.protocol.codec import message_class
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.frames import Reader, framed
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.logins import MECHANISMS
from pidgate.protocol.messages import API_VERSIONS, METADATA, Question
from tests.support import raw
from tests.support.loopback import (
    HOST,
    Client,
    Peer,
    RunningGateway,
    ScriptedBroker,
    gateway_before,
    run,
    until,
)
from tests.support.meant_node import api_versions, meant
from tests.support.rules import rule

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
UNSUPPORTED_MECHANISM, INVALID_REQUEST, REBOOTSTRAP_REQUIRED = 33, 42, 129
REQUIRED = {"authentication": "required"}
ALICE = {"auth_bytes": b"\0alice\0secret"}
VERSIONS = raw.request(API_VERSIONS, 3)
HANDSHAKE = raw.request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
TOO_NEW = framed(b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff")
"""ApiVersions of a version that nobody knows."""
message_class(METADATA, "request")  # loads all schemas: half a second that no scenario has to pay


class SaslBroker(ScriptedBroker):
    """A broker that requires a login by PLAIN. Its newest Metadata and its features are the test's to change."""

    def __init__(self, newest: int = 12) -> None:
        super().__init__(
            {
                API_VERSIONS: self._versions,
                SASL_HANDSHAKE: self._offers_plain,
            }
        )
        self.newest = newest
        self.epoch = 7
        self.transactions = 2
        self.mechanisms = ["PLAIN"]

    async def _versions(self, head: RequestHead, peer: Peer) -> bytes:
        if b"-jav" in peer.frames[-1]:
            peer.writer.transport.abort()
        body = {
            "api_keys": [
                {"api_key": METADATA, "min_version": 0, "max_version": self.newest},
                {"api_key": API_VERSIONS, "min_version": 0, "max_version": 4},
            ],
            "finalized_features_epoch": self.epoch,
            "finalized_features": [
                {"name": "t", "max_version_level": self.transactions, "min_version_level": 0}
            ],
        }
        return raw.response(API_VERSIONS, head.api_version, body, correlation_id=head.correlation_id)

    async def _offers_plain(self, head: RequestHead, _peer: Peer) -> bytes:
        asked = Reader(_peer.frames[-1], head.body, head.end).string()
        code = 0 if asked in self.mechanisms else UNSUPPORTED_MECHANISM
        body = {"error_code": code, "mechanisms": self.mechanisms}
        return raw.response(SASL_HANDSHAKE, 1, body, correlation_id=head.correlation_id)


@asynccontextmanager
async def gateway_and(*brokers: SaslBroker) -> AsyncIterator[RunningGateway]:
    async with gateway_before(*(broker.address for broker in brokers), listener=REQUIRED) as gateway:
        await until(gateway.gateway.is_ready)
        yield gateway


async def newest_told(client: Client, version: int = 3) -> int:
    """The newest Metadata that a client is told of."""
    return int((await client.ask(API_VERSIONS, version))["ranges"][METADATA][1])


async def log_in(client: Client) -> int:
    await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    return int((await client.ask(SASL_AUTHENTICATE, 2, ALICE))["error_code"])


@rule(
    "A client has no broker connection before its first token, and is told what its broker answers.",
    "connections",
)
def test_strangers_reach_no_broker() -> None:
    async def scenario() -> None:
        async with SaslBroker() as broker, gateway_and(broker) as gateway:
            before = broker.accepted
            for version in (0, 3, 3, 4):
                for _ in range(20):
                    client = await gateway.connect()
                    assert await newest_told(client, version) == broker.newest
                    answer = await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
                    assert (answer["error_code"], answer["mechanisms"]) == (0, ["PLAIN"])
            assert len(gateway.gateway.traffic.shared.connections) == 80, "they arrived, and are open"
            assert broker.accepted - before == 3, "one question for each version; the mechanisms were known"
            assert broker.peers == []
            await until(lambda: not broker.connected)

    run(scenario())


def test_a_client_is_introduced_to_its_broker_with_its_first_token() -> None:
    async def scenario() -> None:
        async with SaslBroker() as broker, gateway_and(broker) as gateway:
            client = await gateway.connect()
            client.send(api_versions(3))
            await client.frame()
            assert broker.peers == []
            assert await log_in(client) == 0
            (peer,) = broker.peers
            keys = [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE]
            assert [head.api_key for head in peer.requests] == keys
            first = peer.frames[0]
            software = messages.client_software(first, peek_request(first, 0, len(first)))
            assert software == ("java", "4.4"), "the broker learns the client's software"
            (connection,) = gateway.gateway.traffic.shared.connections
            assert connection.client.user == "alice"
            # After the login everything is the broker's to answer.
            broker.newest = 11
            assert await newest_told(client) == 11
            assert await log_in(client) == 0
            assert len(peer.requests) == 6

    run(scenario())


def test_requests_in_a_row_are_answered_in_order() -> None:
    async def scenario() -> None:
        async with SaslBroker() as broker, gateway_and(broker) as gateway:
            client = await gateway.connect()
            client.send(
                raw.request(API_VERSIONS, 3, correlation_id=1)
                + raw.request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, correlation_id=2)
                + raw.request(SASL_AUTHENTICATE, 2, ALICE, correlation_id=3)
                + raw.request(METADATA, 9, {"topics": []}, correlation_id=4)
            )
            order = [int.from_bytes((await client.frame())[:4], "big") for _ in range(4)]
            assert order == [1, 2, 3, 4]
            # One that sends no more is answered, too.
            last = await gateway.connect()
            last.send(raw.request(API_VERSIONS, 1, correlation_id=5))
            last.writer.write_eof()
            assert (await last.frame())[:4] == (5).to_bytes(4, "big")
            assert await last.end() == b""

    run(scenario())


def test_a_mechanism_that_brokers_lack_is_refused_as_they_do() -> None:
    async def scenario() -> None:
        async with SaslBroker() as broker, gateway_and(broker) as gateway:
            client = await gateway.connect()
            refused = await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
            assert (refused["error_code"], refused["mechanisms"]) == (UNSUPPORTED_MECHANISM, ["PLAIN"])
            assert await client.end() == b""
            assert broker.peers == []

    run(scenario())


@pytest.mark.parametrize(("frame", "is_answered"), [(VERSIONS, True), (HANDSHAKE, True), (TOO_NEW, False)])
def test_each_is_answered_once(frame: bytes, is_answered: bool) -> None:
    """Brokers close for a second one, too: otherwise a connection could keep the gateway busy with them."""

    async def scenario() -> None:
        async with SaslBroker() as broker, gateway_and(broker) as gateway:
            client = await gateway.connect()
            client.send(frame * 3)
            for _ in range(1 if is_answered else 3):
                await client.frame()
            if is_answered:
                assert await client.end() == b""
                assert gateway.metric("connections_closed_total", cause="protocol") == 1
            else:
                assert await newest_told(client) == 12
            assert broker.peers == []

    run(scenario())


@pytest.mark.parametrize("what", ["versions", "features", "mechanisms"])
def test_nobody_logs_in_with_the_answers_of_a_broker_that_has_changed(what: str) -> None:
    """A broker is replaced by one of another version, and nobody had to open a connection to it."""

    async def scenario() -> None:
        async with SaslBroker() as broker, gateway_and(broker) as gateway:
            client, other = await gateway.connect(), await gateway.connect()
            assert await newest_told(client, 3) == await newest_told(other, 3) == 12
            await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            broker.epoch += 1  # with each record of the metadata
            assert await log_in(other) == 0
            if what == "versions":
                broker.newest = 9
            elif what == "features":
                broker.transactions = 1
            else:
                broker.mechanisms = ["OAUTHBEARER"]
            client.send(raw.request(SASL_AUTHENTICATE, 2, ALICE))
            assert await client.end() == b""
            assert len(broker.peers) == 1, "its token reached the broker"
            assert gateway.metric("connections_closed_total", cause="moved") == 1
            client = await gateway.connect()
            assert await newest_told(client, 3) == broker.newest
            assert (await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "x"}))[
                "mechanisms"
            ] == broker.mechanisms

    run(scenario())


def test_a_client_of_the_bootstrap_port_logs_in_where_its_answers_came_from() -> None:
    """Through an upgrade the brokers offer different versions."""

    async def scenario() -> None:
        async with (
            SaslBroker(newest=9) as old,
            SaslBroker(newest=12) as new,
            gateway_and(old, new) as gateway,
        ):
            told = {}
            for _ in range(6):
                client = await gateway.connect()
                newest = await newest_told(client)
                peers = {9: len(old.peers), 12: len(new.peers)}
                assert await log_in(client) == 0
                told[newest] = {9: len(old.peers), 12: len(new.peers)}[newest] - peers[newest]
            assert told == {9: 1, 12: 1}

    run(scenario())


def test_a_broker_that_is_gone_is_not_answered_for() -> None:
    async def scenario() -> None:
        async with SaslBroker() as first, SaslBroker() as second, gateway_and(first, second) as gateway:
            clients = [await gateway.connect() for _ in range(2)]
            for client in clients:
                await newest_told(client)
            await first.stop()
            first_two = await asyncio.gather(*map(log_in, clients), return_exceptions=True)
            assert sorted(map(str, first_two))[0] == "0"
            assert sum(isinstance(one, asyncio.IncompleteReadError) for one in first_two) == 1
            for _ in range(3):
                client = await gateway.connect()
                await newest_told(client)
                assert await log_in(client) == 0

    run(scenario())


def test_what_a_client_adds_to_its_request_reaches_no_broker() -> None:
    """A broker ends the connection of a request that it cannot read: with it, others would lose their answers."""

    async def scenario() -> None:
        async with SaslBroker() as broker, gateway_and(broker) as gateway:
            client = await gateway.connect()
            client.send(framed(api_versions(3)[4:], b"garbage"))
            await client.frame()
            asked = broker.accepted
            assert await newest_told(await gateway.connect(), 3) == 12
            assert broker.accepted == asked

    run(scenario())


def test_a_question_that_a_broker_does_not_answer_ends_its_client_alone() -> None:
    """Otherwise a stranger could have the gateway forget its brokers."""

    async def scenario() -> None:
        async with SaslBroker() as broker, gateway_and(broker) as gateway:
            assert await newest_told(await gateway.connect()) == 12
            asked = broker.accepted
            odd = await gateway.connect()
            odd.send(api_versions(3).replace(b"java", b"-jav"))
            assert await odd.end() == b""
            assert broker.accepted == asked + 1, "it arrived"
            assert gateway.metric("connections_closed_total", cause="unreachable") == 1
            for cause in ("unreachable", "timeout", "refused"):
                assert gateway.metric("upstream_failures_total", cause=cause) == 0
            assert await newest_told(await gateway.connect()) == 12
            assert broker.accepted == asked + 1, "what the broker answered is forgotten"

    run(scenario())


class Asking:
    """BrokerAnswers with a clock that the test sets, and a broker that knows its name."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.asked: list[bytes] = []
        self.at_once = self.most_at_once = 0
        self.answer = b"\0\0\0\1" + bytes(2) + b"\1" + bytes(4) + b"\0"
        self.answers = BrokerAnswers(Resolver(), 5_000, lambda: self.now_ms)
        self.broker = ScriptedBroker({API_VERSIONS: self._versions})

    async def _versions(self, head: RequestHead, peer: Peer) -> bytes:
        self.asked.append(peer.frames[-1])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        if b"elsewhere" in peer.frames[-1]:
            return framed(b"\0\0\0\1", REBOOTSTRAP_REQUIRED.to_bytes(2, "big"), b"\1", bytes(4), b"\0")
        return framed(self.answer)

    async def ask(self, question: Question) -> bytes:
        return await self.answers.ask((HOST, self.broker.port), question)

    def find(self, question: Question) -> bytes | None:
        return self.answers.find((HOST, self.broker.port), question)


def question(version: int = 3, named: bytes = b"", software: bytes = b"java") -> Question:
    frame = api_versions(version, named).replace(b"java", software)
    return messages.api_versions_question(frame, peek_request(frame, 4, len(frame)), passes_target=True)


USUAL_V5 = question(5, meant(None, -1))


def asking(scenario: Any) -> None:
    async def whole() -> None:
        made = Asking()
        async with made.broker:
            await scenario(made)

    run(whole())


def test_an_answer_is_used_for_a_minute_and_asked_for_once() -> None:
    async def scenario(site: Asking) -> None:
        answers = await asyncio.gather(*(site.ask(question()) for _ in range(20)))
        assert set(answers) == {site.answer}
        assert len(site.asked) == 1
        site.now_ms = KEPT_MS
        assert site.find(question()) == site.answer
        assert site.find(question(4)) is None, "each version has its own answer"
        site.now_ms += 1
        assert site.find(question()) is None
        await site.ask(question())
        assert len(site.asked) == 2
        site.answers.forget((HOST, site.broker.port))
        assert site.find(question()) is None

    asking(scenario)


def test_one_question_that_names_something_is_asked_at_a_time_and_others_do_not_wait_for_it() -> None:
    async def scenario(site: Asking) -> None:
        foreign = [question(5, meant(f"elsewhere{n}", n)) for n in range(20)]
        waiting = [asyncio.ensure_future(site.ask(one)) for one in foreign]
        await until(lambda: site.asked)
        await asyncio.wait_for(site.ask(USUAL_V5), 0.15)
        assert len(site.asked) < 20
        answers = await asyncio.gather(*waiting)
        assert {messages.question_error(answer) for answer in answers} == {REBOOTSTRAP_REQUIRED}
        assert site.most_at_once <= 2
        # A refusal is not kept: nobody fills the memory with names.
        assert [site.find(one) for one in foreign] == [None] * 20
        here = question(5, meant("here", 1))
        assert await site.ask(here) == site.find(here) == site.answer
        assert site.find(question(5, meant("here", 2))) is None

    asking(scenario)


def test_a_version_that_the_broker_lacks_is_refused_whatever_the_request_names() -> None:
    async def scenario(site: Asking) -> None:
        site.answer = messages.too_new_api_versions(1)[4:]
        await site.ask(question(5, meant("here", 1)))
        for one in (USUAL_V5, question(5, meant("there", 7))):
            assert site.find(one) == site.answer
        own = messages.api_versions_from(site.answer, 9, 5)
        assert own == messages.too_new_api_versions(9)

    asking(scenario)


@pytest.mark.parametrize("software", [b"", b"-java", b"ja va", b"java\xff", b"j" * 300])
def test_a_software_that_brokers_may_refuse_is_asked_by_itself(software: bytes) -> None:
    async def scenario(site: Asking) -> None:
        await site.ask(question())
        length = bytes([len(software) % 126 + 1]) if len(software) < 126 else b"\xad\x02"
        frame = api_versions(3)[4:].replace(b"\5java", length + software)
        asked = messages.api_versions_question(frame, peek_request(frame, 0, len(frame)), passes_target=True)
        assert bool(asked.named) is (len(software) != 300)
        assert len(asked.frame) < 1_000

    asking(scenario)


@pytest.mark.parametrize(
    "answer", [b"\0\0\0\1", b"\0\0\0\1" + bytes(2) + b"\xff\xff\xff\xff\x0f", bytes(70_000)]
)
def test_an_answer_that_cannot_be_read_is_not_kept(answer: bytes) -> None:
    async def scenario(site: Asking) -> None:
        site.answer = answer
        with pytest.raises(KafkaProtocolError):
            await site.ask(question())
        assert site.find(question()) is None
        assert site.find(MECHANISMS) is None

    asking(scenario)
