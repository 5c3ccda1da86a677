"""Owners of delegation tokens, learnt from brokers' answers as they pass. PURE.

With a token a client logs in by its id, and is its owner (KIP-48), whom only brokers know: they show it in their
answers to CreateDelegationToken and DescribeDelegationToken. A token's owner never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from pidgate.names import bounded
from pidgate.protocol.delegation_tokens import TokenOwner
from pidgate.quota.entities import User

MOST_TOKENS: Final = 20_000
"""The latest ones that were learnt or used; some 300 bytes each."""


def _nobody_to_notify(_learnt: Sequence[TokenOwner]) -> None:
    pass


class TokenOwners:
    """Owner by token id. `on_learnt` is called with what was not known yet."""

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self._most = most
        self._owners: dict[str, User] = {}
        self.on_learnt: Callable[[Sequence[TokenOwner]], None] = _nobody_to_notify

    def learn(self, tokens: Iterable[TokenOwner]) -> None:
        """Take owners out of a broker's answer."""
        learnt = self.take(tokens)
        if learnt:
            self.on_learnt(learnt)

    def fill(self, tokens: Sequence[TokenOwner]) -> None:
        """Take owners for whom nobody has asked, as far as there is room: nobody who was asked for goes for them."""
        unknown = (token for token in tokens if bounded(token[0]) not in self._owners)
        self.learn(islice(unknown, max(0, self._most - len(self._owners))))

    def take(self, tokens: Iterable[TokenOwner]) -> list[TokenOwner]:
        """Take owners that another process has learnt; return those that were not known."""
        learnt = []
        for token_id, owner in tokens:
            key, user = bounded(token_id), bounded(owner)
            if self._owners.pop(key, None) is None:
                learnt.append((key, user))
            self._owners[key] = user
            if len(self._owners) > self._most:
                del self._owners[next(iter(self._owners))]
        return learnt

    def owner_of(self, token_id: str) -> User | None:
        """Return the owner; None: nobody saw it yet."""
        owner = self._owners.pop(token_id, None)
        if owner is not None:
            self._owners[token_id] = owner
        return owner

    def known(self) -> list[TokenOwner]:
        """Return all, the one that was used the longest ago first."""
        return list(self._owners.items())


NOTHING_KNOWN: Final = TokenOwners(0)
"""Of those who look at no answers."""
