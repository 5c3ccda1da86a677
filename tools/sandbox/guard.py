"""Nothing is left behind: processes and directories that a guard process cleans up when we are gone.

A guard beside us is used and not PR_SET_PDEATHSIG, which fires when the *thread* that started the
child ends, and which removes no directory. One guard serves the whole process; it is started at first use.
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
    """Start this process' guard; return its input, where orders are written, a line each."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd="/",
    )
    assert process.stdin is not None
    # With the input's end it cleans up; waited for, so that nothing is left when we are gone.
    atexit.register(process.wait, timeout=30)
    atexit.register(process.stdin.close)
    return process.stdin


def _order(verb: str, what: object) -> None:
    """Put a process group or a directory on the guard's list, or take it off (guard_process.py)."""
    _guard().write(f"{verb} {what}\n")
    _guard().flush()


def temporary_directory(prefix: str) -> Path:
    """A new directory that does not outlive this process."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    _order("remove", path)
    return path


def remove_directory(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    _order("keep", path)


def keep_directory(path: Path) -> None:
    """Leave this temporary directory where it is, even after this process' end."""
    _order("keep", path)


def keep_or_remove(path: Path, *, keep: bool, what: str) -> None:
    """Leave this temporary directory, if there is anything in it, and say where its `what` are; else remove it."""
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
    """Start a process in a group of its own that does not outlive this process, however it ends.

    The own session keeps a terminal's Ctrl-C from it. Call `ended` when it was waited for.
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
    """Take a process that was waited for off the guard's list."""
    _order("spare", process.pid)


class GuardedProcess:
    """A process that does not outlive this one; started and ended any number of times."""

    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """None while it runs or has never run; negative for a signal."""
        return self._process.poll() if self._process else None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.is_alive:
            assert self._process is not None
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its exit code, or None while it still runs."""
        if self._process is None:
            return None
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        ended(self._process)
        return code

    def kill(self) -> None:
        """kill -9, if it still runs."""
        self.signal(signal.SIGKILL)
        self.wait(30.0)
