"""Stored recordings of an events topic: real clients through a real gateway, for tests of findings.

    recording = load("patterns")
    recording.records        value, partition, offset and append time of each record, partition by partition
    recording.labels         user -> patterns that its clients played
    recording.story          a description, the gateways and the rogue client ids

They lie in tests/pipeline/recordings; tests/support/record_patterns.py makes them. Knows no Kafka and no Spark.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidgate.events.definitions import Event
from pidgate.events.reading import from_json

FOLDER = Path(__file__).parents[1] / "pipeline" / "recordings"


@dataclass(frozen=True, slots=True)
class Record:
    """One record as the broker held it."""

    partition: int
    offset: int
    append_time_ms: int
    value: bytes

    @property
    def event(self) -> Event:
        return from_json(self.value)


@dataclass(frozen=True, slots=True)
class Recording:
    """One topic, whole, and what is known of it from elsewhere."""

    name: str
    records: Sequence[Record]
    labels: Mapping[str, Sequence[str]]
    """user -> words of pidgate.findings.patterns."""
    story: Mapping[str, Any]
    """`about`: in words; `rogue_clients`: client ids whose ids are rogue; `gateways`: their names."""

    @property
    def events(self) -> list[Event]:
        return [record.event for record in self.records]


def load(name: str) -> Recording:
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt") as lines:
        told = [json.loads(line) for line in lines]
    records = [
        Record(one["partition"], one["offset"], one["append_time_ms"], one["value"].encode()) for one in told
    ]
    known = json.loads((FOLDER / f"{name}.json").read_text())
    return Recording(name, records, known["labels"], known["story"])


def store(recording: Recording) -> None:
    """Writes it so that the same records make the same bytes."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        (FOLDER / f"{recording.name}.jsonl.gz").open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
    ):
        for record in recording.records:
            line = {
                "partition": record.partition,
                "offset": record.offset,
                "append_time_ms": record.append_time_ms,
                "value": record.value.decode(),
            }
            packed.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    known = {"labels": dict(recording.labels), "story": dict(recording.story)}
    (FOLDER / f"{recording.name}.json").write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
