"""The token of the admin address: one word in a file, read for each request that requires it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LONGEST_TOKEN_FILE: Final = 4_096


class TokenUnreadable(Exception):
    """The token file is missing, empty or too long. The text names the remedy."""


def scrape_token_file(token_file: Path) -> Path:
    """Return the file of the token that opens /metrics alone. It may be missing."""
    return token_file.with_name(f"{token_file.name}.scrape")


def token_now(path: Path) -> bytes:
    """Return the token currently in the file. Raises TokenUnreadable."""
    try:
        return token_in(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TokenUnreadable(f"admin.token_file {path} cannot be read ({reason})") from error


def token_in(path: Path) -> bytes:
    """Read the file's one word. Raises OSError, TokenUnreadable."""
    with path.open("rb") as file:
        text = file.read(_LONGEST_TOKEN_FILE + 1).strip()
    if not text or len(text) > _LONGEST_TOKEN_FILE or len(text.split()) != 1 or not text.isascii():
        raise TokenUnreadable(f"token file {path} must hold one word, at most {_LONGEST_TOKEN_FILE} bytes")
    return text
