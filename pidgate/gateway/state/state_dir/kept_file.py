"""A small JSON file of the state directory, written in the background after each change.

    <name>    {"version": 1, "crc32": of `kept`, "kept": [...]}

The file is replaced as a whole; a damaged one is set aside. The directory's owner holds its lock (lock.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from zlib import crc32

from pidgate.gateway.disk_thread import aside
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.state.state_dir import files

log = logger()

T = TypeVar("T")

VERSION: Final = 1
CLOSING_S: Final = 3.0
"""Time to write the newest changes during a stop."""
_REMEDY: Final = "make room on the disk, or make the directory writable for the gateway's user"


class FileUnreadable(Exception):
    """The file is not used at all. The text is the reason."""


class KeptFile(Generic[T]):
    """Background saving of `contents()`: call `read` once, then `changed` after every change.

    `to_json` and `from_json` convert one entry. `from_json` raises ValueError, KeyError, TypeError.
    """

    def __init__(
        self,
        directory: str | Path,
        name: str,
        contents: Callable[[], list[T]],
        to_json: Callable[[T], object],
        from_json: Callable[[Any], T],
    ) -> None:
        self._directory = Path(directory)
        self._name = name
        self._contents = contents
        self._to_json = to_json
        self._from_json = from_json
        self._wanted = 0
        self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self.failures = 0
        self.last_failure = ""
        """Cause of the last failed write; empty after a success."""

    def read(self) -> list[T]:
        """Read the file; blocks briefly.

        Sets a damaged file aside and logs an unreadable one; raises nothing.
        """
        path = self._directory / self._name
        try:
            return self.decoded(path.read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            log.error(
                Event.STATE_DIR_UNUSABLE,
                path=str(path),
                cause=str(error),
                remedy="let the gateway's user read and write the directory state_dir",
            )
        except FileUnreadable as error:
            self._set_aside(str(error))
        return []

    def _set_aside(self, reason: str) -> None:
        kept_as: str | None = None
        # In a read-only directory the file stays in place, and the next start logs it again.
        with contextlib.suppress(OSError):
            kept_as = files.set_aside(self._directory, self._name)
        path = str(self._directory / self._name)
        log.error(Event.STATE_FILE_SET_ASIDE, path=path, reason=reason, kept_as=kept_as)

    @property
    def is_behind(self) -> bool:
        """Return whether the newest contents are neither on disk nor being written: the last write failed."""
        return self._written < self._wanted and (self._writing is None or self._writing.done())

    def changed(self) -> None:
        """Schedule a background write of the current contents. Calls coalesce."""
        self._wanted += 1
        self.try_again()

    def try_again(self) -> None:
        """Start a background write unless one runs."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def kept(self) -> bool:
        """Wait for the pending writes; return whether they are on disk."""
        wanted = self._wanted
        while self._written < wanted and self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing])
        return self._written >= wanted

    async def close(self) -> None:
        """Wait for the pending writes. A hanging disk is abandoned after CLOSING_S."""
        try:
            async with asyncio.timeout(CLOSING_S):
                await self.kept()
        except TimeoutError:
            self._log_failure(f"the disk hangs: the stop did not wait for it beyond {CLOSING_S:g} s")

    async def _write(self) -> None:
        while self._written < self._wanted:
            wanted = self._wanted
            try:
                await aside(self._replace, self.encoded(self._contents()))
            except OSError as error:
                self._log_failure(str(error))
                return
            self._written, self.last_failure = wanted, ""

    def _log_failure(self, cause: str) -> None:
        self.failures += 1
        self.last_failure = cause
        log.error(
            Event.STATE_NOT_SAVED,
            path=str(self._directory / self._name),
            cause=cause,
            failures=self.failures,
            remedy=_REMEDY,
        )

    def _replace(self, data: bytes) -> None:
        """Write and sync a new file, then rename it over the old one. Raises OSError."""
        files.make_directory(self._directory)
        partial = self._directory / f"{self._name}.partial"
        fd = files.create(partial)
        try:
            files.write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(partial, self._directory / self._name)
        files.sync_directory(self._directory)

    def encoded(self, entries: list[T]) -> bytes:
        """Return the contents of the file."""
        kept = [self._to_json(entry) for entry in entries]
        whole = {"version": VERSION, "crc32": crc32(_text(kept)), "kept": kept}
        return json.dumps(whole, indent=1).encode() + b"\n"

    def decoded(self, data: bytes) -> list[T]:
        """Decode the contents of the file. Raises FileUnreadable unless all of it is valid."""
        try:
            whole = json.loads(data)
            if whole["version"] != VERSION:
                raise FileUnreadable(f"version {whole['version']!r}; this gateway reads version {VERSION}")
            kept = whole["kept"]
            if whole["crc32"] != crc32(_text(kept)):
                raise FileUnreadable("its checksum is wrong")
            return [self._from_json(one) for one in kept]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FileUnreadable(f"has invalid contents ({error!r})") from error


def _text(kept: object) -> bytes:
    return json.dumps(kept, separators=(",", ":"), sort_keys=True).encode()
