"""One direction of a relay between two asyncio streams."""

from __future__ import annotations

import asyncio
import contextlib

_CHUNK_BYTES = 256 * 1024


async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Write what is read until either side ends. Leaves the writer open."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
