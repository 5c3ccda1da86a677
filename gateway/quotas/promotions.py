"""Who begins to be enforced when quotas change, and what that user should expect. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pidgate.quota.counters import UserSnapshot
from pidgate.quota.entities import resolve
from pidgate.quota.settings import Quotas

_ANYBODY: Final = ""
"""A name that nobody has: what holds for users that are not named."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """`would_refuse`: new producer ids that were let in since the gateway started, and would have been refused."""

    user: str
    would_refuse: int


def promotions(before: Quotas, after: Quotas, users: Callable[[], Iterable[UserSnapshot]]) -> list[Promotion]:
    """Of all users that are known or named; those come first who would have been refused most.

    `users` is asked only when there may be some: thousands take a while.
    """
    named = dict.fromkeys([*before.users, *after.users])
    if not any(_is_promoted(before, after, user) for user in (_ANYBODY, *named)):
        return []
    would_refuse = {user.user: user.would_refuse for user in users() if user.user is not None}
    found = [
        Promotion(user, would_refuse.get(user, 0))
        for user in dict.fromkeys([*would_refuse, *named])
        if _is_promoted(before, after, user)
    ]
    return sorted(found, key=lambda promotion: (-promotion.would_refuse, promotion.user))


def _is_promoted(before: Quotas, after: Quotas, user: str) -> bool:
    return resolve(after, user).enforces and not resolve(before, user).enforces
