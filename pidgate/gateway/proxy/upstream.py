"""Connecting to a port's broker: the first candidate that answers."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable, Generator
from socket import gaierror
from typing import Final

from pidgate.gateway.cluster.broker_answers import QuestionFailed
from pidgate.gateway.cluster.nodes import Address
from pidgate.gateway.cluster.own_connections import NO_BROKER
from pidgate.gateway.cluster.upstream_identity import NoIdentity
from pidgate.gateway.config.password_file import CredentialsUnreadable
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.proxy.broker_channel import BrokerChannel
from pidgate.gateway.proxy.broker_login import BrokerLogin
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.tls_connections import DialledTls
from pidgate.gateway.tls.wording import of_broker
from pidgate.protocol.logins import AnswersDiffer, Build, LoginRefused
from pidgate.protocol.messages import Question
from pidgate.protocol.proxy_header import LOCAL_HEADER, header_of

log = logger()

NOT_KNOWN_YET_S: Final = 0.1
"""A new token is known to all brokers after about 50 ms."""
REFUSED_BEFORE_ANEW: Final = 3
"""Refused logins with a token before a new one is created: the token, or its user, has been revoked."""
MOST_REFUSED_LOGINS: Final = 6


_NOT_THE_BROKERS: Final = frozenset(("login", "open_files"))
"""Causes unrelated to the broker's address: the address is kept."""


class NotSecured(Exception):
    """TLS with a broker could not be set up."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Upstream:
    """The brokers behind one listening port."""

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self._shared = context.shared

    def dial(
        self, connection: ClientConnection, question: Question | None = None
    ) -> asyncio.Task[None] | None:
        """Connect to the port's broker in the background; close the connection if none can be reached.

        With a question: find the broker's answer to it instead. Returns None if it is known.
        """
        nodes, chosen = self._shared.nodes, connection.server
        # A client stays with the broker whose answers it was told.
        targets = nodes.candidate_addresses(self._context.node_id) if chosen is None else [chosen]
        if question is not None:
            known = self._shared.broker_answers.find(targets[0], question)
            if known is not None:
                connection.server = targets[0]
                connection.broker_answered(known)
                return None
        task = self._shared.loop.create_task(self._connect(connection, targets, question))
        self._shared.connecting[task] = None
        task.add_done_callback(self._shared.connecting.pop)
        return task

    async def _connect(
        self, connection: ClientConnection, targets: list[Address], question: Question | None
    ) -> None:
        nodes = self._shared.nodes
        is_chosen = connection.server is not None
        failure = "its address is not known any more"
        tried: set[Address] = set()
        # A broker answers a foreign NodeId with REBOOTSTRAP_REQUIRED (KIP-1242).
        while (
            targets
            and not connection.is_gone
            and (self._context.node_is_known() or not connection.session.context.means_node)
        ):
            host, port = connection.server = targets.pop(0)
            tried.add((host, port))
            try:
                if question is None:
                    await self._open(connection, host, port)
                else:
                    connection.broker_answered(await self._ask((host, port), question))
            except AnswersDiffer as error:
                self._shared.broker_answers.forget((host, port))
                connection.close_now("moved", f"{host}:{port}: {error}")
                return
            except QuestionFailed as error:
                failure = f"{host}:{port} does not answer what the client names: {error}"
                break
            except TimeoutError:
                failure = f"{host}:{port} did not answer within {self._shared.connect_timeout_ms} ms"
                cause = "timeout"
            except (NoIdentity, CredentialsUnreadable) as error:
                self._connect_failed(connection, (host, port), "login", str(error))
                connection.close("login", str(error))
                return
            except NotSecured as error:
                failure, cause = f"{host}:{port}: {of_broker(error.cause, host)}", "tls"
            except NO_BROKER as error:
                # ValueError and OverflowError: the broker advertises an invalid host name or port.
                failure = f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
                cause = _cause_of(error)
            else:
                return
            self._connect_failed(connection, (host, port), cause, failure)
            if not targets and cause != "timeout" and not is_chosen:
                # A removed node is no longer known, and the other brokers are substituted for it.
                targets = [
                    target
                    for target in nodes.candidate_addresses(self._context.node_id)
                    if target not in tried
                ]
        connection.close("unreachable", f"no broker could be reached: {failure}")

    async def _ask(self, address: Address, question: Question) -> bytes:
        """Return a broker's answer to a question. Raises NotSecured, and the exceptions of BrokerAnswers.ask."""
        try:
            return await self._shared.broker_answers.ask(address, question)
        except ssl.SSLError as error:
            raise NotSecured(error) from error

    async def _open(self, connection: ClientConnection, host: str, port: int) -> None:
        """Connect and, where the gateway logs in for clients, log in; otherwise repeat what the client was told.

        Raises NoIdentity, CredentialsUnreadable, AnswersDiffer, and the exceptions of _connect_as.
        """
        identity = self._shared.upstream_identity
        introduction = connection.session.context.login.introduction
        if identity is None:
            await self._connect_as(connection, host, port, introduction())
            return
        certified, refused = connection.certificate_user, 0
        user = connection.client.user if certified is None else certified
        while True:
            login = await identity.login_of(user, is_certified=certified is not None)
            try:
                session_lifetime_ms = await self._connect_as(
                    connection,
                    host,
                    port,
                    introduction() if login is None else login.exchange(identity.nonce()),
                )
            except LoginRefused as error:
                assert login is not None
                refused += 1
                if not login.is_of_client or refused == MOST_REFUSED_LOGINS:
                    raise NoIdentity(str(error)) from error
                if refused == REFUSED_BEFORE_ANEW:
                    identity.record_refusal(user, login)
                await asyncio.sleep(NOT_KNOWN_YET_S)
            else:
                connection.age.logged_in(session_lifetime_ms, self._shared.now_ms())
                return

    async def _connect_as(
        self,
        connection: ClientConnection,
        host: str,
        port: int,
        exchange: Generator[Build, bytes, int] | None,
    ) -> int:
        """Connect, set up TLS where configured, and run the exchange of a login or an introduction, if any.

        Returns the session's lifetime in ms, 0 if unlimited. Raises TimeoutError, NotSecured, LoginRefused,
        KafkaProtocolError, OSError, ValueError, OverflowError.
        """
        tls = self._shared.upstream_tls
        header = _header(connection) if self._shared.sends_proxy_header else b""
        behind_tls = header if tls is None else b""
        login = None if exchange is None else BrokerLogin(connection, exchange, behind_tls)
        reader = BrokerChannel(connection, behind_tls) if login is None else login
        # The deadline does not cover the token request: another broker's delay must not count against this
        # one.
        deadline = _Deadline(self._shared.loop, self._shared.connect_timeout_ms / 1000)
        try:
            if tls is None:
                await self._to_first_address(reader.as_protocol, host, port)
            else:
                await self._secure(DialledTls(reader, connection, tls.context, host, header), host, port)
            if login is None:
                return 0
            try:
                return await login.done
            finally:
                if not login.done.done() or login.done.cancelled():
                    login.socket.abort()
        except asyncio.CancelledError:
            deadline.raise_if_over()
            raise
        finally:
            deadline.timer.cancel()

    async def _to_first_address(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect to the first of a host's addresses that accepts."""
        problem: OSError | None = None
        for address in await self._shared.nodes.resolver.addresses(host):
            try:
                await self._shared.loop.create_connection(protocol, address, port)
            except OSError as error:
                problem = error
            else:
                return
        assert problem is not None
        raise problem

    async def _secure(self, dialled: DialledTls, host: str, port: int) -> None:
        await self._to_first_address(dialled.as_protocol, host, port)
        try:
            await dialled.done
        except OSError as error:
            raise NotSecured(error) from error
        finally:
            if not dialled.done.done() or dialled.done.cancelled():
                dialled.abort()

    def _connect_failed(
        self, connection: ClientConnection, address: Address, cause: str, failure: str
    ) -> None:
        self._shared.counters.upstream_failures[cause] += 1
        self._shared.broker_answers.forget(address)
        if self._context.node_id is not None and cause not in _NOT_THE_BROKERS:
            self._shared.nodes.forget_address(self._context.node_id, address)
        # Refused clients reconnect immediately: one log line a second is enough, the counter has them all.
        server, limit = f"{address[0]}:{address[1]}", self._shared.upstream_log
        if (left_out := limit.take(None, self._shared.now_ms())) is not None:
            log.warning(
                Event.UPSTREAM_FAILED,
                server=server,
                cause=cause,
                reason=failure,
                suppressed_count=left_out,
                **connection.describe(),
            )


class _Deadline:
    """Cancels the running task after a time. asyncio.timeout would ask the kernel three times for the process's id."""

    def __init__(self, loop: asyncio.AbstractEventLoop, after_s: float) -> None:
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._is_over = False
        self.timer = loop.call_later(after_s, self._end)

    def _end(self) -> None:
        self._is_over = True
        self._task.cancel()

    def raise_if_over(self) -> None:
        """Raise TimeoutError if the deadline alone cancelled the task."""
        if self._is_over and not self._task.uncancel():
            raise TimeoutError from None


def _header(connection: ClientConnection) -> bytes:
    ends = connection.origin or connection.socket.endpoints()
    try:
        return LOCAL_HEADER if ends is None else header_of(*ends)
    except ValueError:  # not an IP socket
        return LOCAL_HEADER


def _cause_of(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "open_files"
    return "resolve" if isinstance(error, gaierror | UnicodeError) else "unreachable"
