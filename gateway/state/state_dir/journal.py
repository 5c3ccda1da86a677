"""A journal: decision events since a snapshot, one a line, each with its own checksum.

    line    = 8 hexadecimal digits (CRC-32 of the value), a space, the value (one JSON object), a newline
    journal = a first line {"journal": version, "readable_since": oldest version that reads it}, then events

A line that was torn by the end of its process is no damage: it is the last one and has no newline. Any other
line that does not match its checksum is left out and counted; the lines after it are read. A later version that
only adds keys to the first line leaves `readable_since` alone, and this version goes on reading its journals.

Everything here blocks, and is used by one thread at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from pidgate.gateway.logs import Event, logger
from pidgate.gateway.state.state_dir import files

log = logger()

JOURNAL_VERSION: Final = 1
READABLE_SINCE: Final = 1
_CRC_DIGITS: Final = 8
_OVERHEAD: Final = _CRC_DIGITS + 2


def to_line(value: bytes) -> bytes:
    """A newline between the tokens of a JSON text means no more than a space; inside a string there is none."""
    if b"\n" in value:
        value = value.replace(b"\n", b" ")
    return b"%08x %b\n" % (crc32(value), value)


def from_line(line: bytes) -> bytes | None:
    """The value; None when the line is not as it was written. The last newline may be missing."""
    value = line[_CRC_DIGITS + 1 : -1] if line.endswith(b"\n") else line[_CRC_DIGITS + 1 :]
    head = line[: _CRC_DIGITS + 1]
    return value if head == b"%08x " % crc32(value) else None


FIRST_LINE: Final = to_line(
    json.dumps({"journal": JOURNAL_VERSION, "readable_since": READABLE_SINCE}, separators=(",", ":")).encode()
)


_FIRST_KEY: Final = b'{"journal":'


class JournalWriter:
    """Writes whole lines to the journal of one generation, which is made with its first line."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._generation = 0
        self._fd: int | None = None
        self._size_bytes = 0

    def begin(self, generation: int) -> None:
        """What is written from now on goes to that generation's journal."""
        self.close()
        self._generation = generation

    def write(self, lines: bytes) -> tuple[int, OSError | None]:
        """How many bytes of `lines` are in the journal now, always whole lines, and why it is not all of them.

        A part of a line that did get there is overwritten by the next write.
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
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

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
    """The values of several journals, oldest first, read as they are asked for. Never raises.

    `damaged` grows while it reads: (file, reason). A damaged journal keeps a second name, so that somebody can
    look into it after the next snapshot has made it superfluous.
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
    """The good values of one journal; whatever else it holds is told in `strange`."""
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
    """The version a reader must have, when that is above this one's; else 0."""
    try:
        needs = json.loads(first_value)["readable_since"]
    except (ValueError, KeyError, TypeError):
        return 0
    return needs if isinstance(needs, int) and needs > JOURNAL_VERSION else 0
