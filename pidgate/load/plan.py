"""The plan of a run: kinds of producers, their number, rates and records. Values only, no connection and no time."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

Address = tuple[str, int]

MOST_BATCH_BYTES: Final = 64 * 1024 * 1024
RECORD_OVERHEAD_BYTES: Final = 21
"""Most that a record takes beside its value."""


class Kind(StrEnum):
    """Named as the options that say how many there are."""

    WELL_BEHAVED = "producers"
    CRASH_LOOPING = "crash-loops"
    ID_PER_BATCH = "id-per-batch"
    NEW_ON_ERROR = "new-on-error"
    TRANSACTIONAL = "transactional"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS: Final = {
    Kind.WELL_BEHAVED: "well-behaved",
    Kind.CRASH_LOOPING: "crash-looping",
    Kind.ID_PER_BATCH: "id per batch",
    Kind.NEW_ON_ERROR: "new on error",
    Kind.TRANSACTIONAL: "transactional",
}

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True)
class Login:
    """SASL credentials, the same for all connections."""

    user: str
    password: str
    mechanism: Mechanism = "PLAIN"

    def __repr__(self) -> str:
        return f"Login({self.user!r}, {self.mechanism})"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run."""

    bootstrap: tuple[Address, ...]
    topic: str
    counts: Mapping[Kind, int]
    """Producers of each kind; kinds with none are left out."""
    rates_per_s: Mapping[Kind, float]
    """Batches a second of each kind, of all its producers in sum."""
    duration_s: float = 10.0
    record_bytes: int = 1_000
    records_per_batch: int = 1
    acks: int = -1
    seed: int = 1
    client_id: str = "pidgate-load"
    login: Login | None = None
    tls: ssl.SSLContext | None = None
    """None: without TLS."""
    from_host: str | None = None
    """Local address to connect from."""
    to_all_partitions: bool = False
    """Each request of a producer that lives for one batch holds the batch for every partition."""
    create_topic: bool = False
    partitions: int = 1
    """Of a topic that is created."""
    delivery_timeout_s: float = 120.0
    """Time after which a batch that was due is given up (Java: delivery.timeout.ms)."""
    request_timeout_s: float = 30.0
    """Time after which a connection without its answer is closed (Java: request.timeout.ms)."""
    drain_s: float = 5.0
    """Time to wait for answers after the last batch was due."""

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch's values."""
        return self.record_bytes * self.records_per_batch
