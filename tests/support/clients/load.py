"""What a client is asked to do, in a form that goes onto a command line and comes back.

Records are numbered 0, 1, 2 ... over all partitions in turn (n modulo partitions), and every client is
told to make each record a batch of its own, so that as many are in flight as the client is able to.
"""

import json
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a client shows who it is: SASL, a certificate, or both."""

    username: str = ""
    """With OAUTHBEARER the subject of the token, with GSSAPI the principal."""
    password: str = ""
    mechanism: str = "SCRAM-SHA-512"
    """Empty: without SASL."""
    is_token: bool = False
    """SCRAM with a delegation token: its id is the username, its HMAC the password."""
    keytab: str = ""
    krb5_conf: str = ""
    ca_file: str = ""
    """Empty: without TLS."""
    pair_file: str = ""
    """Key and certificate, as in certificates.Pair.both."""

    @property
    def protocol(self) -> str:
        """security.protocol."""
        if not self.mechanism:
            return "SSL" if self.ca_file else "PLAINTEXT"
        return "SASL_SSL" if self.ca_file else "SASL_PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errand:
    bootstrap_servers: str
    topic: str
    login: Login | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        login = fields.pop("login")
        return cls(**fields, login=Login(**login) if login else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(_Errand):
    """Produce idempotently, and keep a journal."""

    records: int
    partitions: int = 1
    number: int = 1
    """Tells producers of one kind apart."""
    size_bytes: int = 100
    records_per_s: float = 0.0
    """0: as fast as the client takes them."""
    is_batched: bool = False
    """The client fills its batches as it does by default; else each record is a batch."""
    is_idempotent: bool = True
    """False: acks=1, without a producer id. Only for sarama."""
    is_named: bool = True
    """The client says in ApiVersions which library it is. Only for sarama, which older protocols keep from it."""
    in_flight: int = 5
    """Requests per connection, where the client has this setting."""
    give_up_s: float = 0.0
    """The client's own budget for one record; 0: its default."""
    retries: int = 0
    """Tries after the first one, where the client has this setting; 0: its default."""
    awaits_s: float = 0.0
    """The application gives up waiting for a record's outcome after so long, where its language does so; 0: never."""
    transaction_size: int = 0
    """Records in one transaction; 0: without transactions. Only for the Python clients."""
    abort_every: int = 0
    """Abort each so-many-th transaction; its records count as failed with the error "aborted"."""

    def __post_init__(self) -> None:
        if self.transaction_size and not self.is_idempotent:
            raise ValueError("transactions need a producer id")

    def partition_of(self, n: int) -> int:
        return n % self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish(_Errand):
    """Consume from the beginning until so many records were read."""

    group: str
    """Empty: without a group, every partition."""
    records: int
    protocol: str = "classic"
    """classic, or consumer (KIP-848), or share (KIP-932), where the client has it."""
    isolation: str = "read_uncommitted"
    timeout_s: float = 60.0


class Pace:
    """The numbers to send, each when it is due, until all are sent or SIGTERM says enough."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._enough = threading.Event()
        self._start_s = time.monotonic()

    def stop_at_sigterm(self) -> None:
        """Only in the main thread of a process that does nothing else."""
        signal.signal(signal.SIGTERM, lambda *_: self._enough.set())

    @property
    def is_over(self) -> bool:
        return self._enough.is_set()

    def wait_until_over(self) -> None:
        """Block until SIGTERM has come."""
        self._enough.wait()

    def due_in_s(self, n: int) -> float:
        """Seconds until number n is due; 0 when it is."""
        if self._load.records_per_s <= 0:
            return 0.0
        return max(0.0, self._start_s + n / self._load.records_per_s - time.monotonic())

    def numbers(self) -> Iterator[int]:
        """For clients with threads of their own: blocks until the next number is due."""
        for n in range(self._load.records):
            if self._enough.wait(self.due_in_s(n)):
                return
            yield n

    def transactions(self) -> Iterator[tuple[list[int], bool]]:
        """The numbers of each transaction, and whether it is to be committed."""
        load = self._load
        for count, first in enumerate(range(0, load.records, load.transaction_size), start=1):
            if self._enough.wait(self.due_in_s(first)):
                return
            numbers = list(range(first, min(first + load.transaction_size, load.records)))
            yield numbers, not (load.abort_every and count % load.abort_every == 0)


ABORTED = "aborted"
