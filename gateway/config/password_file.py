"""The password of the gateway's own client, read whenever it logs in, so that a changed one is used."""

from __future__ import annotations

from pathlib import Path


class CredentialsUnreadable(Exception):
    """The password file, or a file of cluster.tls, cannot be used."""


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file with a secret cannot be read. The text of a UnicodeDecodeError has a byte of it."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not {error.encoding.upper()}"
    return str(error)


def password_in(file: str) -> str:
    """Return the password of own_client.sasl.password_file. Raises CredentialsUnreadable."""
    try:
        # A newline at the end belongs to the editor, not to the password.
        return Path(file).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        problem = unreadable(error)
    # Out here, so that no error hangs on this one that has the whole password in it.
    raise CredentialsUnreadable(f"own_client.sasl.password_file: {problem}")
