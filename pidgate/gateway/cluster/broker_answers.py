"""Answers of brokers to ApiVersions and SaslHandshake, shared by all clients that have not logged in.

A broker gives all of them the same answers, so a client that has not logged in needs no broker connection of its own.
An answer is used for a minute, and no longer than its broker can be reached. Each client's connection to its broker
begins with the same question (upstream.py), so that no client logs in with an outdated answer.

A question that names a target cluster or an odd software may be refused by the broker. A refusal is not kept, so
clients cannot fill the memory with invented names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final
from weakref import WeakValueDictionary

from pidgate.gateway.cluster.own_connections import NO_BROKER, connection_to, read_frame
from pidgate.gateway.cluster.resolving import Resolver
from pidgate.gateway.tls.live import LiveContext
from pidgate.protocol.errors import ErrorCode, FrameTooLarge
from pidgate.protocol.messages import Question, check_answer, question_error

KEPT_MS: Final = 60_000
"""Age up to which an answer is used."""
MOST_KEPT: Final = 8_192
"""Answers: seven of each node that may be learnt."""
LONGEST_ANSWER_BYTES: Final = 64 * 1024
"""Largest answer. ApiVersions lists about a hundred APIs of a few bytes each."""
_KEPT_ERRORS: Final = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    )
)
"""Errors that do not depend on what the question names, nor on the moment."""

Address = tuple[str, int]
_Key = tuple[Address, int, int, bytes]


class QuestionFailed(Exception):
    """A broker did not answer what a client named, although it answers others."""


class BrokerAnswers:
    """Asks each broker at most once a minute, and one question that names something at a time."""

    def __init__(
        self,
        resolver: Resolver,
        timeout_ms: int,
        now_ms: Callable[[], int],
        tls: LiveContext | None = None,
        *,
        sends_proxy_header: bool = False,
    ) -> None:
        self._resolver = resolver
        self.timeout_s = timeout_ms / 1000
        self._now_ms = now_ms
        self.tls = tls
        self._sends_proxy_header = sends_proxy_header
        self._kept: dict[_Key, tuple[int, bytes]] = {}
        """When it was asked for, and the answer without its size prefix; oldest first."""
        self._running: dict[_Key, asyncio.Task[bytes]] = {}
        """Questions without names, each shared by all that wait for it."""
        self._locks: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()
        """Of a broker's questions with names."""

    def find(self, address: Address, question: Question) -> bytes | None:
        """Return the broker's answer to a question if it is known and fresh."""
        usual = self._fresh(address, question.api_key, question.api_version, b"")
        if usual is None or not question.named or _is_unsupported(usual):
            return usual
        return self._fresh(address, question.api_key, question.api_version, question.named)

    async def ask(self, address: Address, question: Question) -> bytes:
        """Return the broker's answer to a question, and ask the broker if it is not known.

        Raises TimeoutError, OSError, EOFError, ValueError, OverflowError, KafkaProtocolError; QuestionFailed.
        """
        # A broker that answers the question without its names is not to blame for what becomes of the other.
        usual = await self._ask_usual(address, question.without_names)
        if not question.named or _is_unsupported(usual):
            return usual
        async with self._locks.setdefault(address, asyncio.Lock()):
            known = self.find(address, question)
            if known is not None:
                return known
            try:
                return await self.ask_anew(address, question)
            except NO_BROKER as error:
                raise QuestionFailed(str(error) or type(error).__name__) from error

    async def ask_anew(self, address: Address, question: Question) -> bytes:
        """Ask the broker, whatever is known. Raises as `ask` does, but for QuestionFailed."""
        asked_ms = self._now_ms()
        async with asyncio.timeout(self.timeout_s), self.connection_to(address) as (reader, writer):
            writer.write(question.frame)
            answer = await read_frame(reader)
        if len(answer) > LONGEST_ANSWER_BYTES:
            raise FrameTooLarge(f"an answer of {len(answer)} bytes before a login")
        check_answer(question, answer)
        if question_error(answer) in _KEPT_ERRORS:
            self._keep((address, question.api_key, question.api_version, question.named), asked_ms, answer)
        return answer

    def stop(self) -> None:
        """Ask no more: the gateway ends."""
        for task in self._running.values():
            task.cancel()

    async def _ask_usual(self, address: Address, question: Question) -> bytes:
        known = self.find(address, question)
        if known is not None:
            return known
        key = address, question.api_key, question.api_version, b""
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.ensure_future(self.ask_anew(address, question))
            running.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(running)

    def _ended(self, key: _Key, done: asyncio.Task[bytes]) -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # those that wait have it, or are gone

    def connection_to(
        self, address: Address
    ) -> AbstractAsyncContextManager[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Return a connection of the gateway's own, without a login: see own_connections.connection_to."""
        context = None if self.tls is None else self.tls.context
        return connection_to(*address, context, self._resolver, sends_proxy_header=self._sends_proxy_header)

    def forget(self, address: Address) -> None:
        """Forget the answers of a broker that could not be reached, or that answers differently."""
        for key in [key for key in self._kept if key[0] == address]:
            del self._kept[key]

    def _fresh(self, *key: *_Key) -> bytes | None:
        kept = self._kept.get(key)
        if kept is None or self._now_ms() - kept[0] > KEPT_MS:
            return None
        return kept[1]

    def _keep(self, key: _Key, asked_ms: int, answer: bytes) -> None:
        self._kept.pop(key, None)
        self._kept[key] = asked_ms, answer
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]


def _is_unsupported(answer: bytes) -> bool:
    """Return whether the broker does not know the request's version, whatever the request names."""
    return question_error(answer) == ErrorCode.UNSUPPORTED_VERSION
