"""The quota's state when events carry hashes instead of user names (`redact: [user]`). PURE.

Other gateways, and past events, name a user by its hash. When the user itself is first seen, the state kept
under the hash becomes the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pidgate.events.redaction import UserNames
from pidgate.gateway.state.state_dir.snapshot import SavedUser
from pidgate.quota.changes import Command
from pidgate.quota.entities import User
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Quotas
from pidgate.quota.state import Answer, Question
from pidgate.quota.users import GaveUp, UserStatus
from pidgate.quota.verdicts import Reason


def under_their_names(names: UserNames, users: Sequence[SavedUser]) -> Iterator[SavedUser]:
    """Yield a snapshot's users under their real names, where known.

    A user may be met before the topic is read: its events carry the hash and count for the user from then on.
    A state saved under a hash with a known user becomes that user's state, unless the snapshot has one
    already.
    """
    there = {saved.state.user for saved in users}
    for saved in users:
        user = saved.state.user
        name = names.user_of(user)
        if name == user:
            names.meet(name)
            yield saved
        elif name not in there:
            yield saved._replace(state=replace(saved.state, user=name))


class RedactedUsersQuota:
    """A quota that resolves each user's hash first. `names` maps the hashes of users met so far."""

    def __init__(self, names: UserNames, quota: ProducerIdQuota) -> None:
        self._names = names
        self._quota = quota
        self.table = quota.table

    def decide(self, question: Question, now_ms: int) -> Answer:
        """Decide as ProducerIdQuota does."""
        self._meet(question.user, now_ms)
        return self._quota.decide(question, now_ms)

    def insert_uncharged(
        self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Admit the id for that use without spending a token."""
        self._meet(user, now_ms)
        self._quota.insert_uncharged(user, producer_id, now_ms, transactional=transactional)

    def insert_transactional_id(self, user: User, hashed: int, now_ms: int) -> None:
        """Remember a transactional id without spending a token."""
        self._meet(user, now_ms)
        self._quota.insert_transactional_id(user, hashed, now_ms)

    def transactional_id_meanwhile(self, user: User, hashed: int, now_ms: int, reason: Reason) -> None:
        """Take over a transactional id admitted before the state was restored."""
        self._meet(user, now_ms)
        self._quota.transactional_id_meanwhile(user, hashed, now_ms, reason)

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """Admit the new id uncharged; return False when the old one is not remembered."""
        self._meet(user, now_ms)
        return self._quota.inherit(user, old_producer_id, new_producer_id, now_ms)

    def admitted_meanwhile(
        self, user: User, producer_id: int, now_ms: int, reason: Reason, *, transactional: bool = False
    ) -> bool:
        """Take over an id admitted before the state was restored; return whether it was unseen."""
        self._meet(user, now_ms)
        return self._quota.admitted_meanwhile(user, producer_id, now_ms, reason, transactional=transactional)

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Apply new quotas; users with quotas of their own count as met."""
        self._quota.set_quotas(quotas, now_ms)
        for user in quotas.users:
            self._meet(user, now_ms)

    def apply(self, command: Command, now_ms: int) -> None:
        """Apply a command about one user."""
        self._meet(command.user, now_ms)
        self._quota.apply(command, now_ms)

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Remove expired state; return the ids whose retries have ended."""
        return self._quota.sweep(now_ms)

    def users(self) -> list[User]:
        """Return the users with any state."""
        return self._quota.users()

    def status(self, user: User, now_ms: int) -> UserStatus:
        """Return the user's tokens, queue and remembered ids."""
        return self._quota.status(user, now_ms)

    def _meet(self, user: User, now_ms: int) -> None:
        name = self._names.meet(user)
        if name is not None:
            self._quota.table.rename(name, user, now_ms)
