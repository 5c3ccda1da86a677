"""The ledger of a run: every Produce a broker acted on, in order, batch by batch, with what became of it.

Read when the run is over, from what the cluster has kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pidgate.protocol.headers import peek_request
from tests.simulator.brokers.batches import BatchHead, read_batch, values
from tests.simulator.brokers.replies import Later
from tests.simulator.brokers.wire import read_produce
from tests.simulator.clients import frames

if TYPE_CHECKING:
    from tests.simulator.world import Taken, World

NO_ANSWER = -2
"""There was none: acks=0, the broker died, or the answer was still waiting at the end."""


class Name(NamedTuple):
    """A batch as its application knows it: it stands in each of its records."""

    producer: str
    partition: int
    number: int

    @classmethod
    def of(cls, value: bytes | None) -> Name:
        producer, *numbers = (value or b"?").decode().split("|")
        partition, number, *_ = numbers or (-1, -1)  # a hostile client's records have no number
        return cls(producer, int(partition), int(number))


class Numbers(NamedTuple):
    """A batch as brokers know it."""

    producer_id: int
    epoch: int
    base_sequence: int


@dataclass(slots=True)
class Seen:
    """One batch at a broker."""

    at_s: float
    node_id: int
    name: Name
    numbers: Numbers
    partition: int
    error_code: int


def seen_by_brokers(world: World) -> list[Seen]:
    """Return every batch that reached a broker, in the order of arrival."""
    return [seen for taken in world.cluster.taken for seen in batches_of(taken)]


def batches_of(taken: Taken) -> list[Seen]:
    """Return the batches of one Produce with their outcomes."""
    version, batches = parsed(taken.frame)
    reply = taken.reply.value if isinstance(taken.reply, Later) else taken.reply
    codes: dict[int, int] = {}
    if reply is not None:
        outcomes, _, _ = frames.read_produce(reply[4:], version)
        codes = {outcome.partition: outcome.error_code for outcome in outcomes}
    return [
        Seen(taken.at_s, taken.node_id, name, numbers, name.partition, codes.get(name.partition, NO_ANSWER))
        for name, numbers in batches
    ]


@lru_cache(maxsize=4_000)
def parsed(frame: bytes) -> tuple[int, list[tuple[Name, Numbers]]]:
    """Return the version of a Produce, and its batches. A frame is looked at wherever it passes."""
    head = peek_request(frame, 0, len(frame))
    found = []
    for _, partitions in read_produce(frame, head).topics:
        for _, raw in partitions:
            batch = read_batch(raw)
            if isinstance(batch, BatchHead) and raw is not None:
                numbers = Numbers(batch.producer_id, batch.epoch, batch.base_sequence)
                found.append((Name.of(values(raw)[0]), numbers))
    return head.api_version, found
