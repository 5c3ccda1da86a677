"""Random requests of producers, for two clusters that have to answer alike: the model, and Kafka.

A step names producer ids by the order in which they appeared, so that the same one can be sent to both; what comes of
it is compared after every step, and the logs at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import UUID

from pidgate.protocol.messages import END_TXN, INIT_PRODUCER_ID
from pidgate.protocol.record_batch import RecordBatch
from pidgate.protocol.transaction_parts import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    TXN_OFFSET_COMMIT,
)
from tests.support.raw import Body

PRODUCE: Final = 0
PARTITIONS: Final = 2
NOBODY: Final = -1
"""The producer id of who has none."""
MOST_SEQUENCE: Final = 0x7FFFFFFF
_BATCHES: Final = {count: RecordBatch([b"%d" % n for n in range(count)]) for count in (1, 2, 3)}

Outcome = tuple[Any, ...]


class Client(Protocol):
    """A connection to the one node of a cluster."""

    def call(self, api_key: int, version: int, body: Body | None = None) -> dict[str, Any]:
        """Return the decoded answer."""
        ...


@dataclass
class Side:
    """One of the clusters."""

    client: Client
    topic: str
    topic_id: bytes
    now_ms: int
    settled: Callable[[str], None]
    """Return when no transaction of this id is about to end."""
    ids: list[int] = field(default_factory=list)
    """Producer ids in the order of their appearance."""

    def number(self, producer_id: int) -> int:
        """Return the number of an id, a new one if it was not seen before."""
        if producer_id < 0:
            return NOBODY
        if producer_id not in self.ids:
            self.ids.append(producer_id)
        return self.ids.index(producer_id)

    def id_of(self, number: int) -> int:
        return self.ids[number] if 0 <= number < len(self.ids) else NOBODY


@dataclass(frozen=True)
class Produce:
    version: int
    batches: tuple[tuple[int, int, int, int, int, bool], ...]
    """Partition, number of the id, epoch, base sequence, records, transactional."""
    transactional_id: str | None = None
    acks: int = -1
    is_broken: bool = False
    """The checksum of the first batch is wrong."""

    def play(self, side: Side) -> Outcome:
        data = []
        for n, (partition, number, epoch, base_sequence, records, transactional) in enumerate(self.batches):
            producer_id = side.id_of(number)
            batch = bytearray(
                _BATCHES[records].stamped(
                    producer_id, epoch, base_sequence, side.now_ms, is_transactional=transactional
                )
            )
            if self.is_broken and n == 0:
                batch[17] ^= 0xFF
            data.append({"index": partition, "records": bytes(batch)})
        topic = {"name": side.topic, "topic_id": UUID(bytes=side.topic_id), "partition_data": data}
        body = {
            "transactional_id": self.transactional_id,
            "acks": self.acks,
            "timeout_ms": 10_000,
            "topic_data": [topic],
        }
        answer = side.client.call(PRODUCE, self.version, body)
        (answered,) = answer["responses"]
        return tuple(
            sorted(
                (partition["index"], partition["error_code"], partition["base_offset"])
                for partition in answered["partition_responses"]
            )
        )


@dataclass(frozen=True)
class InitProducerId:
    version: int
    transactional_id: str | None = None
    number: int = NOBODY
    epoch: int = -1
    timeout_ms: int = 60_000

    def play(self, side: Side) -> Outcome:
        body = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms,
            "producer_id": side.id_of(self.number),
            "producer_epoch": self.epoch,
        }
        return _identity(side, side.client.call(INIT_PRODUCER_ID, self.version, body), self.transactional_id)


@dataclass(frozen=True)
class AddPartitions:
    version: int
    transactional_id: str
    number: int
    epoch: int
    partitions: tuple[int, ...]

    def play(self, side: Side) -> Outcome:
        body = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": side.id_of(self.number),
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": side.topic, "partitions": list(self.partitions)}],
        }
        answer = side.client.call(ADD_PARTITIONS_TO_TXN, self.version, body)
        return tuple(
            sorted(
                (partition["partition_index"], partition["partition_error_code"])
                for topic in answer["results_by_topic_v3_and_below"]
                for partition in topic["results_by_partition"]
            )
        )


@dataclass(frozen=True)
class AddOffsets:
    version: int
    transactional_id: str
    number: int
    epoch: int

    def play(self, side: Side) -> Outcome:
        body = {
            "transactional_id": self.transactional_id,
            "producer_id": side.id_of(self.number),
            "producer_epoch": self.epoch,
            "group_id": f"group-{side.topic}",
        }
        return (side.client.call(ADD_OFFSETS_TO_TXN, self.version, body)["error_code"],)


@dataclass(frozen=True)
class CommitOffsets:
    version: int
    transactional_id: str
    number: int
    epoch: int
    offset: int

    def play(self, side: Side) -> Outcome:
        offset = {"partition_index": 0, "committed_offset": self.offset, "committed_metadata": ""}
        body = {
            "transactional_id": self.transactional_id,
            "group_id": f"group-{side.topic}",
            "producer_id": side.id_of(self.number),
            "producer_epoch": self.epoch,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": side.topic, "partitions": [offset]}],
        }
        answer = side.client.call(TXN_OFFSET_COMMIT, self.version, body)
        return tuple(
            partition["error_code"] for topic in answer["topics"] for partition in topic["partitions"]
        )


@dataclass(frozen=True)
class EndTxn:
    version: int
    transactional_id: str
    number: int
    epoch: int
    commit: bool

    def play(self, side: Side) -> Outcome:
        body = {
            "transactional_id": self.transactional_id,
            "producer_id": side.id_of(self.number),
            "producer_epoch": self.epoch,
            "committed": self.commit,
        }
        return _identity(side, side.client.call(END_TXN, self.version, body), self.transactional_id)


Step = Produce | InitProducerId | AddPartitions | AddOffsets | CommitOffsets | EndTxn


def _identity(side: Side, answer: dict[str, Any], transactional_id: str | None) -> Outcome:
    if transactional_id:
        side.settled(transactional_id)
    return (
        answer["error_code"],
        side.number(answer.get("producer_id", NOBODY)),
        answer.get("producer_epoch", -1),
    )


def fetch_session_outcomes(client: Client, topic: str, records: bytes) -> list[Outcome]:
    """Return what becomes of a fetch session: (error code, has a session, partitions answered) of each Fetch.

    `records`: a batch without a producer id, for an empty topic of one partition.
    """
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
    whole: dict[str, Any] = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 100_000,
        "session_epoch": 0,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }
    session_id = 0

    def fetch(**fields: Any) -> Outcome:
        nonlocal session_id
        answer = client.call(1, 12, {**whole, **fields})
        session_id = session_id or answer["session_id"]
        partitions = sum(len(one["partitions"]) for one in answer["responses"])
        return answer["error_code"], answer["session_id"] > 0, partitions

    outcomes = [fetch()]
    session = {"session_id": session_id, "topics": []}
    outcomes.append(fetch(**session, session_epoch=1))
    data = {"index": 0, "records": records}
    body = {"acks": -1, "timeout_ms": 10_000, "topic_data": [{"name": topic, "partition_data": [data]}]}
    client.call(PRODUCE, 9, body)
    outcomes += [fetch(**session, session_epoch=epoch) for epoch in (2, 2, 3, 3)]
    outcomes.append(fetch(session_id=session_id + 1, topics=[], session_epoch=1))
    forgotten = [{"topic": topic, "partitions": [0]}]
    outcomes.append(fetch(**session, session_epoch=4, forgotten_topics_data=forgotten))
    outcomes.append(fetch())
    outcomes.append(fetch(session_id=session_id, session_epoch=-1))
    outcomes.append(fetch(**session, session_epoch=5))
    return outcomes
