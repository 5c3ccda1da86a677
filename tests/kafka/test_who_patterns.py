"""`pidgate who` beside what the brokers say: real clients play each pattern, DescribeProducers counts their ids."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, ClusterSpec
from tools.sandbox.topics import create_topic
from tools.sandbox.wire import ProducerStates

pytestmark = pytest.mark.kafka

PIDGATE = Path(sys.executable).with_name("pidgate")
USERS = ("admin", "batch", "leak", "another", "gone", "flink", "first", "second")
REFUSED = ("another", "gone")
"""Users with a quota of one id an hour, which is in force."""


class Play:
    """Clients of one gateway. Each user writes to a topic of its own name."""

    def __init__(self, cluster: Cluster, gateway: GatewayProcess) -> None:
        self._states = ProducerStates(cluster.nodes[1], timeout_s=20.0)
        self._gateway = gateway
        self._kept: list[Producer] = []

    def producer(self, user: str, **settings: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._gateway.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user,
                "sasl.password": f"{user}-secret",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def send(self, producer: Producer, topic: str) -> None:
        producer.produce(topic, b"x", partition=0)
        producer.flush(20)

    def a_producer_per_batch(self, user: str, batches: int) -> None:
        for _ in range(batches):
            self.send(self.producer(user), user)

    def producers_that_are_kept(self, user: str, count: int) -> None:
        for _ in range(count):
            self._kept.append(self.producer(user))
            self.send(self._kept[-1], user)
            time.sleep(0.2)

    def refused_and_replaced(self, user: str, count: int) -> None:
        """An application that opens another producer when a send has failed."""
        for _ in range(count):
            self.send(self.producer(user, message_timeout_ms=1_200), user)

    def a_pool_of_transactional_producers(self, user: str, count: int) -> None:
        for number in range(count):
            producer = self.producer(user, transactional_id=f"{user}-{number}")
            producer.init_transactions(30)
            if number == 0:
                self.commit(producer, user)
            self._kept.append(producer)

    def one_transactional_id_of_two_users(self, *users: str) -> None:
        for user in users:
            producer = self.producer(user, transactional_id="theirs")
            producer.init_transactions(30)
            self.commit(producer, user)

    def commit(self, producer: Producer, topic: str) -> None:
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=0)
        producer.commit_transaction(30)

    def close(self) -> None:
        self._states.close()
        self._kept.clear()

    def ids_at_broker(self, topic: str) -> int:
        return len(self._states.ids(topic, [0])[0])

    def who(self) -> dict[str, Any]:
        assert self._gateway.directory is not None
        file = self._gateway.directory / "pidgate.yaml"
        command: list[str | Path] = [PIDGATE, "who", "--config", file, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    password = tmp_path / "secret"
    password.write_text("admin-secret")
    login = {"mechanism": "PLAIN", "username": "admin", "password_file": str(password)}
    quotas = {
        "mode": "observe",
        "users": {user: {"producer_ids_rate": 1, "mode": "enforce"} for user in REFUSED},
        "producer_ids": {"grace": "0s", "max_throttle": "1s"},
    }
    spec = ClusterSpec(sasl=True, users={user: f"{user}-secret" for user in USERS})
    with Cluster(spec) as cluster:
        for user in USERS:
            create_topic(cluster.bootstrap_servers(), user)
        settings = {"events": {"topic": "who-patterns", "replication_factor": 1}, "own_client": login}
        with GatewayProcess(
            cluster.bootstrap_servers(SASL_PLAINTEXT), quotas=quotas, settings=settings, ready_within_s=90
        ) as gateway:
            play = Play(cluster, gateway)
            yield play
            play.close()


@pytest.mark.timeout(400)
def test_each_pattern_is_told_as_it_was_played(play: Play) -> None:
    for user in REFUSED:
        play.a_producer_per_batch(user, 2)  # what its quota admits
    play.refused_and_replaced("gone", 6)
    play.refused_and_replaced("another", 12)
    play.a_producer_per_batch("batch", 12)
    play.a_pool_of_transactional_producers("flink", 12)
    play.one_transactional_id_of_two_users("first", "second")
    play.producers_that_are_kept("leak", 12)
    found = play.who()
    users = {user["user"]: user for user in found["users"]}
    kinds = {name: [finding["kind"] for finding in user["findings"]] for name, user in users.items()}

    for name in ("gone", "another", "batch", "flink", "leak"):
        admitted = users[name]["new_ids"] - users[name]["never_admitted_ids"]
        assert play.ids_at_broker(name) == admitted, name
    assert kinds["batch"] == ["producer_per_batch"]
    assert kinds["leak"] == ["unclosed"]
    assert users["leak"]["open_connections"] >= 12
    assert "new_id_after_refusal" in kinds["another"]
    assert "producer_per_batch" not in kinds["another"]
    assert (users["gone"]["refused_ids"], users["gone"]["never_admitted_ids"]) == (6, 6)
    assert (users["flink"]["unused_ids"], users["flink"]["allocated_ids"]) == (0, 12)
    assert "transactional" in kinds["flink"]
    assert [shared["users"] for shared in found["shared_ids"]] == [["first", "second"]]
    give_up_s = time.monotonic() + 60
    while (gave_up := play.who()["users"]) and time.monotonic() < give_up_s:
        (gone,) = (user for user in gave_up if user["user"] == "gone")
        if gone["gave_up"] == 6:
            break
        time.sleep(2)
    assert gone["gave_up"] == 6
