"""What is forwarded of each producer id, counted while it passes, and told once per slice. PURE.

The hot path keeps one small record for each id that is in use, shared by the id's connections; each connection
finds its own by a dict. At the end of a slice all records leave, a few at a time: the next Produce of an id begins a
new one. An id whose last connection closes leaves at once.

Knows no events and no time: whoever tells of a record is called with it, times are arguments.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol

from quota.entities import User
from quota.verdicts import ProducerBatch

MOST_IDS: Final = 100_000
"""Ids in use within one slice, about 50 MB; what is forwarded of ids beyond them is not counted by id."""

MOST_PARTITIONS: Final = 256
"""Of one id, told apart exactly; beyond it the number is a lower bound."""


class IdUsage:
    """One producer id of one user, since the slice began."""

    __slots__ = (
        "_partition",
        "_partitions",
        "_topic",
        "batches",
        "bytes",
        "caller",
        "connections",
        "epoch",
        "first_ms",
        "last_ms",
        "open_connections",
        "producer_id",
        "records",
        "requests",
        "user",
    )

    def __init__(self, caller: Caller, user: User, producer_id: int, now_ms: int) -> None:
        self.caller = caller
        """The connection that used it first: whoever tells of the id takes the client from it."""
        self.user = user
        self.producer_id = producer_id
        self.epoch = -1
        self.requests = 0
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.first_ms = self.last_ms = now_ms
        self.connections = 0
        self.open_connections = 0
        self._topic = b""
        self._partition = -1
        self._partitions: set[tuple[bytes, int]] | None = None
        """None while there is but one: most ids write to few, and a set costs more than all the rest."""

    @property
    def partitions(self) -> int:
        return 1 if self._partitions is None else len(self._partitions)

    def count(self, batch: ProducerBatch, records: int) -> None:
        """One batch of a request that was forwarded."""
        epoch, topic, partition = batch[1], batch[3], batch[4]
        self.epoch = epoch
        self.batches += 1
        if records > 0:
            self.records += records
        if partition != self._partition or topic != self._topic:
            self._other_partition(topic, partition)

    def _other_partition(self, topic: bytes, partition: int) -> None:
        seen = self._partitions
        if self._partition < 0:
            self._topic, self._partition = topic, partition
            return
        if seen is None:
            seen = self._partitions = {(self._topic, self._partition)}
        if len(seen) < MOST_PARTITIONS:
            seen.add((topic, partition))
        self._topic, self._partition = topic, partition


class Caller(Protocol):
    """A connection, as this table sees it."""

    connection_id: int
    usages: dict[int, IdUsage]

    def about(self) -> dict[str, Any]:
        """What events say about the client."""


class UsageTable:
    """All ids in use. `leaving` holds what is to be told: whoever tells takes from its left."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[User, int], IdUsage] = {}
        self.leaving: deque[IdUsage] = deque()
        self.uncounted_requests = 0
        """Forwarded while MOST_IDS others were in use."""

    def __len__(self) -> int:
        return len(self._by_id) + len(self.leaving)

    def begin(self, caller: Caller, user: User, producer_id: int, now_ms: int) -> IdUsage | None:
        """The record of an id that this connection uses for the first time in the slice; None: no room."""
        key = (user, producer_id)
        usage = self._by_id.get(key)
        if usage is None:
            if len(self) >= MOST_IDS:
                self.uncounted_requests += 1
                return None
            usage = self._by_id[key] = IdUsage(caller, user, producer_id, now_ms)
        usage.connections += 1
        usage.open_connections += 1
        caller.usages[producer_id] = usage
        return usage

    def connection_closed(self, caller: Caller) -> None:
        """Ids that no other connection uses leave."""
        for usage in caller.usages.values():
            usage.open_connections -= 1
            if usage.open_connections == 0:
                del self._by_id[usage.user, usage.producer_id]
                self.leaving.append(usage)
        caller.usages.clear()

    def end_slice(self) -> None:
        """Everything leaves. The connections' own dicts are the caller's to clear."""
        self.leaving.extend(self._by_id.values())
        self._by_id.clear()
