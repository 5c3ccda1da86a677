"""The quota's state when events carry hashes instead of user names (`redact: [user]`).

What other gateways and the past tell of a user comes in under its hash. The first time that the user itself is
seen, what was kept under the hash becomes its own.
"""

from __future__ import annotations

from collections.abc import Callable

from pidgate.events.redaction import UserNames
from pidgate.quota.changes import Command
from pidgate.quota.entities import User
from pidgate.quota.producer_ids import Answer, ProducerIdQuota, Question
from pidgate.quota.settings import Quotas


class RedactedUsersQuota(ProducerIdQuota):
    """`names` knows whom a hash means once it has met the user."""

    def __init__(self, names: UserNames, quotas: Quotas, seed_source: Callable[[], int], now_ms: int) -> None:
        super().__init__(quotas, seed_source, now_ms)
        self._names = names

    def decide(self, question: Question, now_ms: int) -> Answer:
        self._meet(question.user, now_ms)
        return super().decide(question, now_ms)

    def insert_uncharged(self, user: User, producer_id: int, now_ms: int) -> None:
        self._meet(user, now_ms)
        super().insert_uncharged(user, producer_id, now_ms)

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        self._meet(user, now_ms)
        return super().inherit(user, old_producer_id, new_producer_id, now_ms)

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        super().set_quotas(quotas, now_ms)
        for user in quotas.users:
            self._meet(user, now_ms)

    def apply(self, command: Command, now_ms: int) -> None:
        self._meet(command.user, now_ms)
        super().apply(command, now_ms)

    def _meet(self, user: User, now_ms: int) -> None:
        name = self._names.meet(user)
        if name is not None:
            self.rename(name, user, now_ms)
