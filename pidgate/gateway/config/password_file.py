"""The password of the gateway's own client, read at each login, so that a changed one is used."""

from __future__ import annotations

from pathlib import Path


class CredentialsUnreadable(Exception):
    """The password file, or a file of cluster.tls, cannot be used."""


def secret_in(file: Path, encoding: str = "utf-8") -> str:
    """Return the secret in a file, without the trailing newline added by editors.

    Raises CredentialsUnreadable with nothing but the reason.
    """
    try:
        return file.read_text(encoding).rstrip("\r\n")
    except OSError as error:
        problem = str(error)
    except UnicodeDecodeError as error:
        # The exception's text contains a byte of the secret.
        problem = f"it is not {error.encoding.upper()}"
    # Raised outside, so that it is not chained to an exception that holds the whole secret.
    raise CredentialsUnreadable(problem)


def password_in(file: str) -> str:
    """Return the password of own_client.password_file. Raises CredentialsUnreadable."""
    try:
        return secret_in(Path(file))
    except CredentialsUnreadable as error:
        problem = str(error)
    raise CredentialsUnreadable(f"own_client.password_file: {problem}")
