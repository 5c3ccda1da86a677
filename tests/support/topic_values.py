"""All values of a topic."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition


async def every_value(bootstrap_servers: str, topic: str) -> list[bytes]:
    """Return the values that are in the topic now, each partition's in their order."""
    # Not seek_to_beginning: a reset to the end that is under way would override it.
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        numbers = consumer.partitions_for_topic(topic)
        assert numbers, f"{topic} is not among {sorted(await consumer.topics())}"
        partitions = [TopicPartition(topic, one) for one in numbers]
        ends = await consumer.end_offsets(partitions)
        values: list[bytes] = []
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                for records in (await consumer.getmany(partition, timeout_ms=500)).values():
                    values += [record.value for record in records]
    finally:
        await consumer.stop()
    return values
