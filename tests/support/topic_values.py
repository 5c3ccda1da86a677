"""All values of a topic."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition


async def every_value(bootstrap_servers: str, topic: str) -> list[bytes]:
    """Return the values that are in the topic now, each partition's in their order."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap_servers, enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, one) for one in consumer.partitions_for_topic(topic) or ()]
        ends = await consumer.end_offsets(partitions)
        await consumer.seek_to_beginning(*partitions)
        values: list[bytes] = []
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                for records in (await consumer.getmany(partition, timeout_ms=500)).values():
                    values += [record.value for record in records]
    finally:
        await consumer.stop()
    return values
