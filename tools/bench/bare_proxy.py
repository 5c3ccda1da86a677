"""The floor: a uvloop pass-through that looks at nothing. `python -m tools.bench.bare_proxy SHAPE LISTEN UPSTREAM`.

In two shapes, since neither is the cheaper one for every load: `bare` gets bytes of its own for each read
(asyncio.Protocol); `bare-buffered` reads into a buffer of the process and writes from there, without a copy
(asyncio.BufferedProtocol). An idle connection holds no buffer in either.
"""

import asyncio
import sys
from collections.abc import Mapping
from typing import ClassVar, Final, cast

import uvloop

from pidgate import units

READ_BYTES: Final = 256 * 1024
"""As much as uvloop reads for the other shape."""
WRITE_HIGH_BYTES: Final = 512 * 1024
"""Two full reads: with the default, 64 KiB, bulk would stop and go at each of them."""


class _Pipe(asyncio.BaseProtocol):
    """One side of a connection: what it receives, its peer sends."""

    transport: asyncio.Transport

    def __init__(self, upstream: tuple[str, int] | None = None, peer: "_Pipe | None" = None) -> None:
        self.upstream = upstream
        self.peer = peer
        self.early: list[bytes] = []
        self.connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if self.upstream:
            self.connecting = asyncio.get_running_loop().create_task(self.connect(*self.upstream))

    async def connect(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        # uvloop asks for the shape, not for the class.
        _, peer = await loop.create_connection(
            lambda: cast(asyncio.Protocol, type(self)(peer=self)), host, port
        )
        self.peer = cast(_Pipe, peer)
        self.peer.transport.writelines(self.early)

    def pause_writing(self) -> None:
        if self.peer:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer:
            self.peer.transport.close()


class BytesPipe(_Pipe, asyncio.Protocol):
    """Each read is bytes of its own."""

    def data_received(self, data: bytes) -> None:
        if self.peer:
            self.peer.transport.write(data)
        else:
            self.early.append(data)


class BufferedPipe(_Pipe, asyncio.BufferedProtocol):
    """Every read goes into the one buffer of the process, until the kernel does not take all of it at once."""

    buffer: ClassVar = memoryview(bytearray(READ_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        return BufferedPipe.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = BufferedPipe.buffer[:nbytes]
        if not self.peer:
            self.early.append(bytes(data))
            return
        transport = self.peer.transport
        transport.write(data)
        if transport.get_write_buffer_size():  # it is not done with these bytes
            BufferedPipe.buffer = memoryview(bytearray(READ_BYTES))


SHAPES: Final[Mapping[str, type[_Pipe]]] = {"bare": BytesPipe, "bare-buffered": BufferedPipe}


async def serve(shape: type[_Pipe], listen: str, upstream: str) -> None:
    """Forward every connection to `listen` (host:port) to `upstream` until killed."""
    to = units.address(upstream)
    server = await asyncio.get_running_loop().create_server(
        lambda: cast(asyncio.Protocol, shape(to)), *units.address(listen), backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(SHAPES[sys.argv[1]], *sys.argv[2:]))
