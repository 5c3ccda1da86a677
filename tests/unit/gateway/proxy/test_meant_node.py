"""Cluster and node that a connection is meant for (ApiVersions v5, KIP-1242) reach only the broker that is it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pidgate.gateway.proxy.apis.api import FORWARD, TAKEN
from pidgate.protocol import messages
from pidgate.protocol.frames import framed
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.versions import SPOKEN
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Quotas
from tests.support import raw
from tests.support.loopback import HOST, Peer, RunningGateway, ScriptedBroker, gateway_before, run, until
from tests.support.meant_node import api_versions, meant
from tests.support.talk import Talk
from tests.support.tls_listener import client_tls
from tools.sandbox.certificates import Authority

TAGGED = b"\x01\x07\x02hi"
"""A tagged field of a version to come."""


def talk(*, is_known: bool) -> Talk:
    client = Client("alice", "", "10.0.0.1", 1)
    return Talk(Admission(Quotas(), lambda: 1, 0), client, node_is_known=lambda: is_known)


@pytest.mark.parametrize("cluster", ["Zm9vYmFy", None])
@pytest.mark.parametrize("tags", [b"\x00", TAGGED])
def test_they_are_cut_out_where_another_broker_may_stand_in(cluster: str | None, tags: bytes) -> None:
    conversation = talk(is_known=False)
    frame = api_versions(5, meant(cluster, 3), tags)
    assert conversation.request(frame, 4, len(frame), 0) is TAKEN
    assert conversation.to_broker == [api_versions(5, meant(None, -1), tags)]


def test_they_pass_to_the_node_whose_address_is_known() -> None:
    frame = api_versions(5, meant("Zm9vYmFy", 3))
    assert talk(is_known=True).request(frame, 4, len(frame), 0) is FORWARD


@pytest.mark.parametrize("version", [3, 4])
def test_earlier_versions_pass_as_they_are(version: int) -> None:
    frame = api_versions(version)
    assert talk(is_known=False).request(frame, 4, len(frame), 0) is FORWARD


def test_the_software_is_read_all_the_same() -> None:
    frame = api_versions(5, meant("Zm9vYmFy", 3))
    assert messages.client_software(frame, peek_request(frame, 4, len(frame))) == ("java", "4.4")


@pytest.mark.parametrize(("host", "is_whole"), [("b1.kafka.example", True), ("kafka.example", False)])
def test_with_sni_they_pass_to_the_node_that_the_client_asks_for_by_name(
    tmp_path: Path, host: str, is_whole: bool
) -> None:
    """Until its handshake a connection belongs to the bootstrap."""
    authority = Authority(tmp_path)
    pair = authority.issue("gateway", names=("DNS:*.kafka.example", "DNS:kafka.example"))
    listener = {
        "sni": "b{node_id}.kafka.example",
        "tls": {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)},
    }
    trusting = client_tls(authority)

    async def versions(head: RequestHead, _peer: Peer) -> bytes:
        if head.api_version == 5:  # newer than the library's
            return framed(head.correlation_id.to_bytes(4, "big"), b"\0\0", b"\x01", bytes(4), b"\0")
        keys = [
            {"api_key": key, "min_version": api.min_version, "max_version": api.max_version}
            for key, api in SPOKEN.items()
        ]
        return raw.response(
            head.api_key, head.api_version, {"api_keys": keys}, correlation_id=head.correlation_id
        )

    async def scenario() -> None:
        async with (
            ScriptedBroker({messages.API_VERSIONS: versions}) as broker,
            gateway_before(broker.address, listener=listener) as gateway,
        ):
            await until(gateway.gateway.is_ready)
            client = await gateway.connect(tls=trusting, name=host)
            client.send(api_versions(5, meant("Zm9vYmFy", 1)))
            await client.frame()
            (peer,) = broker.peers
            passed = api_versions(5, meant("Zm9vYmFy", 1) if is_whole else meant(None, -1))
            assert peer.frames == [passed[4:]]

    run(scenario())


@asynccontextmanager
async def second_node_gone() -> AsyncIterator[tuple[RunningGateway, ScriptedBroker]]:
    """A gateway that knows two nodes, the first of which is left."""

    async def versions(head: RequestHead, _peer: Peer) -> bytes:
        return framed(head.correlation_id.to_bytes(4, "big"), b"\0\0", b"\x01", bytes(4), b"\0")

    async with ScriptedBroker() as second, ScriptedBroker({messages.API_VERSIONS: versions}) as first:
        first.nodes = {1: (HOST, first.port), 2: (HOST, second.port)}
        async with gateway_before(first.address) as gateway:
            await until(gateway.gateway.is_ready)
            await second.stop()
            yield gateway, first


def test_who_named_its_node_is_closed_and_not_sent_to_another_when_the_node_is_gone() -> None:
    """A stand-in answers a NodeId that is not its own with REBOOTSTRAP_REQUIRED."""

    async def scenario() -> None:
        async with second_node_gone() as (gateway, first):
            before = len(first.peers)
            told = await gateway.connect(gateway.first_node_port + 2)
            told.send(api_versions(5, meant(None, 2)))
            assert await told.end() == b""
            assert len(first.peers) == before, "the stand-in has a NodeId that is not its own"
            again = await gateway.connect(gateway.first_node_port + 2)
            again.send(api_versions(5, meant(None, 2)))
            assert await again.frame()
            assert first.peers[-1].frames == [api_versions(5, meant(None, -1))[4:]]

    run(scenario())


def test_who_named_no_node_is_served_by_another_at_once_when_the_node_is_gone() -> None:
    """A client does not know yet which node its first connection reaches, and its NodeId is -1."""

    async def scenario() -> None:
        async with second_node_gone() as (gateway, first):
            client = await gateway.connect(gateway.first_node_port + 2)
            client.send(api_versions(5, meant(None, -1)))
            assert await client.frame()
            assert first.peers[-1].frames == [api_versions(5, meant(None, -1))[4:]]

    run(scenario())
