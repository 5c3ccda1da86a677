"""Upstream identity: how brokers see clients whose TLS ends at the gateway.

Brokers do not see such a client's certificate. A delegation token for the client's user (KIP-48, created for
another owner as KIP-373 allows) lets the gateway log in as that user, so that ACLs, quotas and audit apply to
it. Each process keeps one token per user and replaces it in the last quarter of its life; the old one
expires. No `repr` shows secrets.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pidgate.gateway.cluster.own_connections import login_exchange
from pidgate.gateway.cluster.own_questions import NotAnswered, OwnQuestions
from pidgate.gateway.config.password_file import CredentialsUnreadable, password_in
from pidgate.gateway.config.settings import SaslSettings, Settings
from pidgate.names import LONGEST_NAME, bounded
from pidgate.protocol import delegation_tokens
from pidgate.protocol.delegation_tokens import NewToken
from pidgate.protocol.logins import TOKEN_EXTENSION, Build
from pidgate.quota.entities import User

MOST_TOKENS: Final = 10_000
"""Limit for users with a token. The least recently used token is dropped and created again on demand."""
DEFAULT_MECHANISM: Final = "SCRAM-SHA-256"
"""Mechanism for token logins if the gateway's own login does not use SCRAM."""

_REFUSALS: Final = {
    61: "the brokers have no delegation tokens: set delegation.token.secret.key",
    64: "brokers issue tokens only for logins by SASL or certificate, not by token",
    65: "the gateway's own user may not make tokens for it: allow CreateTokens on resource User:<name> (KIP-373)",
    67: "the name is not a user's",
}
"""CreateDelegationToken errors by code."""


class NoIdentity(Exception):
    """The gateway cannot log in at the brokers for this client. The text has the remedy and no secret."""


@dataclass(frozen=True, slots=True)
class UpstreamLogin:
    """Credentials for one broker login."""

    user: str
    mechanism: str
    password: str = field(repr=False)
    extensions: str = ""
    is_of_client: bool = False
    """Whether they are the client's, by a token, or the gateway's own."""

    def exchange(self, nonce: str) -> Generator[Build, bytes, int]:
        """Return the requests of the login: see own_connections.login_exchange."""
        return login_exchange(self.mechanism, self.user, self.password, nonce, self.extensions)


class UpstreamIdentity(ABC):
    """Selects the login for a client's connection."""

    is_of_everybody: bool = False
    """Whether all clients use it, so that none is asked to log in."""

    def __init__(self, nonce: Callable[[], str]) -> None:
        self.nonce = nonce
        """Source of unpredictable, unique values."""

    @abstractmethod
    async def login_of(self, user: User, *, is_certified: bool) -> UpstreamLogin | None:
        """Return the login for a client; None if the client logs in by itself.

        For a certified client `user` is the full name. Raises NoIdentity, CredentialsUnreadable.
        """

    @abstractmethod
    def record_refusal(self, user: User, login: UpstreamLogin) -> None:
        """Record that brokers reject this login."""


class OwnIdentity(UpstreamIdentity):
    """Every client uses the gateway's own login."""

    is_of_everybody = True

    def __init__(self, sasl: SaslSettings, nonce: Callable[[], str]) -> None:
        super().__init__(nonce)
        self._sasl = sasl

    async def login_of(self, user: User, *, is_certified: bool) -> UpstreamLogin:
        """Return the configured login. Raises CredentialsUnreadable."""
        return UpstreamLogin(self._sasl.username, self._sasl.mechanism, password_in(self._sasl.password_file))

    def record_refusal(self, user: User, login: UpstreamLogin) -> None:
        """Do nothing: the password is read again for each login."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A user's token, its renewal time and its expiry."""

    login: UpstreamLogin
    renewed_from_ms: int
    expires_ms: int


class TokenIdentity(UpstreamIdentity):
    """A client with a certificate uses a delegation token of its user."""

    def __init__(
        self,
        sasl: SaslSettings,
        nonce: Callable[[], str],
        brokers: OwnQuestions,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(nonce)
        self._mechanism = sasl.mechanism if sasl.mechanism != "PLAIN" else DEFAULT_MECHANISM
        self._brokers = brokers
        self._now_ms = now_ms
        self._tokens: dict[User, _Token] = {}
        self._asked: dict[User, asyncio.Task[UpstreamLogin]] = {}

    async def login_of(self, user: User, *, is_certified: bool) -> UpstreamLogin | None:
        """Return the login with the user's token. Raises NoIdentity, also for a failed token request."""
        if not is_certified:
            return None
        if "\0" in user:  # a shared quota entity, not a principal: see quota/entities.py
            raise NoIdentity("its certificate does not identify a user reliably")
        if bounded(user) != user:
            # Long names are shortened with a hash for quotas; the full name would also enter logs and tables.
            raise NoIdentity(
                f"the name in its certificate, {bounded(user)}, has {len(user)} characters, and users with more than "
                f"{LONGEST_NAME} get no token; shorten it with tls.ssl_principal_mapping_rules"
            )
        kept = self._tokens.pop(user, None)
        if kept is not None and self._now_ms() < kept.expires_ms:
            self._tokens[user] = kept
            if self._now_ms() < kept.renewed_from_ms:
                return kept.login
        task = self._asked.get(user)
        if task is None:
            task = self._asked[user] = asyncio.get_running_loop().create_task(self._request_token(user))
            task.add_done_callback(partial(self._asked_for, user))
        try:
            return await asyncio.shield(task)
        except (NoIdentity, CredentialsUnreadable):
            kept = self._tokens.get(user)
            if kept is None or self._now_ms() >= kept.expires_ms:
                raise
            return kept.login  # still valid; a retry may succeed before it expires

    def _asked_for(self, user: User, task: asyncio.Task[UpstreamLogin]) -> None:
        del self._asked[user]
        if not task.cancelled():
            task.exception()  # the waiting connections have the error or are gone

    def record_refusal(self, user: User, login: UpstreamLogin) -> None:
        kept = self._tokens.get(user)
        if kept is not None and kept.login is login:
            del self._tokens[user]

    async def _request_token(self, user: User) -> UpstreamLogin:
        """Request a token for a user. Raises NoIdentity."""
        try:
            token = await self._brokers.ask_broker(partial(_created, user))
        except NotAnswered as error:
            raise NoIdentity(f"no broker gave a token for {user}: {error}") from error
        if token.error_code:
            reason = _REFUSALS.get(token.error_code, "no token")
            raise NoIdentity(f"{reason} (CreateDelegationToken for {user}: error {token.error_code})")
        taken = UpstreamLogin(token.token_id, self._mechanism, token.password, TOKEN_EXTENSION, True)
        now_ms = self._now_ms()
        self._tokens[user] = _Token(taken, now_ms + token.life_ms * 3 // 4, now_ms + token.life_ms)
        if len(self._tokens) > MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        return taken


def identity_of(
    settings: Settings, nonce: Callable[[], str], brokers: OwnQuestions | None, now_ms: Callable[[], int]
) -> UpstreamIdentity | None:
    """Return the configured identity; None if clients log in by themselves."""
    cluster, sasl = settings.cluster, settings.own_client
    if cluster.upstream_identity == "pass" or sasl is None or brokers is None:
        return None
    if cluster.upstream_identity == "own":
        return OwnIdentity(sasl, nonce)
    return TokenIdentity(sasl, nonce, brokers, now_ms)


def _created(user: User) -> Generator[Build, bytes, NewToken]:
    frame = yield lambda n, client_id: delegation_tokens.create_token_request(n, client_id, user)
    return delegation_tokens.new_token(frame, 0, len(frame))
