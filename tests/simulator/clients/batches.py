"""Batches as an application hands them to a producer, and the record of all that it was told.

A batch is what one call of `send` brings: its records stay together, as those do that fill a real batch. Each record
holds the producer's name, the partition and the batch's number, so that a log says whose it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum


class ModelViolation(AssertionError):
    """The log is not what a client was told, or a client was led into a corner. The message says which."""


class State(IntEnum):
    """Where a batch is."""

    QUEUED = 0  # never sent, has no sequence
    IN_FLIGHT = 1
    RETRY = 2  # refused or cut off; keeps its sequence
    ACKED = 3
    FAILED = 4  # the application was told


@dataclass(slots=True, eq=False)
class Batch:
    """One batch of one partition; `number` counts the batches of its producer and partition from 0.

    What the application may look at are `state`, `offset`, `error` and the times; the rest is the producer's own.
    """

    producer: str
    partition: int
    number: int
    records: int
    value: bytes
    queued_s: float
    transaction: int = -1
    """Which transaction of its producer it belongs to, counted from 0."""
    state: State = State.QUEUED
    offset: int = -1
    """Of its first record; -1 if it is not known, as after an implicit acknowledgement."""
    error: str = ""
    sent_s: float = -1.0
    """When it was sent first; -1: never."""
    done_s: float = -1.0

    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    """As it was, or will be, sent."""
    attempts: int = 0
    """Tries that came to nothing."""
    retry_at_s: float = -1.0
    is_reset: bool = False
    """Numbered anew, and not sent since."""
    is_uncertain: bool = False
    """Cut off once, or its success was ignored: the broker may have it, whatever was refused since."""
    may_repeat: bool = False
    """Numbered anew while that was not known: the client itself, with no gateway at all, may write it twice."""
    leader_epoch: int = -1
    attempts_at_leader: int = 0
    """Attempts there had been when that leader epoch was learnt."""
    run: int = 0
    """The run of sequences (`Lane.run`) that its own one belongs to."""
    _waiting: asyncio.Future[None] | None = None

    @property
    def is_done(self) -> bool:
        return self.state >= State.ACKED

    @property
    def last_sequence(self) -> int:
        return self.base_sequence + self.records - 1

    async def wait(self) -> None:
        """Return when the application has been told."""
        if not self.is_done:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting)

    def finish(self, state: State, now_s: float) -> None:
        """Tell the application."""
        self.state, self.done_s = state, now_s
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def numbered(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Give it a place among its producer's sequences; it may have had another one."""
        if self.base_sequence >= 0:
            self.may_repeat = self.may_repeat or self.is_uncertain
            self.is_reset = True
        self.producer_id, self.epoch, self.base_sequence = producer_id, epoch, base_sequence


@dataclass(slots=True)
class Transaction:
    """One transaction as the application saw it."""

    number: int
    began_s: float
    batches: list[Batch] = field(default_factory=list)
    outcome: str = ""
    """committed, aborted, or empty: open, or failed with `error` and not known."""
    may_be_committed: bool = False
    """Its commit was sent and the answer lost: what the client says of it after that is a guess."""
    error: str = ""
    ended_s: float = -1.0


@dataclass(slots=True)
class Wait:
    """Something took time: `kind` is start, flush, commit, abort, throttle or close."""

    kind: str
    began_s: float
    ended_s: float = -1.0


@dataclass(slots=True)
class Told:
    """All that the application was told, in that order."""

    acknowledged: list[Batch] = field(default_factory=list)
    failed: list[Batch] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    fatal: str = ""
    """Why the producer is of no more use."""
    heard: Callable[[Batch], None] | None = None
    """Is called with each batch at the moment it is acknowledged."""
