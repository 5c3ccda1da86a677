"""A bad network under mixed load, between clients and gateway and between gateway and brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.support.fault_load import QUOTAS, FaultLoad
from tests.support.faulty_relay import FaultyRelay
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.ports import free_port
from tools.sandbox.spec import PROXIED, ClusterSpec

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    """Its listener PROXIED is advertised at the relay's port."""
    with Cluster(ClusterSpec(proxied_port=free_port())) as cluster:
        yield cluster


def cut(relay: FaultyRelay) -> None:
    relay.cut()
    time.sleep(4)
    relay.heal()


def reset(relay: FaultyRelay) -> None:
    for _ in range(5):
        relay.reset()
        time.sleep(0.7)


def slow(relay: FaultyRelay) -> None:
    relay.slow(20_000)
    time.sleep(8)
    relay.heal()


def half_open(relay: FaultyRelay) -> None:
    """Both sides believe in their connections, and nothing passes."""
    relay.hang()
    time.sleep(8)
    relay.heal()


faults = pytest.mark.parametrize(
    "fault", [cut, reset, slow, half_open], ids=["cut", "reset", "slow", "half-open"]
)


@faults
def test_between_gateway_and_broker(broker: Cluster, fault: Callable[[FaultyRelay], None]) -> None:
    name = f"behind-{fault.__name__.replace('_', '-')}-{next(_numbers)}"
    relay = FaultyRelay(broker.addresses(PROXIED)[1], broker.spec.proxied_port)
    with relay, GatewayProcess(relay.address, quotas=QUOTAS) as gateway:
        with FaultLoad(broker.bootstrap_servers(), gateway.bootstrap_servers, name) as load:
            fault(relay)
            load.check(gateway)
        # Nothing is left of connections that ended under it.
        until(lambda: gateway.metrics().value("pidgate_connections") == 0)
        until(lambda: gateway.metrics().value("pidgate_buffered_bytes") == 0)


@faults
def test_between_clients_and_gateway(broker: Cluster, fault: Callable[[FaultyRelay], None]) -> None:
    name = f"before-{fault.__name__.replace('_', '-')}-{next(_numbers)}"
    gateway = GatewayProcess(broker.bootstrap_servers(), quotas=QUOTAS)
    with FaultyRelay(("127.0.0.1", gateway.port)) as relay:
        gateway.config["listeners"][0] |= {"advertise": relay.address, "only_node": 1, "node_ports": None}
        with gateway:
            with FaultLoad(broker.bootstrap_servers(), relay.address, name) as load:
                fault(relay)
                load.check(gateway)
            until(lambda: gateway.metrics().value("pidgate_connections") == 0)
            until(lambda: gateway.metrics().value("pidgate_buffered_bytes") == 0)
