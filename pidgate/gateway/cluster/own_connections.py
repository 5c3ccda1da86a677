"""The gateway's own broker connections, one request at a time, for requests that aiokafka lacks."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from struct import Struct
from typing import Any, Final, TypeVar

from pidgate.gateway.cluster.resolving import Resolver
from pidgate.protocol import logins, messages
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.logins import Build
from pidgate.protocol.proxy_header import LOCAL_HEADER
from pidgate.version import version

T = TypeVar("T")

NO_BROKER: Final = (OSError, EOFError, ValueError, OverflowError, KafkaProtocolError)
"""Errors of an unreachable broker. ValueError and OverflowError mean an invalid host name or port."""

_SIZE: Final = Struct(">i")
_ANSWER_LIMIT_BYTES: Final = 8 * 1024 * 1024
_SHUTDOWN_S: Final = 1.0
"""Time for the broker's TLS shutdown; asyncio's default is 30 s."""


@asynccontextmanager
async def connection_to(
    host: str, port: int, context: ssl.SSLContext | None, resolver: Resolver, *, sends_proxy_header: bool
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect, with TLS if there is a context, and close on exit, also on cancellation.

    Raises OSError, ValueError, OverflowError.
    """
    reader, writer = await _opened(host, port, context, resolver, sends_proxy_header=sends_proxy_header)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _opened(
    host: str, port: int, context: ssl.SSLContext | None, resolver: Resolver, *, sends_proxy_header: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    secured: dict[str, Any] = {}
    if context is not None:
        secured = {"ssl": context, "ssl_shutdown_timeout": _SHUTDOWN_S, "server_hostname": host}
    problem: OSError = OSError(f"{host} has no address")
    for address in await resolver.addresses(host):
        try:
            if not sends_proxy_header:
                return await asyncio.open_connection(address, port, **secured)
            # The header precedes TLS, so it needs a socket of our own.
            return await asyncio.open_connection(sock=await _with_header(address, port), **secured)
        except OSError as error:
            problem = error
    raise problem


async def _with_header(address: str, port: int) -> socket.socket:
    """Return a connected socket after sending the PROXY header of an own connection."""
    loop = asyncio.get_running_loop()
    opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    opened.setblocking(False)
    try:
        await loop.sock_connect(opened, (address, port))
        await loop.sock_sendall(opened, LOCAL_HEADER)
    except BaseException:
        opened.close()
        raise
    return opened


def login_exchange(
    mechanism: str, user: str, password: str, nonce: str, extensions: str = ""
) -> Generator[Build, bytes, int]:
    """Yield the first requests of an own connection, including the login: see logins.log_in."""
    yield lambda n, client_id: messages.api_versions_request(n, client_id, version())
    return (yield from logins.log_in(mechanism, user, password, nonce, extensions))


async def run(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exchange: Generator[Build, bytes, T]
) -> T:
    """Send the requests that the exchange yields and feed it the responses.

    Raises its errors, OSError, EOFError.
    """
    answer, correlation_id = None, 0
    while True:
        try:
            build = next(exchange) if answer is None else exchange.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        correlation_id += 1
        writer.write(build(correlation_id, messages.CLIENT_ID))
        answer = await read_frame(reader)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next response without its size prefix. Raises OSError, EOFError, KafkaProtocolError."""
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    if not 0 <= size <= _ANSWER_LIMIT_BYTES:
        raise KafkaProtocolError(f"a response of {size} bytes: not a Kafka broker")
    return await reader.readexactly(size)
