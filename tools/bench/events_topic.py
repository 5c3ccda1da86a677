"""A topic of events as gateways write it, made of a history's tables: what ingest is measured on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq
from confluent_kafka import Producer

from tools.sandbox.topics import create_topic

TOPIC: Final = "__pidgate_events"
PARTITIONS: Final = 3
_NOT_IN_EVENTS: Final = frozenset(("kafka_partition", "kafka_offset", "append_time_ms"))
"""Columns that ingest adds."""
_WITHIN_S: Final = 60.0


class Record(NamedTuple):
    """A record of the topic, appended when its event was made."""

    key: bytes
    value: bytes
    timestamp_ms: int


def records(tables: Path) -> Iterator[Record]:
    """Yield the events of all types, day by day, those of each gateway in the order of their numbers."""
    for day in sorted({folder.name for folder in tables.glob("events/*/day=*")}):
        rows: list[dict[str, Any]] = []
        for folder in tables.glob(f"events/*/{day}/bucket=*"):
            told = {"type": folder.parents[1].name}
            for file in folder.glob("*.parquet"):
                # Its own columns: pyarrow would take more out of the folders' names.
                rows += (row | told for row in pq.ParquetFile(file).read().to_pylist())
        rows.sort(key=lambda row: (row["gateway_id"], row["incarnation"], row["seq"]))
        for row in rows:
            event = {name: value for name, value in row.items() if name not in _NOT_IN_EVENTS}
            yield Record(
                (row["user"] or "").encode(),
                json.dumps(event, separators=(",", ":")).encode(),
                row["wall_time_ms"],
            )


def fill(bootstrap_servers: str, tables: Path) -> int:
    """Make the topic anew and write all events into it; return how many. Raises KafkaException, TimeoutError."""
    create_topic(bootstrap_servers, TOPIC, PARTITIONS, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50, "compression.type": "lz4"})
    count = 0
    for record in records(tables):
        while True:
            try:
                producer.produce(TOPIC, record.value, record.key, timestamp=record.timestamp_ms)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    if left := producer.flush(_WITHIN_S):
        raise TimeoutError(f"{left} of {count} events were not acknowledged within {_WITHIN_S:.0f} s")
    return count
