"""Authenticated requests of the gateway to brokers, each on its own connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

from pidgate.gateway.cluster.nodes import Nodes
from pidgate.gateway.cluster.own_connections import NO_BROKER, connection_to, login_exchange, run
from pidgate.gateway.config.password_file import password_in
from pidgate.gateway.config.settings import SaslSettings
from pidgate.gateway.tls.live import LiveContext
from pidgate.protocol.logins import Build, LoginRefused

T = TypeVar("T")


class NotAnswered(Exception):
    """No broker responded or accepted the login. The text has the reason and no secret."""


class OwnQuestions:
    """Requests to the first broker that responds, with the credentials of `own_client`."""

    def __init__(
        self,
        sasl: SaslSettings,
        nonce: Callable[[], str],
        nodes: Nodes,
        timeout_ms: int,
        tls: LiveContext | None,
        *,
        sends_proxy_header: bool,
    ) -> None:
        self._sasl = sasl
        self._nonce = nonce
        self._nodes = nodes
        self._timeout_s = timeout_ms / 1000
        self._tls = tls
        self._sends_proxy_header = sends_proxy_header

    async def ask_broker(self, question: Callable[[], Generator[Build, bytes, T]]) -> T:
        """Run the exchange made by `question` and return its result.

        Raises NotAnswered, CredentialsUnreadable.
        """
        problem: Exception = NotAnswered("no broker is known")
        for host, port in self._nodes.candidate_addresses(None):
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._asked_of(host, port, question())
            except LoginRefused as error:
                raise NotAnswered(f"own_client: {error}") from error
            except (*NO_BROKER, TimeoutError) as error:
                problem = error
        raise NotAnswered(str(problem) or type(problem).__name__) from problem

    async def _asked_of(self, host: str, port: int, question: Generator[Build, bytes, T]) -> T:
        context = None if self._tls is None else self._tls.context
        opening = connection_to(
            host, port, context, self._nodes.resolver, sends_proxy_header=self._sends_proxy_header
        )
        async with opening as (reader, writer):
            sasl = self._sasl
            password = password_in(sasl.password_file)
            await run(reader, writer, login_exchange(sasl.mechanism, sasl.username, password, self._nonce()))
            return await run(reader, writer, question)
