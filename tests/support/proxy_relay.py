"""A relay that demands a PROXY header of every connection, notes what it says, and hands on the rest."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Self

from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.proxy_header import HEAD_BYTES, Origin, bytes_behind, origin
from tests.support.pumping import hand_on

HOST = "127.0.0.1"
_FIRST_BYTES = 4096


class Told(NamedTuple):
    """What a connection said of itself."""

    origin: Origin | None
    """None: the header says that the connection is the sender's own."""
    first: bytes
    """What came first behind the header."""


class ProxyRelay:
    """Stands before one broker, on the event loop of whoever enters it."""

    def __init__(self, to: tuple[str, int], port: int = 0) -> None:
        self._to = to
        self.port = port
        self.told: list[Told] = []
        """By each connection that sent something, in the order in which they did."""
        self.refused: list[str] = []
        """Why connections were closed."""
        self._pumps = set[asyncio.Task[None]]()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def origins(self) -> list[Origin]:
        """Whom connections were made for, without the sender's own."""
        return [told.origin for told in self.told if told.origin is not None]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            head = await reader.readexactly(HEAD_BYTES)
            header = head + await reader.readexactly(bytes_behind(head))
            of = origin(header)
            first = await reader.read(_FIRST_BYTES)
            if not first:
                return
            self.told.append(Told(of, first))
            there, back = await asyncio.open_connection(*self._to)
            back.write(first)
            try:
                await asyncio.gather(_hand_on(reader, back), _hand_on(there, writer))
            finally:
                back.transport.abort()
        except MalformedFrame as error:
            self.refused.append(str(error))
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
            self._pumps.discard(task)


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await hand_on(reader, writer)
    writer.close()
