"""Lock of a state directory for one live gateway: a flock, which the kernel releases when its process dies."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from pidgate.gateway.errors import CannotStart

LOCK_FILE: Final = "lock"
_NO_LOCKS_HERE: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
_MOST_OF_A_PID: Final = 20


class StateDirInUse(CannotStart):
    """Another live gateway has locked the directory: two would delete each other's files."""

    def __init__(self, path: Path, pid: str) -> None:
        who = f"process {pid}" if pid else "another process"
        super().__init__(
            f"the state directory {path} is in use by {who}; give each gateway its own state_dir, "
            f"or wait until that one has stopped"
        )


class DirectoryLock:
    """Held from `take` to `release`, or until the process ends in any way."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd: int | None = None

    def take(self) -> None:
        """Lock the directory. On a file system without locks nothing is held.

        Raises StateDirInUse; OSError when the directory cannot be opened at all.
        """
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _pid_in(fd)
            os.close(fd)
            raise StateDirInUse(self._directory, pid) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                os.close(fd)
                raise
        self._fd = fd
        self._write_pid()

    @property
    def is_held(self) -> bool:
        return self._fd is not None

    def release(self) -> None:
        """Unlock.

        The file stays: if it were unlinked, a third gateway could lock a new one while a second waits for
        this.
        """
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        path = self._directory / LOCK_FILE
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES):
                raise
            # A read-only directory can still be read, and reading needs a lock too: the directory's own.
            return os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _write_pid(self) -> None:
        """Write the pid for a second gateway's error. The lock works without it (full disk, read-only)."""
        if self._fd is None:
            return
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            return


def _pid_in(fd: int) -> str:
    try:
        text = os.pread(fd, _MOST_OF_A_PID, 0).strip()
    except OSError:  # the lock is on the directory itself
        return ""
    return text.decode() if text.isdigit() else ""
