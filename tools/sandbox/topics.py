"""Topic creation directly at the brokers."""

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    *,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> str:
    """Create a topic and wait until every partition's leader serves it; return the name.

    Replaces an existing topic, so that a repeated run starts without records.

    Leaders are asked directly, because each broker learns of a topic at its own time. An idempotent producer
    that is earlier than its leader loses records even without a gateway: sequences 0 and 1 are answered with
    UNKNOWN_TOPIC_OR_PARTITION, 2 is appended (a log without state for an id accepts any sequence), and
    librdkafka reads the refusal of the second 0 and 1 as "appended before" and reports them delivered (Kafka
    3.9, three brokers: 5 topics of 250). Raises KafkaException, TimeoutError.
    """
    # librdkafka logs at its end that events were left (level 6).
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 5})
    wanted = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
    try:
        admin.create_topics([wanted], operation_timeout=60)[name].result(timeout=120)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        admin.delete_topics([name], operation_timeout=60)[name].result(timeout=120)
        admin.create_topics([wanted], operation_timeout=60)[name].result(timeout=120)
    # confluent-kafka's types do not export OffsetSpec, and its methods are untyped.
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    newest = {TopicPartition(name, partition): latest for partition in range(partitions)}
    give_up_s = time.monotonic() + 120
    while True:
        try:
            for answer in admin.list_offsets(newest, request_timeout=10).values():
                answer.result()
        except KafkaException as error:
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"{name}: not every partition's leader serves it: {error}") from error
        else:
            return name
        # A poll without events is a pause of 50 ms that still serves the client's callbacks.
        admin.poll(0.05)
