"""Speaks TLS to a gateway for clients that do not: for attacks whose every byte is chosen, and sent from any thread.

Python's own TLS sockets may not be read and written by two threads at once.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from pidgate.load.plan import Address
from tests.support.pumping import hand_on
from tools.sandbox.certificates import Authority

_HOST = "127.0.0.1"


class Certificates(NamedTuple):
    """Of a listener: its `tls` section, and a context that trusts it."""

    of_listener: dict[str, str]
    of_client: ssl.SSLContext


@contextmanager
def certificates() -> Iterator[Certificates]:
    """Certificates of an authority of their own, while the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        pair = authority.issue("gateway")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(authority.ca_file)
        yield Certificates({"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}, context)


class TlsForwarder:
    """Listens without TLS, and passes on with it; in a thread of its own. An end of either side ends the other."""

    def __init__(self, to: Address, context: ssl.SSLContext) -> None:
        self._to = to
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._pumps = set[asyncio.Task[None]]()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.address = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.address = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> str:
        self._server = await asyncio.start_server(self._accepted, _HOST, 0, backlog=1_000)
        port: int = self._server.sockets[0].getsockname()[1]
        return f"{_HOST}:{port}"

    async def _stop(self) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            there, back = await asyncio.open_connection(*self._to, ssl=self._context)
            pumps = [
                asyncio.ensure_future(hand_on(reader, back)),
                asyncio.ensure_future(hand_on(there, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                back.transport.abort()
        except OSError:
            pass
        finally:
            writer.close()
            self._pumps.discard(task)
