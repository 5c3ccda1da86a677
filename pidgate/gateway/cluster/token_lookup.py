"""Look up owners of unknown delegation tokens with the gateway's own credentials.

After a start, older tokens are unknown. One DescribeDelegationToken response lists all tokens visible to the
gateway's user, so one request serves all waiting connections. Only connections that a broker has
authenticated trigger it, so made-up tokens cause no requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Generator
from typing import Final

from pidgate.gateway.cluster.own_questions import NotAnswered, OwnQuestions
from pidgate.gateway.cluster.token_owners import TokenOwners
from pidgate.gateway.config.password_file import CredentialsUnreadable
from pidgate.gateway.logs import Event, LogLimit, log_mistake, logger
from pidgate.names import bounded
from pidgate.protocol import delegation_tokens
from pidgate.protocol.delegation_tokens import TokenOwner
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.logins import Build

log = logger()

ASKED_EVERY_MS: Final = 250
"""Minimum interval between requests. A new token reaches other brokers after about 50 ms."""
TRIES: Final = 2
"""Requests for a token missing from the responses."""
MISSED_FOR_MS: Final = 30_000
"""Time for which a missing token is not requested again."""
MOST_MISSED: Final = 10_000
_TOKENS_PER_TURN: Final = 50


class TokenLookup:
    """Lookups for waiting connections; results are stored in `owners`."""

    def __init__(self, owners: TokenOwners, brokers: OwnQuestions, now_ms: Callable[[], int]) -> None:
        self._owners = owners
        self._brokers = brokers
        self._now_ms = now_ms
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._missed: dict[str, int] = {}
        """Tokens missing from the responses -> time."""
        self._task: asyncio.Task[None] | None = None
        self._asked_ms = self._now_ms() - ASKED_EVERY_MS
        self._log_limit = LogLimit()

    def find_owner(self, token_id: str, done: Callable[[], None]) -> bool:
        """Call `done` after brokers were asked for the token's owner, with or without success.

        Returns False, without a request, if the token was missing a moment ago.
        """
        key = bounded(token_id)
        missed_ms = self._missed.get(key)
        if missed_ms is not None and self._now_ms() - missed_ms < MISSED_FOR_MS:
            return False
        self._waiting.setdefault(key, []).append(done)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve())
        return True

    def stop(self) -> None:
        """Cancel lookups without calling the waiting callbacks."""
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        """Run lookups until no connection waits."""
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                problem = ""
                for _ in range(TRIES):
                    # The response to an earlier lookup may have included them.
                    if problem or all(self._owners.owner_of(key) is not None for key in waiting):
                        break
                    problem = await self._learn(waiting)
                self._served(waiting, problem)
        finally:
            self._task = None

    def _served(self, waiting: dict[str, list[Callable[[], None]]], problem: str) -> None:
        now_ms = self._now_ms()
        for key, calls in waiting.items():
            if self._owners.owner_of(key) is None:
                self._miss(key, problem, now_ms)
            for done in calls:
                try:
                    done()
                except Exception:  # noqa: BLE001 - logged: the others wait, too
                    log_mistake("token owners", reason="a connection could not continue")

    def _miss(self, key: str, problem: str, now_ms: int) -> None:
        self._missed.pop(key, None)
        self._missed[key] = now_ms
        if len(self._missed) > MOST_MISSED:
            del self._missed[next(iter(self._missed))]
        left_out = self._log_limit.take(None, now_ms)
        if left_out is not None:
            log.warning(
                Event.TOKEN_OWNER_UNKNOWN,
                reason=problem or "brokers do not show this token to the gateway's own user",
                remedy="until brokers respond, quotas.unidentified applies"
                if problem
                else "allow own_client's user DescribeTokens on resource User:<owner> (KIP-373)",
                suppressed_count=left_out,
            )

    async def _learn(self, waiting: Container[str]) -> str:
        """Request all tokens and store them, those of waiting connections first.

        Returns the reason for a failure, or an empty string.
        """
        # Each request lists all tokens, so a series of new tokens must not cause a request each.
        await asyncio.sleep(max(0, self._asked_ms + ASKED_EVERY_MS - self._now_ms()) / 1000)
        self._asked_ms = self._now_ms()
        try:
            frame = await self._brokers.ask_broker(_described)
            tokens = await _read(frame)
        except (NotAnswered, CredentialsUnreadable, KafkaProtocolError) as error:
            return str(error)
        asked_for: list[TokenOwner] = []
        for at in range(0, len(tokens), _TOKENS_PER_TURN):
            some = tokens[at : at + _TOKENS_PER_TURN]
            asked_for += (token for token in some if bounded(token[0]) in waiting)
            self._owners.add_unused_tokens(some)
            await asyncio.sleep(0)
        self._owners.learn_tokens(asked_for)
        return ""


def _described() -> Generator[Build, bytes, bytes]:
    return (yield delegation_tokens.describe_tokens_request)


async def _read(frame: bytes) -> list[TokenOwner]:
    """Parse a response in turns. Raises KafkaProtocolError."""
    steps = delegation_tokens.described_tokens(frame, 0, len(frame), delegation_tokens.NEWEST_DESCRIBED)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            tokens: list[TokenOwner] = end.value
            return tokens
        count += 1
        if count % _TOKENS_PER_TURN == 0:
            await asyncio.sleep(0)
