"""The brokers are asked as long as the gateway runs: readiness, the metric and the log follow them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.cluster import probe
from pidgate.gateway.proxy.bounds import Bounds
from tests.support.loopback import HOST, ScriptedBroker, gateway_before, run, until
from tests.support.rules import rule

NOBODY: Final = "127.0.0.1:1"
QUICK: Final = Bounds(broker_check_ms=50)


@rule("A gateway is not ready while no broker answers.", "failures")
def test_readiness_and_the_metric_follow_the_brokers() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as first, ScriptedBroker() as second:
            first.nodes = second.nodes = {1: (HOST, first.port), 2: (HOST, second.port)}
            async with gateway_before(first.address, second.address, bounds=QUICK) as running:

                def up() -> list[float]:
                    return [running.metric("broker_up", node_id=node_id) for node_id in "12"]

                await until(running.gateway.is_ready)
                await until(lambda: up() == [1, 1])
                await first.stop()
                await until(lambda: up() == [0, 1])
                assert running.gateway.is_ready()
                await second.stop()
                await until(lambda: not running.gateway.is_ready())
                assert up() == [0, 0]
                assert f"no broker answers: {HOST}:" in running.gateway.not_ready_reason()
                async with second:
                    await until(running.gateway.is_ready)
                    await until(lambda: up() == [0, 1])

    run(scenario())


def test_a_cluster_that_does_not_answer_is_logged_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "RETRY_S", 0.01)

    async def scenario() -> None:
        with capture_logs() as logged:

            def lines() -> list[Any]:
                return [line for line in logged if line["event"] == "cluster_not_reached"]

            async with gateway_before(NOBODY, bounds=QUICK):
                await until(lambda: len(lines()) >= 4)
            assert [line["attempts"] for line in lines()][:4] == [1, 2, 4, 8]
            assert NOBODY in lines()[0]["cause"]
            assert "cluster.bootstrap_servers" in lines()[0]["remedy"]

    run(scenario())


def test_a_broker_that_was_removed_has_no_metric_and_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "REMOVED_AFTER_S", 0.2)

    async def scenario() -> None:
        async with ScriptedBroker() as first, ScriptedBroker() as second:
            first.nodes = {1: (HOST, first.port), 2: (HOST, second.port)}
            kept = tmp_path / "nodes.json"
            async with gateway_before(first.address, bounds=QUICK, state_dir=str(tmp_path)) as running:
                await until(lambda: running.metric("broker_up", node_id="2"))
                await until(lambda: kept.exists() and f'"{HOST}"' in kept.read_text())
                assert f"{second.port}" in kept.read_text()
                await second.stop()
                del first.nodes[2]
                await until(lambda: 2 not in running.gateway.traffic.counters.broker_up)
                await until(lambda: f"{second.port}" not in kept.read_text())

    run(scenario())


@pytest.mark.parametrize("is_same_cluster", [True, False])
def test_kept_nodes_are_used_before_the_same_cluster_only(tmp_path: Path, is_same_cluster: bool) -> None:
    servers = ["127.0.0.1:1", "127.0.0.1:2"]

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            async with gateway_before(broker.address, servers[0], state_dir=str(tmp_path)) as running:
                await until(running.gateway.is_ready)
            await broker.stop()
            others = (broker.address, servers[0]) if is_same_cluster else (broker.address, servers[1])
            async with gateway_before(*others, state_dir=str(tmp_path)) as running:
                assert running.gateway.traffic.nodes.knows_node(1) is is_same_cluster

    run(scenario())
