"""`workers: N` before a real broker: one exact state, and what is left of it when a process dies."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.hostile.cost import is_running
from tests.support.swarm import SwarmProducer, started
from tests.support.workers import wait_for_workers
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

RATE = 40
ADMITTED_AT_ONCE = RATE + 1  # a burst of one window, and one more: the strict bucket may end just below 0


def gateway_of_workers(cluster: Cluster, *, workers: int = 2, rate: int = RATE) -> GatewayProcess:
    quotas = {
        "mode": "enforce",
        "default": {"producer_ids_rate": rate},
        "producer_ids": {"window": "10h", "max_throttle": "1s"},
    }
    return GatewayProcess(cluster.bootstrap_servers(), quotas=quotas, settings={"workers": workers})


@pytest.fixture
def topic(cluster: Cluster, topic_name: Callable[[str], str]) -> str:
    name = topic_name("workers")
    create_topic(cluster.bootstrap_servers(), name)
    return name


def process_of(gateway: GatewayProcess, role: str) -> int:
    """The newest process of that role: "state_owner", "worker 1"."""
    started = [event for event in gateway.log_events("process_started") if event["role"] == role]
    return int(started[-1]["pid"])


def until(is_true: Callable[[], object], within_s: float = 20.0) -> None:
    give_up_s = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_under_load_workers_admit_exactly_what_one_process_does(
    cluster: Cluster, topic: str, workers: int
) -> None:
    """A hundred producers at the same moment, over connections that the kernel deals out to the workers."""

    async def scenario(gateway: GatewayProcess) -> int:
        producers = await started(gateway.bootstrap_servers, topic, 100)
        sent = await asyncio.gather(*(producer.send_once(b"x") for producer in producers))
        assert {tuple(one.codes) for one in sent} <= {(0,), (19,)}
        for producer in producers:
            producer.close()
        return sum(one.is_acknowledged for one in sent)

    with gateway_of_workers(cluster, workers=workers) as gateway:
        assert asyncio.run(scenario(gateway)) == ADMITTED_AT_ONCE
        # Told once a second by each worker, also by one that refused nobody.
        until(lambda: gateway.metrics().value("pidgate_requests_total", api="Produce") == 100)
        metrics = gateway.metrics()
        assert metrics.value("pidgate_requests_refused_total") == 100 - ADMITTED_AT_ONCE
        # Metrics are of the gateway, whichever worker counted.
        assert metrics.value("pidgate_connections_total") == 100
        assert metrics.value("pidgate_producer_ids_admitted_total", user="ANONYMOUS") == ADMITTED_AT_ONCE
        assert -1 <= metrics.value("pidgate_producer_ids_tokens", user="ANONYMOUS") < 0
        assert metrics.value("pidgate_quota_failed_open_total") == 0
        assert gateway.stop() == 0


def test_a_killed_worker_is_replaced_and_its_producers_go_on(cluster: Cluster, topic: str) -> None:
    async def scenario(gateway: GatewayProcess) -> list[SwarmProducer]:
        producers = await started(gateway.bootstrap_servers, topic, 20)
        for producer in producers:
            await producer.send(b"%d-1" % producer.producer_id)
        # Told once a second: what is younger dies with its worker.
        until(lambda: gateway.metrics().value("pidgate_producer_ids_admitted_total") == 20)
        killed = process_of(gateway, "worker 1")
        os.kill(killed, signal.SIGKILL)
        for producer in producers:
            sent = await producer.send(b"%d-2" % producer.producer_id)
            # Its beginning was held a moment ago: over another worker the next batch may wait 100 ms, once.
            assert sent.codes in ([0], [19, 0]), "nothing of a known id is refused for longer"
        until(lambda: process_of(gateway, "worker 1") != killed)
        until(lambda: len(gateway.log_events("worker_connected")) == 3)
        for producer in producers:
            producer.close()
        return producers

    with gateway_of_workers(cluster) as gateway:
        wait_for_workers(gateway)
        producers = asyncio.run(scenario(gateway))
        metrics = gateway.metrics()
        assert metrics.value("pidgate_producer_ids_admitted_total") == 20, (
            "what a dead worker counted is kept"
        )
        assert gateway.stop() == 0
    acknowledged = sorted(value for producer in producers for value in producer.acknowledged)
    assert sorted(record.value for record in read_log(cluster.bootstrap_servers(), topic)) == acknowledged


@pytest.mark.parametrize("trouble", [signal.SIGKILL, signal.SIGSTOP])
def test_without_its_state_owner_a_worker_lets_ids_pass(
    cluster: Cluster, topic: str, trouble: signal.Signals
) -> None:
    async def scenario(gateway: GatewayProcess) -> None:
        producers = await started(gateway.bootstrap_servers, topic, 8)
        state_owner = process_of(gateway, "state_owner")
        os.kill(state_owner, trouble)
        waits_s = []
        try:
            for producer in producers:
                sent = await producer.send(b"x")
                assert sent.codes == [0]
                waits_s.append(sent.first_answer_s)
        finally:
            if trouble is signal.SIGSTOP:
                os.kill(state_owner, signal.SIGCONT)
        # One that hangs is known to be gone after a second, and then at the next look.
        assert sorted(waits_s)[len(waits_s) // 2] < 0.5, waits_s
        if trouble is signal.SIGKILL:
            until(lambda: process_of(gateway, "state_owner") != state_owner)
        until(lambda: gateway.status("/readyz") == 200)
        for producer in producers:
            assert (await producer.send(b"y")).codes == [0]
            producer.close()

    with gateway_of_workers(cluster, rate=2) as gateway:
        wait_for_workers(gateway)
        asyncio.run(scenario(gateway))
        if trouble is signal.SIGSTOP:
            until(lambda: gateway.metrics().value("pidgate_quota_failed_open_total") > 0)
        assert gateway.stop() == 0


def test_when_the_supervisor_is_killed_nothing_of_it_stays(cluster: Cluster, topic: str) -> None:
    """A worker that stayed would go on sharing its ports with the gateway that is started next."""
    with gateway_of_workers(cluster) as gateway:
        wait_for_workers(gateway)
        children = [process_of(gateway, role) for role in ("state_owner", "worker 1", "worker 2")]
        gateway.kill()
        until(lambda: not any(is_running(child) for child in children))
        gateway.start()


def test_a_port_that_is_taken_is_told_at_start(cluster: Cluster) -> None:
    with gateway_of_workers(cluster) as first:
        second = gateway_of_workers(cluster)
        second.config["listeners"] = first.config["listeners"]
        second.start(wait=False)
        try:
            until(lambda: second.exit_code is not None)
            assert second.exit_code == 2
            assert "the port is in use" in second.log_text()
        finally:
            second.kill()
