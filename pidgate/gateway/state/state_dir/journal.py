"""A journal: events of what is remembered since a snapshot, one a line, each with its own checksum.

    line    = 8 hexadecimal digits (CRC-32 of the value), a space, the value (one JSON object), a newline
    journal = a first line {"journal": version, "readable_since": oldest version that reads it}, then events

A line that was torn by the end of its process is no damage: it is the last one and has no newline. Any other
line that does not match its checksum is left out and counted; the lines after it are read. A later version that
only adds keys to the first line leaves `readable_since` alone, and this version goes on reading its journals.

The event loop only ever appends to the buffer of a `BufferedJournal`, which a thread writes every FLUSH_MS, so that a
full or hanging disk delays nobody. Buffer and journal are bounded: beyond, events are left out and counted. Everything
else here blocks, and is used by one thread at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from zlib import crc32

from pidgate.gateway.disk_thread import DiskThread
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.state.state_dir import files

log = logger()

JOURNAL_VERSION: Final = 1
READABLE_SINCE: Final = 1
_CRC_DIGITS: Final = 8
FLUSH_MS: Final = 50
"""A kill -9 loses what is younger; under 200 ms is promised, and a busy machine is late."""

RETRY_MS: Final = 1_000
BUFFER_BYTES: Final = 16 * 2**20
"""About 27,000 decisions for a disk that hangs; copying them to a thread costs milliseconds."""

FULL_AT_LIMITS: Final = 4
"""A journal that no snapshot relieves ends at so many times the size at which one was asked for."""


def to_line(value: bytes) -> bytes:
    """Return a value as a line: its newlines, which are only between JSON tokens, become spaces."""
    if b"\n" in value:
        value = value.replace(b"\n", b" ")
    return b"%08x %b\n" % (crc32(value), value)


def from_line(line: bytes) -> bytes | None:
    """Return the value; None when the line is not as it was written. The last newline may be missing."""
    value = line[_CRC_DIGITS + 1 : -1] if line.endswith(b"\n") else line[_CRC_DIGITS + 1 :]
    head = line[: _CRC_DIGITS + 1]
    return value if head == b"%08x " % crc32(value) else None


FIRST_LINE: Final = to_line(
    json.dumps({"journal": JOURNAL_VERSION, "readable_since": READABLE_SINCE}, separators=(",", ":")).encode()
)


_FIRST_KEY: Final = b'{"journal":'


class JournalWriter:
    """Writer of whole lines to the journal of one generation, which is made with its first line."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._generation = 0
        self._fd: int | None = None
        self._size_bytes = 0

    def begin(self, generation: int) -> None:
        """Write to that generation's journal from now on, also where this raises OSError."""
        self._generation = generation
        self.close()

    def write(self, lines: bytes) -> tuple[int, OSError | None]:
        """Write; return how many bytes are in the journal, always whole lines, and why not all of them.

        A part of a line that was written is overwritten by the next write.
        """
        written = 0
        try:
            fd = self._open()
            while written < len(lines):
                written += os.pwrite(fd, memoryview(lines)[written:], self._size_bytes + written)
        except OSError as error:
            whole = lines.rfind(b"\n", 0, written) + 1
            self._size_bytes += whole
            return whole, error
        self._size_bytes += written
        return written, None

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)  # is closed even where this raises, and its number may be another file's by then

    def _open(self) -> int:
        if self._fd is None:
            fd = files.create(self._directory / files.journal_name(self._generation))
            try:
                files.write_all(fd, FIRST_LINE)
            except OSError:
                os.close(fd)
                raise
            self._fd = fd
            self._size_bytes = len(FIRST_LINE)
        return self._fd


class JournalReader(Iterator[bytes]):
    """Iterator of the values of several journals, oldest first, read as they are asked for. Never raises.

    `damaged` grows while it reads: (file, reason). A damaged journal gets a second name, under which it stays when the
    next snapshot makes it superfluous.
    """

    def __init__(self, directory: Path, generations: Sequence[int]) -> None:
        self._directory = directory
        self._names = [files.journal_name(generation) for generation in generations]
        self.damaged: list[tuple[str, str]] = []
        self.lines = 0
        self._values = self._all()

    def __next__(self) -> bytes:
        value = next(self._values)
        self.lines += 1
        return value

    def _all(self) -> Iterator[bytes]:
        for name in self._names:
            strange: list[str] = []
            try:
                yield from _values(self._directory / name, strange)
            except OSError as error:
                strange.append(f"cannot be read ({error.strerror or error})")
            if strange:
                self._set_aside(name, strange[0] if len(strange) == 1 else f"{len(strange)} damaged lines")

    def _set_aside(self, name: str, reason: str) -> None:
        kept_as: str | None
        try:
            kept_as = files.keep_copy_aside(self._directory, name)
        except OSError:
            kept_as = None
        self.damaged.append((name, reason))
        log.error(
            Event.STATE_FILE_SET_ASIDE, path=str(self._directory / name), reason=reason, kept_as=kept_as
        )


def _values(path: Path, strange: list[str]) -> Iterator[bytes]:
    """Yield the good values of one journal; append what is wrong with others to `strange`."""
    with path.open("rb") as file:
        for number, line in enumerate(file):
            value = from_line(line)
            if value is None:
                if line.endswith(b"\n"):
                    strange.append(f"line {number + 1} is damaged")
            elif value.startswith(_FIRST_KEY):
                if number:
                    strange.append(f"line {number + 1} is a first line")
                if needs := _newer_reader(value):
                    strange.append(f"was written by a newer version (needs a reader of version {needs})")
                    return
            else:
                yield value


def _newer_reader(first_value: bytes) -> int:
    """Return the version a reader must have, when that is above this one's; else 0."""
    try:
        needs = json.loads(first_value)["readable_since"]
    except (ValueError, KeyError, TypeError):
        return 0
    return needs if isinstance(needs, int) and needs > JOURNAL_VERSION else 0


class BufferedJournal:
    """A journal, as the event loop uses it; `open` may be called in any thread, before."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._writer = JournalWriter(directory)
        self._thread = DiskThread("pidgate-journal")
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
        """Bytes that a restart would read beside the newest snapshot."""
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
        """Without a directory to write to: only count what is appended."""
        self._is_refusing = True

    def append(self, value: bytes) -> None:
        """Add a value, which waits for `open`. Never blocks, never raises."""
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
        """Begin a new journal; what was appended before goes to the old one if it can be written, else to the new.

        Raises OSError: whether the old one has all of it is not known.
        """
        await self.flush()
        self._older_bytes += self._current_bytes
        self._current_bytes = 0
        await self._thread.do(self._writer.begin, generation)

    def covered(self) -> None:
        """A snapshot of the current generation is complete: older journals are superfluous."""
        self._older_bytes = 0

    async def flush(self) -> bool:
        """Write what was appended before this call; False when that failed (it is kept and tried again)."""
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
        """Write what was appended, and end the thread."""
        await self.flush()
        self._is_open = False
        self._is_refusing = True
        try:
            await self._thread.do(self._writer.close)
        except OSError as error:
            self._log_failure(self.last_failure, error)
        self._thread.shutdown(wait=False)

    def abandon(self) -> None:
        """Wait for nothing any more: the disk hangs. What is appended from now on is only counted."""
        self._is_open = False
        self._is_refusing = True

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
        self._writing = self._thread.do(self._writer.write, data)
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
        self._log_failure(before, error)

    def _log_failure(self, before: OSError | None, error: OSError | None) -> None:
        """Log the first failure and the recovery, not every try between them."""
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
