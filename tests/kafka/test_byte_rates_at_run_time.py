"""Byte rates by Kafka's own kafka-configs through a gateway: kept there, gone from the brokers, and in force."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidgate.quota.entities import ANONYMOUS
from tests.kafka.test_client_quotas_api import BYTES, direct, of_user
from tests.support.client_quotas import alter, outcomes_in
from tests.support.command_line import typed
from tests.support.raw import RawClient
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka


def test_kafka_configs_sets_and_removes_a_rate_that_the_gateway_keeps(
    cluster: Cluster, topic_name: Callable[[str], str]
) -> None:
    def configs(server: str, *words: str) -> str:
        common = ("--bootstrap-server", server, "--entity-type", "users", "--entity-name", ANONYMOUS)
        found: str = cluster.tools.run("kafka.admin.ConfigCommand", *common, *words).stdout
        return found

    with (
        GatewayProcess(cluster.bootstrap_servers(), quotas={"mode": "enforce"}) as gateway,
        direct(cluster) as past,
        RawClient(gateway.bootstrap_servers) as through,
    ):
        outcomes_in(past.ask(alter([({"user": ANONYMOUS}, {BYTES: 9_000_000.0})])))
        until(lambda: of_user(past, ANONYMOUS) == {BYTES: 9_000_000.0}, what="the broker lags")
        configs(gateway.bootstrap_servers, "--alter", "--add-config", f"{BYTES}=50000")
        until(lambda: of_user(past, ANONYMOUS) == {}, what="one keeper")
        assert of_user(through, ANONYMOUS) == {BYTES: 50_000.0}
        admin = f"127.0.0.1:{gateway.admin_port}"
        shown = typed("quotas", "--user", ANONYMOUS, "--admin", admin).stdout
        assert "kept by this gateway" in shown
        assert "50kB per s" in shown
        load = typed(
            "load", "-b", gateway.bootstrap_servers, "--topic", topic_name("bytes"), "--create-topic", "1",
            "--clients", "steady=1@100", "--batch", "1x20000", "--duration", "2s",
        )  # fmt: skip
        assert load.returncode == 0, load.stderr
        throttled = gateway.metrics().value("pidgate_byte_throttled_total", kind="produce", user=ANONYMOUS)
        assert throttled > 0
        configs(gateway.bootstrap_servers, "--alter", "--delete-config", BYTES)
        assert of_user(through, ANONYMOUS) == {}
