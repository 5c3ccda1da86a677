"""Owners of delegation tokens, learnt from broker responses in passing. PURE.

A client logs in with a token's id and acts as its owner (KIP-48). Only brokers know the owner, and send it in
CreateDelegationToken and DescribeDelegationToken responses. A token's owner never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from pidgate.names import bounded
from pidgate.protocol.delegation_tokens import TokenOwner
from pidgate.quota.entities import User

MOST_TOKENS: Final = 20_000
"""Limit for recently learnt or used tokens, about 300 bytes each."""


class TokenOwners:
    """Owner by token id."""

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self._most = most
        self._owners: dict[str, User] = {}

    def learn_tokens(self, tokens: Iterable[TokenOwner]) -> None:
        """Store owners from a broker's response."""
        for token_id, owner in tokens:
            key = bounded(token_id)
            self._owners.pop(key, None)
            self._owners[key] = bounded(owner)
            if len(self._owners) > self._most:
                del self._owners[next(iter(self._owners))]

    def add_unused_tokens(self, tokens: Sequence[TokenOwner]) -> None:
        """Store owners that no connection needs yet, as far as there is room without evicting others."""
        unknown = (token for token in tokens if bounded(token[0]) not in self._owners)
        self.learn_tokens(islice(unknown, max(0, self._most - len(self._owners))))

    def owner_of(self, token_id: str) -> User | None:
        """Return the owner, or None if unknown."""
        owner = self._owners.pop(token_id, None)
        if owner is not None:
            self._owners[token_id] = owner
        return owner

    def known_tokens(self) -> list[TokenOwner]:
        """Return all tokens, least recently used first."""
        return list(self._owners.items())
