"""As whom the brokers see a client whose connection the gateway has authenticated itself, by its certificate.

Where TLS ends at the gateway no broker sees the client's certificate. A delegation token for the client's user
(KIP-48, made for another owner as KIP-373 allows) lets the gateway log in as that user, so that ACLs, quotas and audit
hold as if it were there. One token of each user is kept in each process, and replaced in the last quarter of its life;
the old one expires by itself. What is secret of it appears in no `repr`.
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
"""Of users; the one that was used the longest ago goes first, and is made again when it is asked for."""
DEFAULT_MECHANISM: Final = "SCRAM-SHA-256"
"""Of logins with tokens, where the gateway's own is none of SCRAM."""

_REFUSALS: Final = {
    61: "the brokers have no delegation tokens: set delegation.token.secret.key",
    64: "brokers give tokens only to who is logged in by SASL or by a certificate, and not by a token",
    65: "the gateway's own user may not make tokens for it: allow CreateTokens on resource User:<name> (KIP-373)",
    67: "the name is no user's",
}
"""Of CreateDelegationToken, by error code."""


class NoIdentity(Exception):
    """Nobody can be logged in at the brokers for this client; the text names the remedy, and no secret."""


@dataclass(frozen=True, slots=True)
class UpstreamLogin:
    """Credentials of one login at a broker."""

    user: str
    mechanism: str
    password: str = field(repr=False)
    extensions: str = ""
    is_of_client: bool = False
    """It is the client's own, by a token; else the gateway's."""

    def exchange(self, nonce: str) -> Generator[Build, bytes, int]:
        """Return the login as requests, before the client's first one: see own_connections.login_exchange."""
        return login_exchange(self.mechanism, self.user, self.password, nonce, self.extensions)


class UpstreamIdentity(ABC):
    """Choice of the login of a client's connection."""

    is_of_everybody: bool = False
    """Nobody logs in by himself, so that no client is asked to."""

    def __init__(self, nonce: Callable[[], str]) -> None:
        self.nonce = nonce
        """Source of values that nobody can guess, another one each time."""

    @abstractmethod
    async def login_of(self, user: User, *, is_certified: bool) -> UpstreamLogin | None:
        """Return the login for a client; None: it logs in by itself, if at all.

        `user` of who is certified is the whole name. Raises NoIdentity, CredentialsUnreadable.
        """

    @abstractmethod
    def refused(self, user: User, login: UpstreamLogin) -> None:
        """Note that brokers refuse this login."""


class OwnIdentity(UpstreamIdentity):
    """Every client is the gateway's own client."""

    is_of_everybody = True

    def __init__(self, sasl: SaslSettings, nonce: Callable[[], str]) -> None:
        super().__init__(nonce)
        self._sasl = sasl

    async def login_of(self, user: User, *, is_certified: bool) -> UpstreamLogin:
        """Return the configured login. Raises CredentialsUnreadable."""
        return UpstreamLogin(self._sasl.username, self._sasl.mechanism, password_in(self._sasl.password_file))

    def refused(self, user: User, login: UpstreamLogin) -> None:
        """Note nothing: the password is read anew for each login."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A user's token: when a new one is asked for, and until when brokers take this one."""

    login: UpstreamLogin
    renewed_from_ms: int
    expires_ms: int


class TokenIdentity(UpstreamIdentity):
    """Every client that has shown a certificate is its user, by a delegation token."""

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
        """Return the login by the user's token. Raises NoIdentity, also from whoever takes the token."""
        if not is_certified:
            return None
        if "\0" in user:  # an entity that is no principal: see quota/entities.py
            raise NoIdentity("its certificate names nobody that can be read for sure")
        if bounded(user) != user:
            # Quotas know it by its beginning and a hash, and what would be asked for is in logs and tables, too.
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
            task = self._asked[user] = asyncio.get_running_loop().create_task(self._take(user))
            task.add_done_callback(partial(self._asked_for, user))
        try:
            return await asyncio.shield(task)
        except (NoIdentity, CredentialsUnreadable):
            kept = self._tokens.get(user)
            if kept is None or self._now_ms() >= kept.expires_ms:
                raise
            return kept.login  # it is good for a while, and brokers may give another one by then

    def _asked_for(self, user: User, task: asyncio.Task[UpstreamLogin]) -> None:
        del self._asked[user]
        if not task.cancelled():
            task.exception()  # whoever waited has it, or has given up

    def refused(self, user: User, login: UpstreamLogin) -> None:
        kept = self._tokens.get(user)
        if kept is not None and kept.login is login:
            del self._tokens[user]

    async def _take(self, user: User) -> UpstreamLogin:
        """Take a token for a user. Raises NoIdentity."""
        try:
            token = await self._brokers.ask(partial(_created, user))
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
    """Return what the configuration says; None: clients log in by themselves."""
    cluster, sasl = settings.cluster, settings.own_client
    if cluster.upstream_identity == "pass" or sasl is None or brokers is None:
        return None
    if cluster.upstream_identity == "own":
        return OwnIdentity(sasl, nonce)
    return TokenIdentity(sasl, nonce, brokers, now_ms)


def _created(user: User) -> Generator[Build, bytes, NewToken]:
    frame = yield lambda n, client_id: delegation_tokens.create_token_request(n, client_id, user)
    return delegation_tokens.new_token(frame, 0, len(frame))
