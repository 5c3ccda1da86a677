"""The floor: a uvloop pass-through that looks at nothing. `python -m bench.bare_proxy LISTEN UPSTREAM`.

uvloop reads into one buffer of the loop and hands out bytes, so an idle connection holds none.
"""

import asyncio
import sys
from typing import cast

import uvloop

from pidgate import units


class Pipe(asyncio.Protocol):
    """One side of a connection: what it receives, its peer sends."""

    transport: asyncio.Transport

    def __init__(self, upstream: tuple[str, int] | None = None, peer: "Pipe | None" = None) -> None:
        self.upstream = upstream
        self.peer = peer
        self.early: list[bytes] = []
        self.connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.upstream:
            self.connecting = asyncio.get_running_loop().create_task(self.connect(*self.upstream))

    async def connect(self, host: str, port: int) -> None:
        _, self.peer = await asyncio.get_running_loop().create_connection(lambda: Pipe(peer=self), host, port)
        self.peer.transport.writelines(self.early)

    def data_received(self, data: bytes) -> None:
        if self.peer:
            self.peer.transport.write(data)
        else:
            self.early.append(data)

    def pause_writing(self) -> None:
        if self.peer:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer:
            self.peer.transport.close()


async def serve(listen: str, upstream: str) -> None:
    """Forward every connection to `listen` (host:port) to `upstream` until killed."""
    to = units.address(upstream)
    server = await asyncio.get_running_loop().create_server(
        lambda: Pipe(to), *units.address(listen), backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], sys.argv[2]))
