"""The sandbox itself: versions, node ids, listeners, breaking nodes, and nothing left behind."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient

from pidgate.load.journal import ProducerJournal, record_value
from tests.support.clusters import Choice, Kind
from tests.support.log_checks import raise_if_bad
from tools.sandbox.errors import ClusterNotReady, ToolFailed
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]


async def _produce(
    bootstrap_servers: str, journal: ProducerJournal, numbers: range, **settings: object
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True, **settings)
    await producer.start()
    try:
        for n in numbers:
            journal.sent(0, n)
            value = record_value(journal.producer, 0, n)
            metadata = await producer.send_and_wait(journal.topic, value, partition=0)
            journal.acknowledged(0, n, metadata.offset)
    finally:
        await producer.stop()


def _produce_and_check(bootstrap_servers: str, topic: str, direct: str, **settings: object) -> None:
    journal = ProducerJournal("one", topic)
    asyncio.run(_produce(bootstrap_servers, journal, range(10), **settings))
    verdict = check([journal], read_log(direct, topic), only_ours=True)
    raise_if_bad(verdict)
    assert verdict.acknowledged == verdict.in_log == 10


def test_any_cluster_is_the_one_that_was_chosen(
    any_cluster: str, cluster_choice: Choice, topic_name: TopicName
) -> None:
    if cluster_choice.kind is Kind.GIVEN:
        assert any_cluster == cluster_choice.bootstrap_servers
    # A given cluster may hold this topic from an earlier run.
    topic = f"{topic_name('any')}-{os.getpid()}-{time.monotonic_ns()}"
    _produce_and_check(any_cluster, create_topic(any_cluster, topic), any_cluster)


def test_a_broker_that_cannot_start_shows_its_log_and_keeps_it(capfd: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(ClusterSpec(properties={"num.io.threads": "none"}))
    with pytest.raises((ClusterNotReady, ToolFailed), match=r"num\.io\.threads"):
        cluster.start()
    assert f"the logs of Kafka {cluster.spec.version} are in {cluster.directory}" in capfd.readouterr().err
    assert (cluster.directory / "node-1" / "server.properties").exists()
    assert not (cluster.directory / "node-1" / "data").exists()
    shutil.rmtree(cluster.directory)


class TestNothingIsLeftBehind:
    """With a real parent process that ends in each of the ways in which it can."""

    def _start(self) -> tuple[subprocess.Popen[str], Path, str]:
        parent = subprocess.Popen(
            [sys.executable, "-m", "tools.sandbox"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert parent.stdout is not None
        servers = parent.stdout.readline().split()[1]
        directory = Path(parent.stdout.readline().split()[1])
        return parent, directory, servers

    def _assert_gone(self, directory: Path) -> None:
        give_up_s = time.monotonic() + 15
        while (directory.exists() or _mentioned_by_processes(directory)) and time.monotonic() < give_up_s:
            time.sleep(0.05)
        assert not directory.exists()
        assert not _mentioned_by_processes(directory)

    def test_when_the_parent_is_killed(self) -> None:
        parent, directory, servers = self._start()
        with parent:
            assert directory.exists()
            assert _mentioned_by_processes(directory)
            assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).brokers
            os.killpg(parent.pid, signal.SIGKILL)
            code = parent.wait(timeout=30)
        assert code == -signal.SIGKILL
        self._assert_gone(directory)


def _mentioned_by_processes(directory: Path) -> list[int]:
    """Ids of processes with the directory on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in command:
                found.append(int(entry.name))
    return found
