"""Make topics directly at the brokers."""

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    *,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> str:
    """Create a topic anew and wait until every partition has a leader; return the name.

    One of that name is deleted first: what runs a second time on a cluster begins with no records. Raises
    KafkaException, TimeoutError.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
    try:
        admin.create_topics([wanted], operation_timeout=30)[name].result(timeout=60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        admin.delete_topics([name], operation_timeout=30)[name].result(timeout=60)
        admin.create_topics([wanted], operation_timeout=30)[name].result(timeout=60)
    for _ in range(200):
        topic = admin.list_topics(name, timeout=10).topics[name]
        leaders = [partition.leader for partition in topic.partitions.values()]
        if topic.error is None and len(leaders) == partitions and min(leaders) >= 0:
            return name
        # A poll without events is a pause of 50 ms that still serves the client's callbacks.
        admin.poll(0.05)
    raise TimeoutError(f"{name}: not every partition has a leader")
