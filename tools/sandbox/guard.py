"""Cleanup of processes and directories by a guard process, however this process ends.

PR_SET_PDEATHSIG is no alternative: it fires when the *thread* that started the child ends, and it removes no
directories. One guard serves the whole process and starts on first use.
"""

import atexit
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

_PROGRAM = Path(__file__).with_name("guard_process.py")


@cache
def _guard() -> IO[str]:
    """Start this process's guard; return its input, one order per line."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd="/",
    )
    assert process.stdin is not None
    # The guard cleans up at the end of its input; wait for it.
    atexit.register(process.wait, timeout=30)
    atexit.register(process.stdin.close)
    return process.stdin


def _order(verb: str, what: object) -> None:
    """Add a process group or a directory to the guard's list, or remove it (guard_process.py)."""
    _guard().write(f"{verb} {what}\n")
    _guard().flush()


def temporary_directory(prefix: str) -> Path:
    """Return a new directory that is removed with this process."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    _order("remove", path)
    return path


def remove_directory(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    _order("keep", path)


def keep_directory(path: Path) -> None:
    """Keep this temporary directory after this process's end."""
    _order("keep", path)


def keep_or_remove(path: Path, *, keep: bool, what: str) -> None:
    """Keep this temporary directory unless it is empty and print the path of `what`; otherwise remove it."""
    if keep and any(path.iterdir()):
        keep_directory(path)
        print(f"{what} are kept in {path}", file=sys.stderr)
    else:
        remove_directory(path)


def spawn(
    command: Sequence[str | Path],
    *,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in its own group that is killed with this process.

    Its own session shields it from a terminal's Ctrl-C. Call `ended` after waiting for it.
    """
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    _order("kill", process.pid)
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    """Remove an ended process from the guard's list."""
    _order("spare", process.pid)


class GuardedProcess:
    """A process that is killed with this one; it can be started and stopped repeatedly."""

    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """None while it runs or before the first start; negative for a signal."""
        return self._process.poll() if self._process else None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the process if it runs."""
        if self.is_alive:
            assert self._process is not None
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its exit code, or None on timeout."""
        if self._process is None:
            return None
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        ended(self._process)
        return code

    def kill(self) -> None:
        """Send SIGKILL if it runs."""
        self.signal(signal.SIGKILL)
        self.wait(30.0)
