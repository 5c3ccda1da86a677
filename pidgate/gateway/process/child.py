"""Entry point of the supervisor's child processes: `python -m pidgate.gateway.process.child`.

Its task comes through standard input, pickled by the process that started it. That pipe stays open: when it ends, the
supervisor is gone, and the child drains, or it would go on sharing its ports with the gateway that is started next.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import uvloop

from pidgate.gateway import logs
from pidgate.gateway.config.listening import CannotListen
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.errors import CannotStart
from pidgate.gateway.logs import guarded
from pidgate.gateway.process.lifetime import RunsAndDrains, keep_freed_memory

Role = Literal["state_owner", "worker"]

CANNOT_START: Final = 2
"""Exit code: starting it again would not help."""


@dataclass(frozen=True, slots=True)
class Task:
    """A child's role and settings. `incarnation` is its own, `number` 0 for the state owner, which watches `file`."""

    role: Role
    settings: Settings
    number: int
    socket_path: str
    incarnation: str
    file: Path | None = None


def main() -> int:
    """Run the child to its end; return the exit code."""
    # A terminal sends these to the whole group; the supervisor forwards what counts.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Written by our own parent into our own pipe: nobody else can reach it.
    task: Task = pickle.load(sys.stdin.buffer)
    logs.configure(task.settings.log_level)
    keep_freed_memory()
    try:
        uvloop.run(_serve(task))
    except CannotListen as error:
        print(f"{error.what}: {error}", file=sys.stderr)
        return CANNOT_START
    except CannotStart as error:
        print(f"pidgate: {error}", file=sys.stderr)
        return CANNOT_START
    return 0


async def _serve(task: Task) -> None:
    serving = _made(task)
    loop = asyncio.get_running_loop()
    drains: set[asyncio.Task[None]] = set()
    is_started = is_stopping = False

    def drain() -> None:
        nonlocal is_stopping
        is_stopping = True
        if is_started:
            drains.add(loop.create_task(guarded("drain", serving.drain())))

    loop.add_signal_handler(signal.SIGTERM, drain)
    loop.add_signal_handler(signal.SIGHUP, serving.reload)
    await serving.start()
    is_started = True
    gc.freeze()  # as in cli/running.py
    await loop.connect_read_pipe(lambda: _ParentWatch(drain), sys.stdin)
    print("started", flush=True)
    if is_stopping and not drains:
        drain()
    await serving.until_stopped()


def _made(task: Task) -> RunsAndDrains:
    if task.role == "state_owner":
        from pidgate.gateway.process.server import Gateway

        return Gateway(task.settings, task.file, incarnation=task.incarnation, socket_path=task.socket_path)
    from pidgate.gateway.process.worker import Worker

    return Worker(task.settings, task.number, task.socket_path, task.incarnation)


class _ParentWatch(asyncio.Protocol):
    """Protocol that drains the process when the pipe from the parent ends."""

    def __init__(self, drain: Callable[[], None]) -> None:
        self._drain = drain

    def connection_lost(self, exc: Exception | None) -> None:
        self._drain()


if __name__ == "__main__":
    sys.exit(main())
