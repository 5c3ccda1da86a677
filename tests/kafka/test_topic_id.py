"""The events topic's id, where only the gateway's own credentials can ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from pidgate.gateway.config.settings import SaslSettings
from pidgate.gateway.state.events_topic import EventTopic
from pidgate.gateway.topics import gateway_topic
from pidgate.gateway.topics.own_client import OwnClient
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT

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
        await topic.ensure_topic(kafka)
        await topic.ensure_topic(kafka)

    asyncio.run(scenario())
    assert told[-1] == id_by_another_client(sasl_cluster, name)


@pytest.mark.parametrize("late", [0, 3])
def test_a_new_topics_id_is_known_once_it_is_made_however_late_brokers_show_it(
    cluster: Cluster, topic_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """Else clients could name the topic by its id, unrefused, until one of them asks for its metadata."""
    name = topic_name("events")
    told: list[bytes] = []
    ask = gateway_topic.topic_id_of
    asked = 0

    async def not_shown_yet(admin: Any, topic: str) -> bytes | None:
        nonlocal asked
        asked += 1
        return await ask(admin, topic) if asked > late else None

    monkeypatch.setattr(gateway_topic, "topic_id_of", not_shown_yet)
    topic = EventTopic(name, 2, 1, 3_600_000, 1_000, on_id=told.append)
    asyncio.run(topic.ensure_topic(OwnClient([cluster.bootstrap_servers()], None)))
    assert told == [id_by_another_client(cluster, name)]


def id_by_another_client(cluster: Cluster, name: str) -> bytes:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
    described = admin.describe_topics(TopicCollection([name]))[name].result()
    given: bytes = described.topic_id.get_most_significant_bits().to_bytes(8, "big", signed=True)
    given += described.topic_id.get_least_significant_bits().to_bytes(8, "big", signed=True)
    return given
