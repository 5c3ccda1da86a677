"""The topic's partitions, identity, first and last offsets, by Java's own admin client.

Used before a stream is started, because a stream waits for ever for what does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pidgate.pipeline.errors import TopicLostData, TopicMissing
from pidgate.pipeline.ingest.commits import Position

PATIENCE_MS = 10_000
_NEWLY_MADE = "the topic was deleted and made again, or is another one"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Of each partition the first that it still holds, and the next that it will give."""

    first: Mapping[int, int]
    end: Mapping[int, int]


class Topic:
    """One topic, read through one admin client; close it."""

    def __init__(
        self, spark: SparkSession, bootstrap_servers: str, name: str, settings: Mapping[str, str]
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.name = name
        self.settings = dict(settings)
        self._jvm = cast(Any, spark._jvm)
        self._patience = (PATIENCE_MS, self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
        properties = self._jvm.java.util.Properties()
        patience = {"default.api.timeout.ms": str(PATIENCE_MS), "request.timeout.ms": str(PATIENCE_MS // 2)}
        for key, value in (patience | self.settings | {"bootstrap.servers": bootstrap_servers}).items():
            properties.put(key, value)
        try:
            self._admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        except Py4JJavaError as error:
            raise self._unreachable(error) from None

    def close(self) -> None:
        self._admin.close()

    def identity(self) -> tuple[str, list[int]]:
        """The topic's id, which a topic made anew does not have again, and its partitions. Raises TopicMissing."""
        names = self._jvm.java.util.Collections.singletonList(self.name)
        try:
            answer = self._admin.describeTopics(names).allTopicNames().get(*self._patience).get(self.name)
        except Py4JJavaError as error:
            raise self._unreachable(error) from None
        return str(answer.topicId().toString()), sorted(place.partition() for place in answer.partitions())

    def offsets(self, partitions: list[int]) -> Offsets:
        """Return first and next offsets. Raises TopicMissing."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        return Offsets(*(self._listed(partitions, wanted) for wanted in (spec.earliest(), spec.latest())))

    def _listed(self, partitions: list[int], spec: Any) -> dict[int, int]:
        specs = self._jvm.java.util.HashMap()
        place = self._jvm.org.apache.kafka.common.TopicPartition
        places = {number: place(self.name, number) for number in partitions}
        for one in places.values():
            specs.put(one, spec)
        try:
            answer = self._admin.listOffsets(specs).all().get(*self._patience)
        except Py4JJavaError as error:
            raise self._unreachable(error) from None
        return {number: int(answer.get(one).offset()) for number, one in places.items()}

    def _unreachable(self, error: Py4JJavaError) -> TopicMissing:
        """Java's messages name settings, and no secrets: values of passwords are hidden by Kafka."""
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        word = str(cause.getClass().getSimpleName())
        where = f"at {self.bootstrap_servers}"
        if word == "UnknownTopicOrPartitionException":
            return TopicMissing(
                f"there is no topic {self.name!r} {where}. Gateways make it while `events.enabled` is true; "
                "another name is given by --topic."
            )
        if word == "TimeoutException":
            return TopicMissing(
                f"nobody answers {where} within {PATIENCE_MS // 1000} s ({cause.getMessage()}). Are these the brokers' "
                "addresses (--kafka), and does their listener ask for security (--kafka-config)?"
            )
        return TopicMissing(
            f"topic {self.name!r} {where} cannot be read: {word}: {cause.getMessage()}. Look at --kafka, "
            "--kafka-config and the user's rights: Describe and Read on the topic."
        )


def lost_data(name: str, position: Position, topic_id: str, offsets: Offsets) -> TopicLostData | None:
    """Return the error if the topic no longer holds all that comes next; None when it does. Pure."""
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
            f"({offsets.first[p] - position.next_offsets[p]} records) were removed before they were read"
            for p in sorted(gone)
        )
    if problem is None:
        return None
    return TopicLostData(
        f"topic {name!r} lost data: {problem}. Nothing was changed. To go on with what it holds and have the loss "
        "recorded in losses/: --on-data-loss go-on. That it does not happen again: run ingest more often than the "
        "topic's retention."
    )
