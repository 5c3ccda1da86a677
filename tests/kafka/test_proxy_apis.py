"""Every API in every version that a broker offers, asked directly and through the gateway: the answers agree."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from pidgate.protocol.versions import SPOKEN, cap_range
from tests.support.api_bodies import VOLATILE, Scene, bodies
from tests.support.raw import CORRELATION_ID, Closed, RawClient, decoded, request
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

METADATA, API_VERSIONS = 3, 18
NEWEST_API_VERSIONS = 4


@pytest.fixture(scope="module", params=["cluster", "old_cluster"])
def broker(request: pytest.FixtureRequest) -> Cluster:
    """One node, of the newest and of the oldest Kafka."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def gateway(broker: Cluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(broker.bootstrap_servers()) as running:
        yield running


@pytest.fixture(scope="module")
def topic(broker: Cluster) -> str:
    servers = broker.bootstrap_servers()
    for key_type in (0, 1):
        await_coordinator(servers, key_type)
    return create_topic(servers, f"all-apis-{broker.spec.version}")


def await_coordinator(address: str, key_type: int) -> None:
    """The coordinators' topics are made when somebody asks for the first time."""
    with RawClient(address) as client:
        for _ in range(100):
            answer = client.call(10, 3, {"key": "warm-up", "key_type": key_type})
            if answer["error_code"] == 0:
                return
            time.sleep(0.1)
    raise TimeoutError(f"no coordinator of type {key_type}: {answer}")


def offered(address: str) -> dict[int, tuple[int, int]]:
    with RawClient(address) as client:
        ranges = client.call(API_VERSIONS, NEWEST_API_VERSIONS)["ranges"]
    return dict(ranges)


def topic_id(address: str, topic: str) -> UUID:
    with RawClient(address) as client:
        return UUID(client.call(METADATA, 12, {"topics": [{"name": topic}]})["topics"][0]["topic_id"])


def normalized(value: Any, addresses: dict[tuple[str, int], tuple[str, int]]) -> Any:
    """Without what differs from answer to answer, and with the gateway's addresses for the brokers'."""
    if isinstance(value, list):
        return [normalized(element, addresses) for element in value]
    if not isinstance(value, dict):
        return value
    plain = {name: normalized(field, addresses) for name, field in value.items() if name not in VOLATILE}
    if {"host", "port"} <= plain.keys():
        plain["host"], plain["port"] = addresses.get(
            (plain["host"], plain["port"]), (plain["host"], plain["port"])
        )
    if plain.get("name") in ("listeners", "advertised.listeners"):
        plain["value"] = None
    if {"node_id", "listeners"} <= plain.keys():
        plain["listeners"] = []  # controllers'
    return plain


def answer_or_end(address: str, api_key: int, version: int, scene: Scene) -> dict[str, Any] | None:
    """The decoded answer; None when the connection was closed instead."""
    framed = request(api_key, version, bodies(scene)[api_key])
    with RawClient(address) as client:
        try:
            frame = client.ask(framed)
        except Closed:
            return None
    assert int.from_bytes(frame[:4], "big") == CORRELATION_ID
    if api_key == API_VERSIONS:
        return {}  # see the test of the offer
    return decoded(api_key, version, frame)


def test_the_offer_is_the_brokers_cut_to_the_table(broker: Cluster, gateway: GatewayProcess) -> None:
    direct, through = offered(broker.bootstrap_servers()), offered(gateway.bootstrap_servers)
    cut = {api_key: cap_range(api_key, *versions) for api_key, versions in direct.items()}
    assert through == {api_key: versions for api_key, versions in cut.items() if versions}
    assert len(through) > 50
    assert through[0][0] == 0


@pytest.mark.parametrize("api_key", SPOKEN, ids=[f"{key}-{api.name}" for key, api in SPOKEN.items()])
def test_answers_agree(
    broker: Cluster, gateway: GatewayProcess, topic: str, topic_name: Callable[[str], str], api_key: int
) -> None:
    direct, through = broker.bootstrap_servers(), gateway.bootstrap_servers
    versions = offered(through).get(api_key)
    if versions is None:
        assert api_key not in offered(direct)
        return
    node_id, real = next(iter(broker.nodes.items()))
    shown = {real: ("127.0.0.1", gateway.first_node_port + node_id)}
    identity = topic_id(direct, topic)
    low, high = versions
    if api_key == API_VERSIONS:
        high = min(high, NEWEST_API_VERSIONS)  # what is newer: test_meant_node.py
    for version in range(max(low, SPOKEN[api_key].min_version), high + 1):
        for last_try in (False, True):
            expected, got = (
                normalized(
                    answer_or_end(
                        address, api_key, version, Scene(topic, identity, topic_name("group"), node_id)
                    ),
                    shown,
                )
                for address in (direct, through)
            )
            # Once more if they differ: a group's state may change between the two questions.
            if got == expected or last_try:
                break
        assert got == expected, f"version {version}"


@pytest.mark.parametrize("version", [6, 99, 32_767])
def test_a_newer_api_versions_is_answered_in_version_0_with_code_35(
    gateway: GatewayProcess, version: int
) -> None:
    with RawClient(gateway.bootstrap_servers) as client:
        frame = client.ask(
            bytes.fromhex("0000000c0012") + version.to_bytes(2, "big") + b"\0\0\0\x07\0\x01x\0"
        )
        assert frame == bytes.fromhex("00000007 0023 00000001 0012 0000 0005")
        # The connection goes on, as a client needs it to.
        assert client.call(API_VERSIONS, 3)["error_code"] == 0


def test_sasl_handshake_v0_is_refused_and_the_connection_goes_on(gateway: GatewayProcess) -> None:
    with RawClient(gateway.bootstrap_servers) as client:
        frame = client.ask(bytes.fromhex("00000012 0011 0000 00000009 0001 78 0005") + b"PLAIN")
        assert frame == bytes.fromhex("00000009 0023 00000000")
        assert client.call(API_VERSIONS, 3)["error_code"] == 0


def test_a_version_that_was_not_offered_closes_with_one_line(gateway: GatewayProcess) -> None:
    before = len(gateway.log_events("connection_closed"))
    metadata_v99 = bytes.fromhex("0000000e 0003 0063 00000009 0001 78 00000000")
    with RawClient(gateway.bootstrap_servers) as client:
        client.send(metadata_v99)
        assert client.is_closed()
    lines = gateway.log_events("connection_closed")[before:]
    assert len(lines) == 1
    assert lines[0]["cause"] == "protocol"
    assert "99" in lines[0]["reason"]
