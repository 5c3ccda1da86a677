"""What the event loop sees of the journal: `append` only ever adds to a buffer.

A thread writes the buffer every FLUSH_MS, so that a full or hanging disk holds up nobody; what the system has
taken outlives the process. The buffer and the journal are bounded: beyond, events are left out and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from pidgate.gateway.logs import Event, logger
from pidgate.gateway.state.state_dir.journal import JournalWriter, to_line

log = logger()

FLUSH_MS: Final = 50
"""A kill -9 loses what is younger; under 200 ms is promised, and a busy machine is late."""

RETRY_MS: Final = 1_000
BUFFER_BYTES: Final = 16 * 2**20
"""About 27,000 decisions for a disk that hangs; copying them to a thread costs milliseconds."""

FULL_AT_LIMITS: Final = 4
"""A journal that no snapshot relieves ends at so many times the size at which one was asked for."""


class BufferedJournal:
    """Call from one event loop; `open` before it, in any thread."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._writer = JournalWriter(directory)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pidgate-journal")
        self._lines: list[bytes] = []
        self._is_open = False
        self._is_refusing = False
        self._is_planned = False
        self._writing: asyncio.Future[tuple[int, OSError | None]] | None = None
        self._older_bytes = 0
        self._current_bytes = 0
        self.buffered_bytes = 0
        self.dropped = 0
        self.failures = 0
        self.last_failure: OSError | None = None
        """None when the last write went well."""

    @property
    def size_bytes(self) -> int:
        """What a restart would have to read beside the newest snapshot."""
        return self._older_bytes + self._current_bytes

    @property
    def is_over_limit(self) -> bool:
        return self.size_bytes >= self._limit_bytes

    def open(self, generation: int, older_bytes: int) -> None:
        """`older_bytes`: of the journals that the newest snapshot does not cover."""
        self._writer.begin(generation)
        self._older_bytes = older_bytes
        self._is_open = True

    def refuse(self) -> None:
        """There is no directory to write to: what is appended is counted, and no more."""
        self._is_refusing = True

    def append(self, value: bytes) -> None:
        """Never blocks, never raises. What comes before `open` waits for it."""
        if self._is_refusing:
            self.dropped += 1
            return
        line = to_line(value)
        size = len(line)
        is_full = self.size_bytes >= FULL_AT_LIMITS * self._limit_bytes
        if is_full or self.buffered_bytes + size > BUFFER_BYTES:
            self.dropped += 1
            return
        self._lines.append(line)
        self.buffered_bytes += size
        if not self._is_planned and self._writing is None:
            self._plan(FLUSH_MS)

    async def begin(self, generation: int) -> None:
        """What was appended before this call goes to the old journal if it can be written, else to the new."""
        await self.flush()
        await self._in_thread(partial(self._writer.begin, generation))
        self._older_bytes += self._current_bytes
        self._current_bytes = 0

    def covered(self) -> None:
        """A snapshot of the current generation is complete: older journals need not be read any more."""
        self._older_bytes = 0

    async def flush(self) -> bool:
        """Writes what was appended before this call; False when that failed (it is kept and tried again)."""
        if not self._is_open:
            return not self._lines
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._writing is None and self._lines:
            self._write()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        return self.last_failure is None

    async def close(self) -> None:
        await self.flush()
        self._is_open = False
        self._is_refusing = True
        await self._in_thread(self._writer.close)
        self._thread.shutdown(wait=False)

    def _in_thread(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _plan(self, delay_ms: int) -> None:
        self._is_planned = True
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._write_planned)

    def _write_planned(self) -> None:
        self._is_planned = False
        if not self._lines or self._writing is not None:
            return
        if self._is_open:
            self._write()
        elif self._is_refusing:
            self.dropped += len(self._lines)
            self.buffered_bytes = 0
            self._lines.clear()
        else:
            self._plan(FLUSH_MS)

    def _write(self) -> None:
        data = b"".join(self._lines)
        self._lines.clear()
        self._writing = self._in_thread(partial(self._writer.write, data))
        self._writing.add_done_callback(partial(self._written, data))

    def _written(self, data: bytes, done: asyncio.Future[tuple[int, OSError | None]]) -> None:
        self._writing = None
        written, error = done.result()
        self._current_bytes += written
        self.buffered_bytes -= written
        if error is not None:
            self._lines.insert(0, data[written:])
        # Planned first: a log that goes to the same full disk may raise.
        if self._lines and not self._is_planned:
            self._plan(FLUSH_MS if error is None else RETRY_MS)
        before, self.last_failure = self.last_failure, error
        self._tell(before, error)

    def _tell(self, before: OSError | None, error: OSError | None) -> None:
        """Logs the first failure and the end of failing, not every try between them."""
        path = str(self._directory)
        if error is None and before is not None:
            log.warning(Event.STATE_JOURNAL_RECOVERED, path=path, dropped=self.dropped)
        if error is None:
            return
        self.failures += 1
        if before is None:
            remedy = "make room on the disk, or make the directory writable; it is tried every second"
            log.error(
                Event.STATE_JOURNAL_FAILED,
                path=path,
                cause=str(error),
                buffered_bytes=self.buffered_bytes,
                remedy=remedy,
            )
