"""The token that a gateway creates for its own system user, where `admin.token_file` names none.

A machine may have many users, and a loopback address authenticates none of them. The token is created at each
start, in a file readable only by the gateway's user. Commands of that user find it by the port of the admin
address. The file lies in the user's home: in a shared directory such as /tmp another user could make its folder
first.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from pidgate.gateway.config.token_file import TokenUnreadable, token_in


def path_of(port: int) -> Path:
    """Return the token file of this user's gateway with this admin port."""
    return Path.home() / ".pidgate" / f"admin-{port}.token"


def token_of(port: int) -> str | None:
    """Return the token of this user's gateway. None: there is none, or the file belongs to another user."""
    try:
        path = path_of(port)
        _check_folder(path.parent)
        return token_in(path).decode()
    except (OSError, RuntimeError, TokenUnreadable):
        return None


class LocalToken:
    """A gateway's own token, written to its file by `publish`."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(32).encode()
        self.path: Path | None = None
        self.failure = ""
        """Reason for a failed write."""

    def publish(self, port: int) -> None:
        """Write the file, or record the failure. Repeatable: some systems clean up the folder of such files."""
        try:
            self.path = path = path_of(port)
            partial = path.with_name(f"{path.name}.{os.getpid()}")
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(mode=0o700)
            _check_folder(path.parent)
            partial.unlink(missing_ok=True)
            file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                os.write(file, self.token)
            finally:
                os.close(file)
            partial.replace(path)
            self.failure = ""
        except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
            self.failure = str(error)

    def withdraw(self) -> None:
        """Remove the file, unless another gateway has replaced it."""
        with contextlib.suppress(OSError, TokenUnreadable):
            if self.path is not None and token_in(self.path) == self.token:
                self.path.unlink()


def _check_folder(folder: Path) -> None:
    """Check the folder and its parent. Raises OSError if other users could make names there."""
    found, parent = folder.lstat(), folder.parent.stat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    if parent.st_uid not in (0, os.getuid()) or parent.st_mode & 0o022:
        raise PermissionError(f"others than this user and root can make names in {folder.parent}")
