"""A process of the simulation: what runs in its context lives and dies with it.

The context is a ContextVar that every handle and task inherits, so that one event loop knows whose each callback is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Final, TypeVar

T = TypeVar("T")

CURRENT: Final[ContextVar[Process | None]] = ContextVar("CURRENT", default=None)
"""The process that runs; None: the simulation itself, or the kernel."""


class Process:
    """A process on a host of its own name, unless another is given; `ip` is what peers see of it."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, *, host: str = "", ip: str = "") -> None:
        self.name = name
        self.host = host or name
        self.ip = ip or self.host
        self.wall_offset_ms = 0
        """How far its wall clock is ahead of the simulation's."""
        self.is_alive = self.is_running = True
        self.at_death: list[Callable[[], object]] = []
        """What the kernel does when it dies: locks are lifted, sockets closed."""
        self._remains: list[asyncio.Handle] = []
        """Handles of a dead process, kept (its tasks are, by the loop): freed, their `finally` blocks would run."""
        self._loop = loop
        self._waiting: list[asyncio.Handle] = []
        self.context = Context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.name}>"

    @property
    def is_frozen(self) -> bool:
        return self.is_alive and not self.is_running

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of this process."""
        return self.context.copy().run(self._loop.create_task, work)

    def call(self, callback: Callable[..., T], *args: Any) -> T:
        """Call a function as this process, now."""
        return self.context.copy().run(callback, *args)

    def postpone(self, handle: asyncio.Handle) -> None:
        """Keep a handle that cannot run: for the thaw, or for ever."""
        (self._waiting if self.is_alive else self._remains).append(handle)

    def freeze(self) -> None:
        """Stop it, as SIGSTOP or a page fault does: the kernel goes on for it, it does not."""
        self.is_running = False

    def thaw(self) -> list[asyncio.Handle]:
        """Let it go on; return what it has to catch up with, timers first, as event loops do."""
        self.is_running = self.is_alive
        waiting, self._waiting = self._waiting, []
        return sorted(waiting, key=lambda handle: not isinstance(handle, asyncio.TimerHandle))

    def revive(self) -> list[asyncio.Handle]:
        """Make it run again, for its tasks to be cancelled when all is over; return what it had left undone."""
        self.is_alive = self.is_running = True
        left = self._waiting + self._remains
        self._waiting, self._remains = [], []
        return left

    def kill(self) -> None:
        """End it as kill -9 does: none of its callbacks ever runs again, its sockets close, its files stay."""
        if not self.is_alive:
            return
        self.is_alive = self.is_running = False
        for lift in self.at_death:
            lift()
        self.at_death.clear()
