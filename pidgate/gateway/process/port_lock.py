"""Lock of a shared port: gateways that listen on one port belong to one fleet.

With `reuse_port` the kernel deals the connections of a port to every process of the same user that listens on it. A
gateway of another cluster would get some of them, with the passwords that clients send. So each port has a file in a
directory that only the user can write to. It holds the events topic and the bootstrap servers of the gateways on that
port, and each of them keeps a shared flock on it while it lives. The system lifts a flock when its process dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pidgate.gateway.errors import CannotStart

LONGEST_CONTENT_BYTES: Final = 64 * 1024

Fleet = Mapping[str, object]
"""Events topic and bootstrap servers: equal for all gateways of a port."""


class PortOfAnotherFleet(CannotStart):
    """Gateways of another cluster or of another events topic listen on the port."""

    def __init__(self, port: int, theirs: str, ours: str) -> None:
        super().__init__(
            f"port {port} is shared by gateways of another fleet ({theirs}); this one is {ours}. With reuse_port all "
            f"gateways of a port need the same cluster.bootstrap_servers and events.topic; choose another port"
        )


class PortLocks:
    """The locks of one gateway, held from `hold` to `release` or to the end of the process."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._descriptors: dict[int, int] = {}

    def hold(self, ports: Sequence[int], fleet: Fleet) -> None:
        """Lock each port for gateways of this fleet.

        Raises PortOfAnotherFleet; CannotStart where the directory belongs to somebody else.
        """
        directory = self._directory or user_directory()
        make_private(directory)
        for port in ports:
            if port not in self._descriptors:
                self._descriptors[port] = _hold(directory, port, _encoded(fleet))

    def release(self) -> None:
        """Unlock all ports. The files stay: an unlinked one could be locked by one gateway and a new one by another."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def user_directory() -> Path:
    """Return the user's directory for port locks: in XDG_RUNTIME_DIR, else in the directory for temporary files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_absolute():
        return Path(runtime) / "pidgate-ports"
    return Path(tempfile.gettempdir()) / f"pidgate-ports-{os.getuid()}"


def make_private(directory: Path) -> None:
    """Make the directory, which nobody else may write to. Raises CannotStart."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise CannotStart(f"cannot use {directory} for port locks (reuse_port): {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise CannotStart(
            f"{directory} is not a directory of this user alone, so its port locks (reuse_port) cannot be trusted; "
            f"remove it, or set XDG_RUNTIME_DIR"
        )


def _hold(directory: Path, port: int, ours: bytes) -> int:
    """Return a descriptor with a shared lock on the port's file, which says `ours`."""
    path = directory / f"port-{port}.json"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # others listen there: the file is theirs
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, ours, 0)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        # Read again: an exclusive lock becomes a shared one in two steps, and another gateway may come between them.
        theirs = os.pread(descriptor, LONGEST_CONTENT_BYTES, 0)
        if theirs != ours:
            raise PortOfAnotherFleet(port, _shown(theirs), _shown(ours))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _encoded(fleet: Fleet) -> bytes:
    return json.dumps(fleet, sort_keys=True).encode()


def _shown(content: bytes) -> str:
    return content.decode("utf-8", "replace")[:500]
