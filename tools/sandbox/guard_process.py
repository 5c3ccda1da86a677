"""The guard: a small program that outlives its parent briefly to clean up after it.

It reads orders from standard input. At the end of input (the parent closed it or died), it kills the process
groups and removes the directories on its list. It runs by path with `python -I -S`, so it may import only the
standard library.

Orders, one per line: `kill PGID`, `spare PGID`, `remove PATH`, `keep PATH`.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable

_GONE_WITHIN_S = 10.0


def follow(orders: Iterable[str]) -> tuple[list[int], list[str]]:
    """Return the process groups and directories on the list at the end of the orders."""
    groups: dict[int, None] = {}
    directories: dict[str, None] = {}
    for line in orders:
        verb, _, argument = line.rstrip("\n").partition(" ")
        if verb == "kill":
            groups[int(argument)] = None
        elif verb == "spare":
            groups.pop(int(argument), None)
        elif verb == "remove":
            directories[argument] = None
        elif verb == "keep":
            directories.pop(argument, None)
    return list(groups), list(directories)


def kill(groups: Iterable[int]) -> None:
    """Kill the process groups and wait for them: a dying broker still writes to its directory."""
    remaining = set(groups)
    give_up_s = time.monotonic() + _GONE_WITHIN_S
    while remaining and time.monotonic() < give_up_s:
        for group in tuple(remaining):
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                remaining.discard(group)
        # A zombie still counts as a group member; without a reaper the time limit ends the wait.
        time.sleep(0.02)


def main() -> None:
    # The terminal's Ctrl-C is for the parent; the guard ends with its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    groups, directories = follow(sys.stdin)
    kill(groups)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
