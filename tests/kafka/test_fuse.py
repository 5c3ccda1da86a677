"""The fuse on a real broker: a user above its own quota trips it, and nobody below it is refused."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.fleet import fleet_of
from tests.support.frames import ONE_RECORD, framed, produce_request, record_batch
from tests.support.raw import RawClient, produce_code, request
from tests.support.rules import rule
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

CAPACITY = 300
"""Producer states; the fuse trips at 240, give or take 3 %."""
RATE = 20
ATTACK = 400
OBSERVING = {
    "mode": "observe",
    "default": {"producer_ids_rate": RATE},
    "producer_ids": {"window": "10h", "max_throttle": "1s"},
}
SASL_HANDSHAKE, SASL_AUTHENTICATE, REFUSED = 17, 36, 19


class Attacker(RawClient):
    """bob: a new producer id with each request."""

    def __init__(self, gateway: GatewayProcess, topic: str, first_id: int) -> None:
        super().__init__(f"127.0.0.1:{gateway.first_node_port + 1}")
        self.ask(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, client_id="bob-app"))
        token = b"\0bob\0bob-secret"
        self.ask(request(SASL_AUTHENTICATE, 2, {"auth_bytes": token}, client_id="bob-app"))
        self._topic = topic
        self._next_id = first_id

    def is_refused(self) -> bool:
        self._next_id += 1
        batch = record_batch(self._next_id, 0, 0, records=ONE_RECORD)
        answer = self.ask(framed(produce_request(9, [(self._topic, [(0, batch)])], client_id="bob-app")))
        code = produce_code(answer)
        assert code in (0, REFUSED)
        return code == REFUSED


def produce_by_new_producers(servers: str, topic: str, number: int) -> list[object]:
    """alice: so many real producers, one after the other. Returns what was reported of their records."""
    told: list[object] = []
    for _ in range(number):
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
                "enable.idempotence": True,
            }
        )
        producer.produce(topic, b"x", on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(20) == 0
    return told


def quotas(fuse: int | None) -> dict[str, Any]:
    return OBSERVING if fuse is None else {**OBSERVING, "fuse": fuse}


@pytest.fixture
def topic(sasl_cluster: Cluster, topic_name: Callable[[str], str]) -> str:
    return create_topic(sasl_cluster.bootstrap_servers(), topic_name("fuse"))


def own_client(directory: Path) -> dict[str, Any]:
    password = directory / "password"
    password.write_text("admin-secret")
    password.chmod(0o600)
    return {"own_client": {"mechanism": "PLAIN", "username": "admin", "password_file": str(password)}}


@rule("The fuse enforces users above their own quota alone, and at all gateways.", "fleet")
def test_an_attacker_trips_it_and_nobody_below_its_quota_is_refused(
    sasl_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    servers = sasl_cluster.bootstrap_servers("SASL_PLAINTEXT")
    with ExitStack() as stack:
        fleet = stack.enter_context(
            fleet_of(
                sasl_cluster,
                f"{topic}-events",
                quotas(CAPACITY),
                gateways=2,
                bootstrap_servers=servers,
                settings=own_client(tmp_path),
            )
        )
        first, second = fleet.gateways
        told = produce_by_new_producers(first.bootstrap_servers, topic, 5)
        told += produce_by_new_producers(second.bootstrap_servers, topic, 5)
        attacker = stack.enter_context(Attacker(first, topic, 900_000))
        admitted = 0
        while not attacker.is_refused():
            admitted += 1
            # Its pace leaves the fuse a second to look after the line is crossed.
            time.sleep(0.05 if admitted > CAPACITY / 2 else 0)
            assert admitted < ATTACK, "the fuse has not tripped"
        assert admitted > 0.7 * CAPACITY
        elsewhere = stack.enter_context(Attacker(second, topic, 910_000))
        until(elsewhere.is_refused)
        for gateway in fleet.gateways:
            told += produce_by_new_producers(gateway.bootstrap_servers, topic, 5)
        assert told == [None] * 20
        for gateway in fleet.gateways:
            metrics = gateway.metrics()
            assert metrics.value("pidgate_fuse_enforced_users") == 1
            assert metrics.value("pidgate_producer_ids_refused_total", user="alice") == 0
        shown = explained(second, "bob")
        assert shown["mode"]["set_by"] == "fuse"
        assert "producer states" in shown["mode"]["note"]
        assert (
            abs(first.metrics().value("pidgate_producer_states", node_id="1") - admitted - 20)
            < 0.15 * CAPACITY
        )


def test_without_a_fuse_the_attacker_goes_on(sasl_cluster: Cluster, topic: str) -> None:
    servers = sasl_cluster.bootstrap_servers("SASL_PLAINTEXT")
    with ExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(servers, quotas=quotas(None)))
        # The port of a node opens once somebody has asked for the nodes.
        assert produce_by_new_producers(gateway.bootstrap_servers, topic, 1) == [None]
        attacker = stack.enter_context(Attacker(gateway, topic, 950_000))
        assert not any(attacker.is_refused() for _ in range(ATTACK))
        assert gateway.metrics().value("pidgate_producer_states", node_id="1") > CAPACITY


def explained(gateway: GatewayProcess, user: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{gateway.admin_url}/v1/explain?user={user}", timeout=5) as answer:
        told: dict[str, Any] = json.load(answer)
        return told
