"""Owners of delegation tokens, learnt from broker responses in passing. PURE.

A client logs in with a token's id and acts as its owner (KIP-48). Only brokers know the owner, and send it in
CreateDelegationToken and DescribeDelegationToken responses. A token's owner never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from pidgate.names import bounded
from pidgate.protocol.delegation_tokens import TokenOwner
from pidgate.quota.entities import User

MOST_TOKENS: Final = 20_000
"""Limit for recently learnt or used tokens, about 300 bytes each."""


def _nobody_to_notify(_learnt: Sequence[TokenOwner]) -> None:
    pass


class TokenOwners:
    """Owner by token id. `on_learnt` is called with new tokens."""

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self._most = most
        self._owners: dict[str, User] = {}
        self.on_learnt: Callable[[Sequence[TokenOwner]], None] = _nobody_to_notify

    def learn_tokens(self, tokens: Iterable[TokenOwner]) -> None:
        """Store owners from a broker's response."""
        learnt = self.take_shared(tokens)
        if learnt:
            self.on_learnt(learnt)

    def add_unused_tokens(self, tokens: Sequence[TokenOwner]) -> None:
        """Store owners that no connection needs yet, as far as there is room without evicting others."""
        unknown = (token for token in tokens if bounded(token[0]) not in self._owners)
        self.learn_tokens(islice(unknown, max(0, self._most - len(self._owners))))

    def take_shared(self, tokens: Iterable[TokenOwner]) -> list[TokenOwner]:
        """Store owners learnt by another process; return the new ones."""
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
        """Return the owner, or None if unknown."""
        owner = self._owners.pop(token_id, None)
        if owner is not None:
            self._owners[token_id] = owner
        return owner

    def known_tokens(self) -> list[TokenOwner]:
        """Return all tokens, least recently used first."""
        return list(self._owners.items())


NOTHING_KNOWN: Final = TokenOwners(0)
"""For users that learn nothing."""
