"""Byte quotas under load: real clients of one user in sum at their quota, and others beside them who notice nothing.

Ten producers that want a quarter more than their user may have, 2 MB/s: kafka-python, librdkafka, which ignores
throttle_time_ms, and aiokafka, which does not know it; and a consumer with default fetch settings that would handle as
much. What reached the log is read from the brokers, with the times at which they appended it. How the rate is taken,
and why so: tests.support.byte_quotas.Steady. The clock starts when the first window has been used up, since Kafka lets
a client that was silent send ten seconds' worth at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import pytest

from pidgate.load.journal import Outcome, ProducerJournal
from tests.kafka.test_proxy_identity import plain
from tests.support.byte_quotas import FetchOf, Moment, appended, by_second, fill, steady, topic_id_of
from tests.support.clients.load import Load, Login
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tests.support.paced_consumer import PacedConsumer
from tests.support.raw import RawClient
from tests.support.running_producers import check_exactly_once, next_value
from tests.support.swarm import SwarmProducer, started
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.spec import SASL_PLAINTEXT
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]

RATE = 2_000_000
OFFERED = 2_500_000
PRODUCERS = ("confluent-kafka",) * 4 + ("kafka-python",) * 3 + ("aiokafka",) * 3
RECORD_BYTES = 16_000
"""Each is a batch and a request of its own: the default batch size of most clients."""

TENTH_OF_A_FETCH = 104_850
"""Bytes of a batch that is fetched: ten are a bit less than max.partition.fetch.bytes, 1 MiB by default. The beginning
of a batch that does not fit is sent as well, counted, and thrown away by the client.
"""

LOGIN_AND_CONNECT_S = 2.0
"""Ten processes do not begin at the same moment."""


WINDOW_S = 11.0
"""Kafka's eleven samples of a second."""
WARM_UP_S = 8.0 + LOGIN_AND_CONNECT_S
"""The first window is used up: ten samples' worth at a quarter more than the quota."""
OVER_S = 2 * WINDOW_S

LIMITED = {"alice": {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}}
LOGIN = Login(username="alice", password="alice-secret", mechanism="PLAIN")


@dataclass
class Neighbour:
    """bob, who has no quota: how long his small batches and his fetches of a megabyte take."""

    address: str
    topic: str
    history: FetchOf
    produce_ms: list[float] = field(default_factory=list)
    fetch_ms: list[float] = field(default_factory=list)

    def measure(self, batches: int = 60, fetches: int = 15) -> tuple[float, float]:
        """Medians of producing and fetching, ms."""
        produced = asyncio.run(self._produce(batches))
        fetched: list[float] = []
        with RawClient(self.address) as client:
            assert plain(client, "bob", "bob-secret") == 0
            framed = self.history.framed(12)
            for _ in range(fetches):
                began_s = time.monotonic()
                assert len(client.ask(framed)) > 900_000
                fetched.append((time.monotonic() - began_s) * 1000)
        return median(produced), median(fetched)

    async def _produce(self, batches: int) -> list[float]:
        took: list[float] = []
        async with SwarmProducer(self.address, self.topic, user="bob") as producer:
            await producer.begin()
            for _ in range(batches):
                began_s = time.monotonic()
                sent = await producer.send(next_value(producer))
                assert sent.throttle_times_ms == [0]
                took.append((time.monotonic() - began_s) * 1000)
                await asyncio.sleep(0.01)
        return took


@dataclass
class Run:
    """What came out of a load."""

    produced: list[Moment]
    consumed: list[Moment]
    consumed_offsets: list[int]
    acknowledged: int
    alone: tuple[float, float]
    beside: list[tuple[float, float]]
    metrics: Any


def run_load(
    cluster: Cluster,
    topic_name: TopicName,
    *,
    settings: Mapping[str, Any] | None = None,
    offered: float = OFFERED,
    over_s: float = OVER_S,
) -> Run:
    """alice, who would produce and consume `offered` bytes a second (0: as much as she can), and bob beside her."""
    last_s = WARM_UP_S + over_s + 1.0
    brokers = cluster.bootstrap_servers()
    topic = create_topic(brokers, topic_name("limited"), config={"message.timestamp.type": "LogAppendTime"})
    history = create_topic(brokers, topic_name("history"))
    of_bob = create_topic(brokers, topic_name("free"))
    fill(brokers, history, int((last_s + 11) * RATE), batch_bytes=TENTH_OF_A_FETCH)
    quotas = {"mode": "enforce", "users": LIMITED}
    with GatewayProcess(
        cluster.bootstrap_servers(SASL_PLAINTEXT), quotas=quotas, settings=settings
    ) as gateway:
        address = gateway.bootstrap_servers
        fetch = FetchOf(
            topic=history,
            topic_id=topic_id_of(brokers, history),
            client_id="bob",
            partition_max_bytes=1_000_000,
        )
        neighbour = Neighbour(address, of_bob, fetch)
        alone = neighbour.measure()
        beside: list[tuple[float, float]] = []
        with ExitStack() as stack:
            consumer = stack.enter_context(PacedConsumer(address, history, offered))
            producers = [
                stack.enter_context(
                    ClientProcess.produce(
                        client,
                        Load(
                            bootstrap_servers=address,
                            topic=topic,
                            records=1_000_000,
                            number=number,
                            size_bytes=RECORD_BYTES,
                            records_per_s=offered / RECORD_BYTES / len(PRODUCERS),
                            login=LOGIN,
                        ),
                    )
                )
                for number, client in enumerate(PRODUCERS)
            ]
            for producer in producers:
                producer.wait_for_acknowledged(1)
            end_s = time.monotonic() + last_s
            time.sleep(WARM_UP_S)
            while time.monotonic() < end_s - 3:
                beside.append(neighbour.measure())
                time.sleep(1.0)
            time.sleep(max(0.0, end_s - time.monotonic()))
            metrics = gateway.metrics()
            # Killed, not stopped: what a client has taken from its application waits for half a minute's quota.
            for producer in producers:
                producer.kill()
            journals = [producer.journal() for producer in producers]
        verdict = check(journals, read_log(brokers, topic))
        print(verdict.summary())
        raise_if_bad(verdict)
        return Run(
            appended(brokers, topic),
            consumer.moments,
            consumer.offsets,
            sum(journal.count(Outcome.ACKNOWLEDGED) for journal in journals),
            alone,
            beside,
            metrics,
        )


def check_rates(run: Run, within: float = 0.05) -> None:
    produced, consumed = (
        steady(moments, WARM_UP_S, OVER_S, WINDOW_S) for moments in (run.produced, run.consumed)
    )
    print(f"10 producers of one user at 2 MB/s: {produced}\n  MB by second: {by_second(run.produced)}")
    print(f"a consumer at 2 MB/s: {consumed}\n  MB by second: {by_second(run.consumed)}")
    assert abs(produced.of_windows / RATE - 1) <= within
    assert abs(consumed.of_windows / RATE - 1) <= within
    assert run.consumed_offsets == list(range(len(run.consumed_offsets))), (
        "nothing is left out, nothing comes twice"
    )
    for kind in ("produce", "fetch"):
        assert run.metrics.value("pidgate_byte_throttled_total", kind=kind, user="alice") > 0


def check_neighbour(run: Run) -> None:
    produce_ms, fetch_ms = (median(values) for values in zip(*run.beside, strict=True))
    print(
        f"bob, alone and beside: a small batch {run.alone[0]:.1f} and {produce_ms:.1f} ms, "
        f"a fetch of 1 MB {run.alone[1]:.1f} and {fetch_ms:.1f} ms ({len(run.beside)} times)"
    )
    # alice's requests wait for a second and more. Clients and broker share two cores with him: hence the bound.
    assert produce_ms < run.alone[0] + 50
    assert fetch_ms < run.alone[1] + 100
    assert run.metrics.value("pidgate_byte_throttled_total", user="bob") == 0


def test_all_of_a_user_are_held_to_its_rate_and_nobody_else_is(
    sasl_cluster: Cluster, topic_name: TopicName
) -> None:
    run = run_load(sasl_cluster, topic_name)
    check_rates(run, within=0.1)
    check_neighbour(run)


@pytest.mark.faults
def test_ten_producers_and_a_consumer_at_two_megabytes_a_second(
    sasl_cluster: Cluster, topic_name: TopicName
) -> None:
    run = run_load(sasl_cluster, topic_name)
    check_rates(run)
    check_neighbour(run)


@pytest.mark.faults
def test_clients_that_go_as_fast_as_they_can(sasl_cluster: Cluster, topic_name: TopicName) -> None:
    """They use up each window at once and then wait it out, as before Kafka: over whole windows it is the quota."""
    over_s = 66.0
    run = run_load(sasl_cluster, topic_name, offered=0.0, over_s=over_s)
    for name, moments in (("10 producers", run.produced), ("a consumer", run.consumed)):
        found = steady(moments, WARM_UP_S, over_s)
        print(f"{name} as fast as they can: {found}\n  MB by second: {by_second(moments)}")
        assert abs(found.of_windows / RATE - 1) <= 0.12
    check_neighbour(run)


# Together with the quota of producer ids


def test_over_both_quotas_nothing_is_lost(cluster: Cluster, topic_name: TopicName) -> None:
    """Eight producers over the bytes of their user, half of them over its ids as well."""
    topic = create_topic(cluster.bootstrap_servers(), topic_name("both"))
    quotas = {
        "mode": "enforce",
        "producer_ids": {"window": "3s", "max_throttle": "1s"},
        "users": {"ANONYMOUS": {"producer_ids_rate": 3, "producer_byte_rate": 45_000}},
    }

    async def scenario(gateway: GatewayProcess) -> list[Any]:
        producers = await started(gateway.bootstrap_servers, topic, 8)

        async def run(producer: Any) -> list[int]:
            codes: list[int] = []
            for number in range(7):
                value = next_value(producer).ljust(10_000 if number else 1_000, b".")
                codes += (await producer.send(value, within_s=60)).codes
            return codes

        codes = await asyncio.gather(*map(run, producers))
        print(f"refused {sum(code == 19 for of_one in codes for code in of_one)} times")
        assert {code for of_one in codes for code in of_one} <= {0, 19}
        assert any(19 in of_one for of_one in codes)
        for producer in producers:
            producer.close()
        return producers

    with GatewayProcess(cluster.bootstrap_servers(), quotas=quotas) as gateway:
        producers = asyncio.run(scenario(gateway))
        metrics = gateway.metrics()
        throttled = metrics.value("pidgate_byte_throttled_total", user="ANONYMOUS")
        print(f"throttled {throttled:g} times")
        assert throttled > 0
        assert metrics.value("pidgate_requests_refused_total") > 0
    check_exactly_once(cluster.bootstrap_servers(), topic, producers)


@pytest.fixture
def both_journals(cluster: Cluster, topic_name: TopicName) -> Iterator[tuple[str, list[ProducerJournal]]]:
    """Six real clients with five batches in flight each, over both quotas for half a minute."""
    topic = create_topic(cluster.bootstrap_servers(), topic_name("both"), partitions=3)
    quotas: dict[str, Any] = {
        "mode": "enforce",
        "producer_ids": {"window": "15s", "max_throttle": "2s"},
        "users": {"ANONYMOUS": {"producer_ids_rate": 2, "producer_byte_rate": 100_000}},
    }
    # With events on: they look at the same answers.
    events = {"topic": topic_name("events"), "replication_factor": 1}
    with GatewayProcess(cluster.bootstrap_servers(), quotas=quotas, settings={"events": events}) as gateway:
        running = [
            ClientProcess.produce(
                client,
                Load(
                    bootstrap_servers=gateway.bootstrap_servers,
                    topic=topic,
                    records=100,
                    partitions=3,
                    number=number,
                    size_bytes=5_000,
                    records_per_s=20.0,
                ),
            )
            for number, client in enumerate(("confluent-kafka", "kafka-python", "aiokafka") * 2)
        ]
        journals = [producer.wait() for producer in running]
        metrics = gateway.metrics()
        print(
            f"refused {metrics.value('pidgate_requests_refused_total'):g} times, "
            f"throttled {metrics.value('pidgate_byte_throttled_total'):g} times"
        )
        assert metrics.value("pidgate_requests_refused_total") > 0
        assert metrics.value("pidgate_byte_throttled_total", user="ANONYMOUS") > 0
        yield topic, journals


@pytest.mark.faults
def test_over_both_quotas_pipelines_keep_their_order(
    cluster: Cluster, both_journals: tuple[str, list[ProducerJournal]]
) -> None:
    topic, journals = both_journals
    verdict = check(journals, read_log(cluster.bootstrap_servers(), topic), only_ours=True)
    print(verdict.summary())
    raise_if_bad(verdict)
    assert verdict.acknowledged == 600
