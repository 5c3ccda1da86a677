"""A quota with its connections, told in few words: for the scripts in these tests."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import count
from typing import Any

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Close, ProducerBatch, Refuse, Verdict
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.quota.users import UserTable

HOUR_MS = 3_600_000


def enforcing(
    rate: int | float | Fraction | None = 100,
    *,
    mode: Mode = Mode.ENFORCE,
    users: dict[str, UserQuota] | None = None,
    cluster_rate_milli: int | None = None,
    **settings: Any,
) -> Quotas:
    """Quotas that enforce `rate` for the default user; `settings` go to ProducerIdSettings."""
    return Quotas(
        mode=mode,
        producer_ids=ProducerIdSettings(**settings),
        default=UserQuota.per_window(rate),
        users=users or {},
        cluster_rate_milli=cluster_rate_milli,
    )


def seeds(start: int = 1_000) -> Callable[[], int]:
    numbers = count(start)
    return lambda: next(numbers)


def batch(
    producer_id: int, base_sequence: int = 0, *, epoch: int = 0, topic: bytes = b"t", partition: int = 0
) -> ProducerBatch:
    return producer_id, epoch, base_sequence, topic, partition


def table_of(admission: Admission) -> UserTable:
    """The users of a state in this process."""
    return admission.state.table


class World:
    """One Admission and a clock that the script sets."""

    def __init__(self, quotas: Quotas, admission: Admission | None = None) -> None:
        self.now_ms = 0
        self.admission = admission or Admission(quotas, seeds(), 0)
        self._connections = count(1)

    def connect(self, user: str = "alice", *, client_id: str = "app", address: str = "10.0.0.1") -> Client:
        return Client(user, client_id, address, next(self._connections))

    def judge(self, client: Client, *batches: ProducerBatch, transactional: bool = False) -> Verdict:
        return self.admission.judge(client, list(batches), transactional=transactional, now_ms=self.now_ms)

    def read_ahead(
        self, client: Client, *batches: ProducerBatch, transactional: bool = False
    ) -> Refuse | Close | None:
        return self.admission.judge_while_muted(
            client, list(batches), transactional=transactional, now_ms=self.now_ms
        )

    def refusal(self, client: Client, *batches: ProducerBatch, transactional: bool = False) -> Refuse:
        """Judges and insists on a refusal."""
        verdict = self.judge(client, *batches, transactional=transactional)
        assert isinstance(verdict, Refuse), verdict
        return verdict

    def close(self, client: Client) -> None:
        self.admission.connection_closed(client.connection_id, self.now_ms)

    def spend(self, ids: int, *, user: str = "alice", first: int = 1_000_000) -> None:
        """Brings that many new ids of the user, all of which must pass."""
        client = self.connect(user, address="10.9.9.9")
        for producer_id in range(first, first + ids):
            verdict = self.judge(client, batch(producer_id))
            assert not isinstance(verdict, Refuse | Close), verdict
