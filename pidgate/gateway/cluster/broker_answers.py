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

from pidgate.gateway.cluster.own_connections import connection_to, read_frame
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
        self._locks: WeakValueDictionary[tuple[Address, tuple[int, int] | None], asyncio.Lock] = (
            WeakValueDictionary()
        )

    def find(self, address: Address, question: Question) -> bytes | None:
        """Return the broker's answer to a question if it is known and fresh."""
        usual = self._fresh(address, question, b"")
        if not question.named or (usual is not None and _is_unsupported(usual)):
            return usual
        return self._fresh(address, question, question.named)

    async def ask(self, address: Address, question: Question) -> bytes:
        """Return the broker's answer to a question, and ask the broker if it is not known.

        Raises TimeoutError, OSError, EOFError, ValueError, OverflowError, KafkaProtocolError.
        """
        # Usual questions have locks of their own: they never wait for those of hostile clients.
        kind = None if question.named else (question.api_key, question.api_version)
        lock = self._locks.setdefault((address, kind), asyncio.Lock())
        async with asyncio.timeout(self.timeout_s), lock:
            known = self.find(address, question)
            if known is not None:
                return known
            asked_ms = self._now_ms()
            async with self.connection_to(address) as (reader, writer):
                writer.write(question.frame)
                answer = await read_frame(reader)
        if len(answer) > LONGEST_ANSWER_BYTES:
            raise FrameTooLarge(f"an answer of {len(answer)} bytes before a login")
        check_answer(question, answer)
        self._keep(address, question, asked_ms, answer)
        return answer

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

    def _fresh(self, address: Address, question: Question, named: bytes) -> bytes | None:
        kept = self._kept.get((address, question.api_key, question.api_version, named))
        if kept is None or self._now_ms() - kept[0] > KEPT_MS:
            return None
        return kept[1]

    def _keep(self, address: Address, question: Question, asked_ms: int, answer: bytes) -> None:
        if question_error(answer) not in _KEPT_ERRORS:
            return
        named = b"" if _is_unsupported(answer) else question.named
        key = address, question.api_key, question.api_version, named
        self._kept.pop(key, None)
        self._kept[key] = asked_ms, answer
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]


def _is_unsupported(answer: bytes) -> bool:
    """Return whether the broker does not know the request's version, whatever the request names."""
    return question_error(answer) == ErrorCode.UNSUPPORTED_VERSION
