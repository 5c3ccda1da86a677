"""Versions that clients are told before their login, while the broker behind an open port is up- and downgraded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pidgate.load.connection import ConnectionLost
from pidgate.load.exchanges import log_in
from pidgate.load.plan import Login
from pidgate.protocol.logins import LoginRefused
from pidgate.protocol.versions import cap_range
from tests.support.faulty_relay import FaultyRelay
from tests.support.raw import RawClient, address_of
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import OLDEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, ClusterSpec

# A second broker starts for it; unit/gateway/proxy/test_before_login.py has the same by day.
pytestmark = [pytest.mark.kafka, pytest.mark.nightly]

METADATA, API_VERSIONS = 3, 18
ALICE = Login("alice", "alice-secret")
KNOWN_FOR_S = 60

Ranges = dict[int, tuple[int, int]]


@pytest.fixture(scope="module")
def old_sasl_cluster() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(version=OLDEST, sasl=True)) as cluster:
        yield cluster


def offer_of(cluster: Cluster) -> Ranges:
    """What the broker offers, cut to what the gateway lets pass."""
    with RawClient(cluster.bootstrap_servers(SASL_PLAINTEXT)) as client:
        ranges: Ranges = client.call(API_VERSIONS, 3)["ranges"]
    cut = {api_key: cap_range(api_key, *edges) for api_key, edges in ranges.items()}
    return {api_key: edges for api_key, edges in cut.items() if edges is not None}


def told_and_in(gateway: GatewayProcess) -> Ranges | None:
    """What a client is told that logs in and is served; None if it is closed, and has to come again."""
    with RawClient(gateway.bootstrap_servers) as client:
        ranges: Ranges = client.call(API_VERSIONS, 3)["ranges"]
        with suppress(ConnectionLost, OSError):
            client.run(log_in(ALICE))
            assert client.call(METADATA, ranges[METADATA][1], {"topics": []})["brokers"]
            return ranges
    return None


def test_a_broker_is_downgraded_and_upgraded_behind_an_open_port(
    sasl_cluster: Cluster, old_sasl_cluster: Cluster
) -> None:
    new, old = offer_of(sasl_cluster), offer_of(old_sasl_cluster)
    assert new != old
    to = {
        cluster: address_of(cluster.bootstrap_servers(SASL_PLAINTEXT))
        for cluster in (sasl_cluster, old_sasl_cluster)
    }
    with FaultyRelay(to[sasl_cluster]) as relay, GatewayProcess(relay.address) as gateway:
        assert told_and_in(gateway) == new
        with RawClient(gateway.bootstrap_servers) as refused, pytest.raises(LoginRefused):
            refused.run(log_in(Login("alice", "wrong")))
        for cluster, offer in ((old_sasl_cluster, old), (sasl_cluster, new)):
            relay.lead_to(to[cluster])
            began_s = time.monotonic()
            tries = 1
            while (told := told_and_in(gateway)) is None:
                tries += 1
                assert time.monotonic() - began_s < KNOWN_FOR_S
            assert told == offer, "a client logged in with the versions of the broker before"
            assert tries == 2, "the first one was told the versions of the broker before"
        closed = gateway.metrics().value("pidgate_connections_closed_total", cause="moved")
        assert closed == 2
