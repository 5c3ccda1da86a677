"""What stands in a partition's log, and what an append comes to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from tests.simulator.brokers.batches import BatchHead

NO_OFFSET: Final = -1


@dataclass(slots=True, frozen=True)
class Entry:
    """One batch of the log."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    epoch: int
    base_sequence: int
    records: int
    is_transactional: bool
    commits: bool | None
    """A marker: whether it commits. None: records of a client."""
    raw: bytes
    """The batch as the client sent it; `batches.stamped` makes it what a Fetch gives out."""
    head: BatchHead | None
    """None for a marker."""
    timestamp_ms: int
    coordinator_epoch: int = -1

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records


class Appended(NamedTuple):
    """What a Produce answer says of one partition."""

    error_code: ErrorCode
    base_offset: int = NO_OFFSET
    next_offset: int = NO_OFFSET
    """The high watermark that acks=all waits for."""


@dataclass(slots=True)
class Waiting:
    """DelayedProduce: an append that is answered when the high watermark is there, or the leader is not."""

    next_offset: int
    done: Callable[[ErrorCode], None]
