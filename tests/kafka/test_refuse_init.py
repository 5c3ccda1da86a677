"""`refuse_init_producer_id` before a real broker: a crash loop stops burning producer ids where they are given out."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from pidgate.gateway.clock import wall_ms
from pidgate.load.connection import connect
from pidgate.load.context import take_id
from pidgate.load.exchanges import produce
from pidgate.load.journal import Outcome, ProducerJournal
from pidgate.load.tally import Tally
from pidgate.protocol.record_batch import record_batch
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.raw import RawClient
from tools.sandbox import guard
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

INIT_PRODUCER_ID: Final = 22
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
PLAIN_INIT: Final = {
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
    "producer_id": -1,
    "producer_epoch": -1,
}


def gateway_before(
    cluster: Cluster,
    rate: int,
    *,
    refuse: bool = True,
    mode: str = "enforce",
    max_throttle: str = "1s",
    is_sasl: bool = False,
) -> GatewayProcess:
    """Tokens that do not come back while the test runs."""
    quotas = {
        "mode": mode,
        "default": {"producer_ids_rate": rate},
        "producer_ids": {
            "window": "10h",
            "max_throttle": max_throttle,
            "refuse_init_producer_id": refuse,
        },
    }
    servers = cluster.bootstrap_servers("SASL_PLAINTEXT") if is_sasl else cluster.bootstrap_servers()
    return GatewayProcess(servers, quotas=quotas)


def next_id(cluster: Cluster) -> int:
    """What the broker gives out next, which is one more than this has cost it."""
    give_up_s = time.monotonic() + 20
    with RawClient(cluster.bootstrap_servers()) as broker:
        while (answer := broker.call(INIT_PRODUCER_ID, 1, PLAIN_INIT))["error_code"]:
            assert time.monotonic() < give_up_s, answer
            time.sleep(0.1)
    return int(answer["producer_id"]) + 1


def until(is_true: Callable[[], object], within_s: float = 20.0) -> None:
    give_up_s = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


# ---- a crash loop of a real client -------------------------------------------------------------------------


class CrashLoop:
    """`tests.support.clients.crash_loop`: librdkafka, one process and one id a life."""

    def __init__(self, gateway: GatewayProcess, topic: str, directory: Path, number: int) -> None:
        self._path = directory / f"crash-{number}.jsonl"
        module = "tests.support.clients.crash_loop"
        options = {
            "--bootstrap-server": gateway.bootstrap_servers,
            "--user": "alice",
            "--password": "alice-secret",
            "--topic": topic,
            "--client-id": f"pod-{number}",
            "--journal": str(self._path),
            "--patience-s": "0.7",
            "--restart-after-s": "0.1",
        }
        arguments = [part for option in options.items() for part in option]
        self._process = guard.spawn(
            [sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def lives(self) -> tuple[int, int]:
        """(started, acknowledged)."""
        if not self._path.exists() or not self._path.read_text().endswith("\n"):
            return 0, 0
        journal = ProducerJournal.load(self._path)
        return len(journal.entries), journal.count(Outcome.ACKNOWLEDGED)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        guard.ended(self._process)


@contextmanager
def crash_loops(gateway: GatewayProcess, topic: str, directory: Path, pods: int) -> Iterator[list[CrashLoop]]:
    loops = [CrashLoop(gateway, topic, directory, number) for number in range(pods)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.stop()


PODS: Final = 2
RATE: Final = 2
LIVES: Final = 10


@pytest.mark.parametrize("refuse", [False, True])
def test_a_crash_loop_stops_burning_ids(
    sasl_cluster: Cluster,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    refuse: bool,
) -> None:
    topic = topic_name("crash-loop")
    create_topic(sasl_cluster.bootstrap_servers(), topic)
    with gateway_before(sasl_cluster, RATE, refuse=refuse, is_sasl=True) as gateway:
        before = next_id(sasl_cluster)
        with crash_loops(gateway, topic, tmp_path, PODS) as loops:
            until(lambda: sum(loop.lives()[0] for loop in loops) >= LIVES, 60)
        burnt = next_id(sasl_cluster) - before - 1
        lives, acknowledged = (sum(column) for column in zip(*(loop.lives() for loop in loops), strict=True))
        until(lambda: gateway.metrics().value("pidgate_producer_ids_tokens", user="alice") < 0)
        until(lambda: gateway.metrics().value("pidgate_requests_total", api="InitProducerId") > 0)
        withheld = gateway.metrics().value("pidgate_producer_ids_init_refused_total", user="alice")
        reason = gateway.metrics().value("pidgate_requests_refused_total", reason="init_producer_id")
        told = f"{lives} lives, {acknowledged} acknowledged: {burnt} ids burnt, {withheld:g} requests refused"
        print(told)
        assert acknowledged <= RATE + 1
        assert reason == withheld
        if refuse:
            # A pod may ask before the other one's id is charged.
            assert RATE + 1 <= burnt <= RATE + 1 + PODS - 1, told
            assert withheld >= lives - burnt - PODS, told
            events = gateway.log_events("init_producer_id_refused")
            assert events
            assert {event["user"] for event in events} == {"alice"}
        else:
            assert burnt >= lives - PODS, told
            assert withheld == 0


# ---- a fast one --------------------------------------------------------------------------------------------


def test_of_all_that_wait_for_one_token_one_gets_an_id(
    cluster: Cluster, topic_name: Callable[[str], str]
) -> None:
    """A token a second, and ten lanes that crash after each batch and wait for their next id otherwise."""
    lanes, seconds = 10, 6.0
    topic = topic_name("init-herd")
    create_topic(cluster.bootstrap_servers(), topic)
    quotas = {
        "mode": "enforce",
        "default": {"producer_ids_rate": 10},
        "producer_ids": {"window": "10s", "burst": 0.1, "refuse_init_producer_id": True},
    }

    async def herd(gateway: GatewayProcess) -> tuple[int, int]:
        until_s = time.monotonic() + seconds
        given = acknowledged = 0
        host, _, port = gateway.bootstrap_servers.rpartition(":")

        async def lane(number: int) -> None:
            nonlocal given, acknowledged
            while time.monotonic() < until_s:
                connection = await connect((host, int(port)), client_id=f"lane-{number}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.1, until_s - time.monotonic())):
                        producer_id, epoch = await take_id(connection, Tally())
                        given += 1
                        batch = record_batch([b"x"], producer_id, epoch, 0, wall_ms())
                        answer = await connection.run(produce(topic, [(0, batch)]))
                        acknowledged += answer.error_code == 0
                connection.close()

        await asyncio.gather(*(lane(number) for number in range(lanes)))
        return given, acknowledged

    with GatewayProcess(cluster.bootstrap_servers(), quotas=quotas) as gateway:
        given, acknowledged = asyncio.run(herd(gateway))
        print(f"{acknowledged} acknowledged of {given} ids that were given to {lanes} lanes in {seconds:g} s")
        assert seconds - 1 <= acknowledged <= seconds + 2
        assert given <= acknowledged + 2


# ---- who is refused, and how -------------------------------------------------------------------------------


def test_every_version_is_refused_and_the_channel_is_mute(cluster: Cluster) -> None:
    with gateway_before(cluster, 0, max_throttle="400ms") as gateway:
        before = next_id(cluster)
        with RawClient(gateway.bootstrap_servers) as client:
            client.call(18, 3)
            began_s = time.monotonic()
            for version in range(6):
                answer = client.call(INIT_PRODUCER_ID, version, PLAIN_INIT)
                assert answer == {
                    "throttle_time_ms": 400,
                    "error_code": COORDINATOR_LOAD_IN_PROGRESS,
                    "producer_id": -1,
                    "producer_epoch": -1,
                }
            assert 5 * 0.4 <= time.monotonic() - began_s < 5 * 0.4 + 1.5
        assert next_id(cluster) - before == 1


def test_a_transactional_producer_starts_while_others_are_refused(
    cluster: Cluster, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("init-transactional")
    create_topic(cluster.bootstrap_servers(), topic)
    with gateway_before(cluster, 0) as gateway, RawClient(gateway.bootstrap_servers) as other:
        load = Load(bootstrap_servers=gateway.bootstrap_servers, topic=topic, records=20, transaction_size=10)
        with ClientProcess.produce("confluent-kafka", load) as client:
            assert client.wait().count(Outcome.ACKNOWLEDGED) == 20
        refused = other.call(INIT_PRODUCER_ID, 4, PLAIN_INIT)
        assert refused["error_code"] == COORDINATOR_LOAD_IN_PROGRESS


def test_observed_it_is_counted_and_let_pass(cluster: Cluster) -> None:
    with (
        gateway_before(cluster, 0, mode="observe") as gateway,
        RawClient(gateway.bootstrap_servers) as client,
    ):
        for _ in range(3):
            answer = client.call(INIT_PRODUCER_ID, 4, PLAIN_INIT)
            assert answer["error_code"] == 0
            assert answer["producer_id"] >= 0
        metrics = gateway.metrics()
        assert metrics.value("pidgate_producer_ids_init_would_refuse_total", user="ANONYMOUS") == 3
        assert metrics.value("pidgate_producer_ids_init_refused_total") == 0
