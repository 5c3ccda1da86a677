"""The token of the admin address: one word in a file, read again when the file has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LONGEST_TOKEN_FILE: Final = 4_096


class TokenUnreadable(Exception):
    """The token file is not there, empty or too long; the text names the remedy."""


class TokenFile:
    """A token in a file, read again when the file is another one or has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = b""

    def read(self) -> bytes:
        """Return the current token. Raises TokenUnreadable."""
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                self._token = token_in(self._path)
                self._seen = seen
        except OSError as error:
            self._seen = None
            reason = error.strerror or str(error)
            raise TokenUnreadable(f"admin.token_file {self._path} cannot be read ({reason})") from error
        return self._token


def token_in(path: Path) -> bytes:
    """Read the file's one word. Raises OSError, TokenUnreadable."""
    with path.open("rb") as file:
        text = file.read(_LONGEST_TOKEN_FILE + 1).strip()
    if not text or len(text) > _LONGEST_TOKEN_FILE or len(text.split()) != 1 or not text.isascii():
        raise TokenUnreadable(f"token file {path} must hold one word, at most {_LONGEST_TOKEN_FILE} bytes")
    return text
