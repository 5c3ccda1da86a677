"""Cold start: producers that run already are switched over to a gateway that enforces and remembers nothing.

Hundreds here; thousands in tests/faults/test_restart_faults.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.filled_topic import fill
from tests.support.rules import rule
from tests.support.running_producers import (
    admitted,
    check_exactly_once,
    close_all,
    codes_of,
    move_all,
    running_producers,
    send_all,
    send_all_once,
    tokens,
)
from tests.support.swarm import SwarmProducer, started
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

PRODUCERS = 300
RATE = 100


@pytest.fixture
def topic(cluster: Cluster, topic_name: Callable[[str], str]) -> str:
    name = topic_name("cold-start")
    create_topic(cluster.bootstrap_servers(), name)
    return name


@pytest.fixture
def events(topic_name: Callable[[str], str]) -> dict[str, Any]:
    """A topic of its own: what other tests wrote would be remembered."""
    return {"topic": topic_name("__cold-start-events"), "replication_factor": 1}


def enforcing(
    cluster: Cluster,
    *,
    rate: int = RATE,
    producer_ids: Mapping[str, Any] | None = None,
    **settings: object,
) -> GatewayProcess:
    quotas = {
        "mode": "enforce",
        "default": {"producer_ids_rate": rate},
        "producer_ids": {"grace": "1h", "max_throttle": "1s", **(producer_ids or {})},
    }
    return GatewayProcess(cluster.bootstrap_servers(), quotas=quotas, settings=settings)


def graces(gateway: GatewayProcess) -> list[dict[str, Any]]:
    return gateway.log_events("grace_began")


@rule("Running producers are admitted uncharged and remembered during grace.", "cost")
def test_running_producers_are_switched_over_without_a_refusal(
    cluster: Cluster, topic: str, events: dict[str, Any]
) -> None:
    """Three times as many as the quota lets in; the default grace of one window."""

    async def scenario(gateway: GatewayProcess) -> list[SwarmProducer]:
        producers = await running_producers(cluster.bootstrap_servers(), topic, PRODUCERS)
        gateway.start()
        move_all(producers, gateway.bootstrap_servers)
        assert codes_of(await send_all(producers)) == {(0,): PRODUCERS}
        assert codes_of(await send_all(producers)) == {(0,): PRODUCERS}
        close_all(producers)
        return producers

    gateway = enforcing(cluster, events=events)
    try:
        producers = asyncio.run(scenario(gateway))
        assert admitted(gateway, "grace") == PRODUCERS
        assert tokens(gateway) == RATE, "nothing was charged"
        assert len(graces(gateway)) == 1
        assert 3_500 < gateway.metrics().value("pidgate_grace_left_seconds") <= 3_600
        assert gateway.metrics().value("pidgate_requests_refused_total") == 0
        assert gateway.metrics().value("pidgate_requests_kept_in_order_total") == 0
        check_exactly_once(cluster.bootstrap_servers(), topic, producers)
    finally:
        gateway.kill()


def test_producers_that_come_while_a_fresh_gateway_still_reads_its_topic(
    cluster: Cluster, topic: str, events: dict[str, Any]
) -> None:
    """What was let through in the first moments is neither charged later nor taken for a remembered past."""

    async def scenario(gateway: GatewayProcess) -> list[SwarmProducer]:
        producers = await running_producers(cluster.bootstrap_servers(), topic, PRODUCERS)
        move_all(producers, gateway.bootstrap_servers)
        gateway.start(wait=False)
        for _ in range(3):
            assert codes_of(await send_all(producers)) == {(0,): PRODUCERS}
        close_all(producers)
        return producers

    # So long that the first producers are there before it has been read: none of it is of a state that was kept.
    fill(cluster.bootstrap_servers(), events["topic"], 50_000, partitions=12, user="etl", reason="observe")
    gateway = enforcing(cluster, events=events)
    try:
        producers = asyncio.run(scenario(gateway))
        gateway.wait_until_ready()
        (restored,) = gateway.log_events("state_restored")
        assert restored["restored_from"] == "nothing"
        assert len(graces(gateway)) == 1
        early, later = admitted(gateway, "restoring"), admitted(gateway, "grace")
        assert early > 0, "some came before the state was there"
        # One that comes in the very moment of the taking over is told of twice.
        assert PRODUCERS <= early + later < PRODUCERS + 20
        assert tokens(gateway) == RATE
        check_exactly_once(cluster.bootstrap_servers(), topic, producers)
    finally:
        gateway.kill()


def test_without_a_grace_they_are_refused(cluster: Cluster, topic: str) -> None:
    """What the tests above would see if there were no grace."""

    async def scenario(gateway: GatewayProcess) -> None:
        producers = await running_producers(cluster.bootstrap_servers(), topic, PRODUCERS)
        move_all(producers, gateway.bootstrap_servers)
        assert await send_all_once(producers) == {19: PRODUCERS}, "above sequence 0: refused once"
        close_all(producers)

    with enforcing(cluster, producer_ids={"grace": "0s"}) as gateway:
        asyncio.run(scenario(gateway))
        assert graces(gateway) == []


def test_after_the_grace_they_go_on_and_a_rogue_is_held(
    cluster: Cluster, topic: str, events: dict[str, Any]
) -> None:
    async def scenario(gateway: GatewayProcess) -> list[SwarmProducer]:
        producers = await running_producers(cluster.bootstrap_servers(), topic, PRODUCERS)
        gateway.start()
        began_s = time.monotonic()
        move_all(producers, gateway.bootstrap_servers)
        assert codes_of(await send_all(producers)) == {(0,): PRODUCERS}
        await asyncio.sleep(max(0.0, 3.2 - (time.monotonic() - began_s)))
        assert gateway.metrics().value("pidgate_grace_left_seconds") == 0
        rogue = await started(gateway.bootstrap_servers, topic, RATE + 30, client_id="rogue")
        assert await send_all_once(rogue) == {0: RATE + 1, 19: 29}
        assert codes_of(await send_all(producers)) == {(0,): PRODUCERS}
        close_all([*rogue, *producers])
        return [*producers, *rogue]

    gateway = enforcing(cluster, producer_ids={"grace": "3s", "window": "10h"}, events=events)
    try:
        everybody = asyncio.run(scenario(gateway))
        assert admitted(gateway, "grace") == PRODUCERS
        assert admitted(gateway, "first_seen") == RATE + 1
        check_exactly_once(cluster.bootstrap_servers(), topic, everybody)
    finally:
        gateway.kill()
