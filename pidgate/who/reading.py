"""Reads one window of the events topic, once. Knows Kafka, not events.

It reads directly from the brokers, without a consumer group, with the gateway's own credentials. It creates
no topic, not even through a metadata request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from pidgate.gateway.config.password_file import CredentialsUnreadable
from pidgate.gateway.topics.availability import Cause, explain_error, quieten_aiokafka, stop_client
from pidgate.gateway.topics.follower import EventRecord
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.who.span import MARGIN_MS, Edge, Span, span_of

CHUNK_RECORDS: Final = 2_000
POLL_MS: Final = 500
REQUEST_TIMEOUT_MS: Final = 10_000
SILENCE_S: Final = 30.0
"""Reading ends with an error after this long without a record."""
STOP_WITHIN_S: Final = 2.0
PARTITION_FETCH_BYTES: Final = 2 * 1024 * 1024

OnSpan = Callable[[Span], None]
OnRecords = Callable[[list[EventRecord]], None]


class CannotRead(Exception):
    """The topic cannot be read. The text gives the reason and the remedy."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.cause)
        self.cause, self.remedy = cause


async def read(
    kafka: OwnClient, topic: str, from_ms: int, now_ms: int, on_span: OnSpan, on_records: OnRecords
) -> None:
    """Read the records appended since `from_ms` (wall clock), up to the current end of the topic.

    `on_span` is called once, before any record. Raises CannotRead.
    """
    from aiokafka.errors import KafkaError

    quieten_aiokafka()
    try:
        async with _consumer(kafka) as consumer:
            partitions = await _partitions(consumer, topic)
            edges = await _edges(consumer, partitions, from_ms - MARGIN_MS)
            on_span(span_of(list(edges.values()), from_ms, now_ms))
            await _read(consumer, edges, on_records)
    except (KafkaError, OSError, TimeoutError, ValueError, CredentialsUnreadable) as error:
        raise CannotRead(explain_error(error, "reading", topic)) from error


@asynccontextmanager
async def _consumer(kafka: OwnClient) -> Any:
    consumer = kafka.consumer(
        "pidgate-who",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        check_crcs=False,
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    try:
        await asyncio.wait_for(consumer.start(), SILENCE_S)
        yield consumer
    finally:
        await stop_client(consumer, STOP_WITHIN_S)


async def _partitions(consumer: Any, topic: str) -> list[Any]:
    """Return all partitions of the topic. Lists all topics: asking for one would create it on some brokers."""
    from aiokafka import TopicPartition

    if topic not in await consumer.topics():
        raise CannotRead(
            Cause(
                f"topic {topic} does not exist, or may not be described",
                "start a gateway with events enabled, which creates it; name it as in events.topic; or allow "
                f"the principal of own_client Read and Describe on topic {topic}",
            )
        )
    # First use of its name, now that it is known to exist; the answer lists all partitions.
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.beginning_offsets([TopicPartition(topic, 0)])
    return [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]


async def _edges(consumer: Any, partitions: list[Any], from_ms: int) -> dict[Any, Edge]:
    consumer.assign(partitions)
    first = await consumer.beginning_offsets(partitions)
    # The end before the start: records written in between are left to the next run.
    end = await consumer.end_offsets(partitions)
    start = await consumer.offsets_for_times(dict.fromkeys(partitions, max(0, from_ms)))
    edges = {}
    for partition in partitions:
        found = start[partition]
        offset = end[partition] if found is None else min(found.offset, end[partition])
        at_ms = None if found is None else found.timestamp
        edges[partition] = Edge(first[partition], offset, at_ms, end[partition])
        consumer.seek(partition, offset)
    return edges


async def _read(consumer: Any, edges: dict[Any, Edge], on_records: OnRecords) -> None:
    ends = {partition: edge.end for partition, edge in edges.items() if edge.start < edge.end}
    for partition in edges.keys() - ends.keys():
        consumer.pause(partition)
    last_s = time.monotonic()
    while ends:
        fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=CHUNK_RECORDS)
        for partition, records in fetched.items():
            last_s = time.monotonic()
            end = ends.get(partition, 0)
            on_records(
                [
                    EventRecord(record.partition, record.offset, record.timestamp, record.value)
                    for record in records
                    if record.value is not None and record.offset < end
                ]
            )
        for partition in list(ends):
            # The last record before the end may be a control record: the client's position passes those.
            if await consumer.position(partition) >= ends[partition]:
                del ends[partition]
                consumer.pause(partition)
        if time.monotonic() - last_s > SILENCE_S:
            raise TimeoutError(f"no answer for {SILENCE_S:.0f} s")
