"""All that lies in a topic of one partition."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition


async def every_value(bootstrap_servers: str, topic: str) -> list[bytes]:
    """The values that are in it now, in their order."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, enable_auto_commit=False)
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        values: list[bytes] = []
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                values += [record.value for record in records]
    finally:
        await consumer.stop()
    return values
