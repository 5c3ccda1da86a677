"""The plan of a run: kinds of clients, their number, rates and records. Values only, no connection and no time."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple

Address = tuple[str, int]

MOST_BATCH_BYTES: Final = 64 * 1024 * 1024
RECORD_OVERHEAD_BYTES: Final = 21
"""Most bytes of a record in addition to its value."""


class Kind(StrEnum):
    """Behaviours of clients, by their name on the command line and in the report."""

    STEADY = "steady"
    CRASH_LOOP = "crash-loop"
    ID_PER_BATCH = "id-per-batch"
    NEW_ON_ERROR = "new-on-error"
    TRANSACTIONAL = "transactional"
    CONNECT = "connect"
    FETCH = "fetch"


class Clients(NamedTuple):
    """The clients of one kind."""

    number: int
    rate_per_s: float | None
    """Batches (or connections, or fetches) a second of all of them; None: as fast as the answers come."""


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
    clients: Mapping[Kind, Clients]
    topic: str = ""
    topic_id: bytes = b""
    """Identifies the topic in requests if set."""
    duration_s: float = 10.0
    warmup_s: float = 0.0
    """Time before `duration_s` in which clients work without being counted."""
    record_bytes: int = 1_000
    records_per_batch: int = 1
    partitions_each: int = 1
    """Partitions that receive the batch of each request; 0: all of the topic."""
    acks: int = -1
    seed: int = 1
    client_id: str = "pidgate-load"
    login: Login | None = None
    tls: ssl.SSLContext | None = None
    """None: without TLS."""
    from_host: str | None = None
    """Local address to connect from."""
    create_partitions: int = 0
    """Partitions of the topic if it has to be created; 0: a missing topic is an error."""
    is_direct: bool = False
    """True: send everything to `bootstrap`, regardless of Metadata. The topic has `partitions`."""
    partitions: int = 1
    first_id: int | None = None
    """First of the producer ids that clients use without asking the broker. None: they ask."""
    most_tries: int | None = None
    """Tries for a batch of an id-per-batch client."""
    restart_after_s: float = 0.0
    """Pause between two lives of a crash loop."""
    delivery_timeout_s: float = 120.0
    """Time after which a batch that was due is given up (Java: delivery.timeout.ms)."""
    request_timeout_s: float = 30.0
    """Time after which a connection without its answer is closed (Java: request.timeout.ms)."""
    prepare_s: float = 10.0
    """Time for clients to connect and get their producer ids before the first batch is due."""
    drain_s: float = 5.0
    """Time to wait for answers after the last batch was due."""

    @property
    def topic_or_id(self) -> str | bytes:
        return self.topic_id or self.topic

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch's values."""
        return self.record_bytes * self.records_per_batch
