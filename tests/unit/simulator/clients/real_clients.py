"""Real clients before the model brokers, over sockets: the same script of faults as for their models."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from tests.support.clients import java_client
from tests.unit.simulator.clients.stage import TOPIC, Connection, Script, Stage
from tools.sandbox.performance import has_command_config

SLOW_S = 0.2
"""What a broker takes for a Produce: so long that a client's pipeline is full before it has the first answer."""

Send = Callable[[int, int, int], list[str]]
"""Port, batches, partitions: sends a record each, and returns the errors that the application was told."""


def run(client: Send, script: Script | None, *, batches: int, partitions: int) -> tuple[Stage, list[str]]:
    """Let a real client send; return the stage with what arrived, and the errors."""
    stage = Stage(partitions=partitions, delay_s=SLOW_S, script=script)
    stage.loop.close()

    async def main() -> list[str]:
        loop: Any = asyncio.get_running_loop()
        stage.loop = loop
        stage.cluster.advance(int(loop.time() * 1000))
        stage.brokers = stage.made_brokers()
        server = await loop.create_server(partial(Connection, stage, 1), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        stage.cluster.nodes.addresses[1, stage.listener.name] = ("127.0.0.1", port)
        errors = await asyncio.to_thread(client, port, batches, partitions)
        server.close()
        return errors

    return stage, asyncio.run(main())


def librdkafka(port: int, batches: int, partitions: int) -> list[str]:
    """confluent-kafka, one record in a batch."""
    from confluent_kafka import KafkaException, Producer

    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "client.id": "client-1",
        "enable.idempotence": True,
        "batch.num.messages": 1,
        "linger.ms": 5,
        "log_level": 0,
        "error_cb": lambda error: None,
    }
    errors: list[str] = []
    producer = Producer(settings)

    def delivered(error: Any, message: Any) -> None:
        del message
        if error is not None:
            errors.append("not delivered")

    for number in range(batches):
        producer.produce(TOPIC, b"value", partition=number % partitions, on_delivery=delivered)
    with suppress(KafkaException, SystemError):  # the binding's way to say that an error was fatal
        producer.flush(60)
    return errors


def kafka_python(port: int, batches: int, partitions: int) -> list[str]:
    """kafka-python, one record in a batch."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    producer = KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}", client_id="client-1", batch_size=1)
    sent = [producer.send(TOPIC, b"value", partition=number % partitions) for number in range(batches)]
    errors: list[str] = []
    for future in sent:
        try:
            future.get(timeout=60)
        except KafkaError as error:
            errors.append(type(error).__name__)
    producer.close(5)
    return errors


def java(port: int, batches: int, partitions: int) -> list[str]:
    """Kafka's VerifiableProducer, with the smallest batches there are."""
    assert partitions == 1, "it chooses partitions itself"
    properties = {
        "client.id": "client-1",
        "enable.idempotence": "true",
        "retries": "2147483647",
        "linger.ms": "0",
        "batch.size": "1",
    }
    option = "--command-config" if has_command_config(java_client.tools().version) else "--producer.config"
    process = java_client.tools().start(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--bootstrap-server", f"127.0.0.1:{port}", "--topic", TOPIC),
        *("--max-messages", str(batches), "--throughput", "-1"),
        *(option, str(java_client.properties_file(properties))),
        stderr=None,
    )
    assert process.stdout is not None
    with process:
        events = [json.loads(line) for line in process.stdout if line.startswith(b"{")]
    return [event["exception"] for event in events if event["name"] == "producer_send_error"]
