"""An events topic that holds the decisions of a gateway that ran until a moment ago, as many as asked for."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

from pidgate.events.writing import to_json
from tests.unit.events.made_up import a_decision
from tools.sandbox.topics import create_topic

USERS = 1_000


def fill(brokers: str, topic: str, decisions: int, *, partitions: int = 12, **changes: Any) -> None:
    """Create the topic and write that many decisions, each with `changes`."""
    config = {"message.timestamp.type": "LogAppendTime"}
    create_topic(brokers, topic, partitions, config=config)
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 200_000,
        }
    )
    wall_ms = time.time_ns() // 1_000_000
    for number in range(decisions):
        user = f"team-{number * 7919 % USERS}"
        given: dict[str, Any] = {"incarnation": "0123456789ab", "seq": number + 1, "wall_time_ms": wall_ms}
        event = a_decision(**(given | {"user": user, "producer_id": number} | changes))
        event.token_units = 3_600_000_000
        while True:
            try:
                producer.produce(topic, to_json(event), user)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
