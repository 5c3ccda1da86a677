"""Processes of the gateway that are killed or told to end under mixed load, and a drain as an orchestrator sees it."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from tests.faults.test_proxy_faults import produce
from tests.support.fault_load import QUOTAS, FaultLoad
from tests.support.raw import RawClient, produce_code
from tests.support.running_producers import until
from tests.support.tls_listener import add_tls_listener
from tools.sandbox.certificates import Authority
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def gateway_of(broker: Cluster, name: str) -> GatewayProcess:
    events = {"topic": f"__{name}", "replication_factor": 1}
    settings = {"events": events, "drain_timeout": "10s"}
    return GatewayProcess(broker.bootstrap_servers(), quotas=QUOTAS, settings=settings, ready_within_s=60)


def killed(gateway: GatewayProcess) -> None:
    gateway.kill()
    gateway.start()


def stopped(gateway: GatewayProcess) -> None:
    assert gateway.stop() == 0
    gateway.start()


@pytest.mark.parametrize(
    "fault",
    [pytest.param(killed, id="gateway killed"), pytest.param(stopped, id="gateway stopped")],
)
def test_every_application_gets_through(
    broker: Cluster, authority: Authority, fault: Callable[[GatewayProcess], None]
) -> None:
    name = f"{fault.__name__.replace('_', '-')}-{next(_numbers)}"
    gateway = gateway_of(broker, name)
    tls = (add_tls_listener(gateway, authority), str(authority.ca_file))
    with gateway:
        with FaultLoad(broker.bootstrap_servers(), gateway.bootstrap_servers, name, tls=tls) as load:
            fault(gateway)
            # Metrics begin anew with a process: what was refused before it is in the log.
            load.check()
        assert gateway.log_events("producer_id_refused") != []
        assert gateway.log_events("unexpected_error") == []
        assert gateway.stop() == 0


# ---- a drain -----------------------------------------------------------------------------------------


@contextmanager
def waiting_client(broker: Cluster, gateway: GatewayProcess, topic: str) -> Iterator[RawClient]:
    """Yield a client with a Produce in flight at a broker that stands still until the block ends, or goes on."""
    create_topic(broker.bootstrap_servers(), topic)
    with RawClient(gateway.bootstrap_servers) as client:
        until(lambda: produce_code(client.ask(produce(topic, 10))) == 0)
        broker.node(1).signal(signal.SIGSTOP)
        try:
            client.send(produce(topic, 11))
            time.sleep(0.3)
            yield client
        finally:
            broker.node(1).signal(signal.SIGCONT)


def accepts(gateway: GatewayProcess) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=2):
            return True
    except OSError:
        return False


def test_a_drain_is_not_ready_accepts_nobody_answers_what_is_in_flight_and_ends_with_0(
    broker: Cluster,
) -> None:
    name = "drained"
    with gateway_of(broker, name) as gateway:
        with waiting_client(broker, gateway, name) as client:
            assert gateway.status("/readyz") == 200
            began_s = time.monotonic()
            gateway.signal(signal.SIGTERM)
            until(lambda: gateway.status("/readyz") == 503, 3)
            until(lambda: not accepts(gateway), 2)
            assert gateway.status("/livez") == 200, "it lives: nobody should kill it"
            broker.node(1).signal(signal.SIGCONT)
            assert produce_code(client.frame()) == 0
            assert client.is_closed()
            assert gateway.wait(10) == 0
            assert time.monotonic() - began_s < 10
        assert gateway.log_events("unexpected_error") == []


def test_a_second_signal_ends_it_at_once(broker: Cluster) -> None:
    name = "hurried"
    with (
        gateway_of(broker, name) as gateway,
        waiting_client(broker, gateway, name) as client,
    ):
        gateway.signal(signal.SIGTERM)
        time.sleep(0.5)
        assert gateway.is_alive, "it waits for the answer"
        began_s = time.monotonic()
        gateway.signal(signal.SIGTERM)
        assert gateway.wait(5) not in (None, 0), "what was cut short is no success"
        assert time.monotonic() - began_s < 3
        assert client.is_closed()
