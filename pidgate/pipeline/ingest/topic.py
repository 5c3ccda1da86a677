"""The topic's partitions, identity, first and last offsets, by librdkafka's admin client.

Requested before each batch, so that a recreated topic is not read from the middle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from pidgate.pipeline.errors import TO_GO_ON, TopicLostData, TopicMissing
from pidgate.pipeline.ingest.columns import Record
from pidgate.pipeline.ingest.commits import Position
from pidgate.pipeline.ingest.records import Source, Span, spans, unreadable

PATIENCE_S = 10.0
_NEWLY_MADE = "the topic was recreated or is a different one"
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_SILENT = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
_SILENCE = logging.getLogger(f"{__name__}.librdkafka")
_SILENCE.addHandler(logging.NullHandler())
_SILENCE.propagate = False
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Offsets:
    """Per partition, the first available offset and the next one to be written."""

    first: Mapping[str, int]
    end: Mapping[str, int]


class Topic:
    """One topic, and the librdkafka settings to read it."""

    def __init__(
        self, bootstrap_servers: str, name: str, settings: Mapping[str, str], patience_s: float = PATIENCE_S
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.name = name
        self.settings = dict(settings)
        self._patience_s = patience_s
        self._last_error = ""
        ours: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "socket.timeout.ms": round(patience_s * 1000),
            "error_cb": self._note,
        }
        try:
            # Exceptions have the same messages.
            self._admin = AdminClient({**settings, **ours}, logger=_SILENCE)
        except (KafkaException, ValueError) as error:
            raise unreadable(name, bootstrap_servers, str(error)) from None

    def describe(self) -> tuple[str, Offsets]:
        """Return the topic's id, unique across recreation, and its offsets. Raises TopicMissing."""
        asked = self._admin.describe_topics(TopicCollection([self.name]), request_timeout=self._patience_s)
        found = self._answer(asked[self.name])
        partitions = sorted(partition.id for partition in found.partitions)
        earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        # In Java's alphabet, as in existing commits.
        topic_id = str(found.topic_id).translate(str.maketrans("+/", "-_"))
        return topic_id, Offsets(self._listed(partitions, earliest), self._listed(partitions, latest))

    def loss(self, position: Position, topic_id: str, offsets: Offsets) -> TopicLostData | None:
        return lost_data(self.name, position, topic_id, offsets)

    def share(self, waiting: Mapping[str, range], most: int) -> dict[str, range]:
        """Return each partition's share of a batch of `most` records."""
        total = sum(map(len, waiting.values()))
        if total <= most:
            return dict(waiting)
        return {p: one[: max(1, len(one) * most // total)] for p, one in waiting.items()}

    def tasks(self, wanted: Mapping[str, range]) -> list[list[Span]]:
        return spans(wanted)

    def reader(self, *, stop_at_loss: bool) -> Callable[[Sequence[Span]], Iterator[Record]]:
        """Return the reader of a task's records."""
        return Source(self.bootstrap_servers, self.name, self.settings, stop_at_loss=stop_at_loss).records

    def _listed(self, partitions: list[int], spec: OffsetSpec) -> dict[str, int]:
        places = {TopicPartition(self.name, number): spec for number in partitions}
        asked = self._admin.list_offsets(places, request_timeout=self._patience_s)
        return {str(place.partition): int(self._answer(answer).offset) for place, answer in asked.items()}

    def _answer(self, asked: Future[Answer]) -> Answer:
        try:
            return asked.result(2 * self._patience_s)
        except KafkaException as error:
            problem: Any = error.args[0]
        self._admin.poll(0)
        if problem.code() in _MISSING:
            raise TopicMissing(
                f"there is no topic {self.name!r} at {self.bootstrap_servers}. Gateways create it if `events.enabled` "
                "is true; --topic selects another name."
            )
        if problem.code() in _SILENT:
            raise TopicMissing(
                f"no response from {self.bootstrap_servers} within {self._patience_s:g} s "
                f"({self._last_error or problem.str()}). Check the brokers' addresses (--kafka) and their "
                "listener's security settings (--kafka-config)."
            )
        raise unreadable(self.name, self.bootstrap_servers, f"{problem.name()}: {problem.str()}")

    def _note(self, error: KafkaError) -> None:
        """Store the reason for missing responses: a request that waits for a login only times out."""
        self._last_error = error.str()


def lost_data(name: str, position: Position, topic_id: str, offsets: Offsets) -> TopicLostData | None:
    """Return the error if the topic no longer holds the next offsets, otherwise None. Pure."""
    problem = None
    if position.topic_id and topic_id != position.topic_id:
        problem = f"{_NEWLY_MADE} (its id is {topic_id}, was {position.topic_id})"
    elif shrunk := {p for p in position.next_offsets if position.next_offsets[p] > offsets.end.get(p, 0)}:
        problem = "; ".join(
            f"partition {p} ends at offset {offsets.end.get(p, 0)}, before {position.next_offsets[p]}, which comes next"
            for p in sorted(shrunk)
        )
    elif gone := {p for p in position.next_offsets if position.next_offsets[p] < offsets.first.get(p, 0)}:
        problem = "; ".join(
            f"partition {p}: offsets {position.next_offsets[p]} to {offsets.first[p] - 1} "
            f"({offsets.first[p] - position.next_offsets[p]} records) were deleted before they were read"
            for p in sorted(gone)
        )
    if problem is None:
        return None
    return TopicLostData(f"topic {name!r} lost data: {problem}. {TO_GO_ON}")
