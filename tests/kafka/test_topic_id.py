"""The events topic's id, where only the gateway's own credentials can ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from pidgate.gateway.config.settings import SaslSettings
from pidgate.gateway.state.events_topic import EventTopic
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.sandbox.kafka import Cluster
from pidgate.sandbox.spec import SASL_PLAINTEXT

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_the_own_client_learns_the_id_that_the_brokers_gave(
    sasl_cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path, mechanism: str
) -> None:
    name = topic_name("events")
    password = tmp_path / "password"
    password.write_text(sasl_cluster.spec.users["alice"] + "\n")
    sasl = SaslSettings.model_validate(
        {"mechanism": mechanism, "username": "alice", "password_file": str(password)}
    )
    told: list[bytes] = []

    async def scenario() -> None:
        topic = EventTopic(name, 2, 1, 3_600_000, 1_000, on_id=told.append)
        kafka = OwnClient([sasl_cluster.bootstrap_servers(SASL_PLAINTEXT)], sasl)
        await topic.ensure(kafka)
        await topic.ensure(kafka)

    asyncio.run(scenario())
    admin = AdminClient({"bootstrap.servers": sasl_cluster.bootstrap_servers()})
    described = admin.describe_topics(TopicCollection([name]))[name].result()
    given = described.topic_id.get_most_significant_bits().to_bytes(8, "big", signed=True)
    given += described.topic_id.get_least_significant_bits().to_bytes(8, "big", signed=True)
    assert told[-1] == given
