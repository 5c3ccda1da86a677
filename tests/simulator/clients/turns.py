"""Turns: whatever happens to an actor wakes it, and one turn does all that can be done now."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from random import Random

NEVER = float("inf")

Trace = Callable[[str], None]


class Turns:
    """An actor of the event loop. Make it inside the running loop, in its own process's context."""

    def __init__(self, name: str, random: Random, trace: Trace | None) -> None:
        self.name = name
        self.random = random
        self.is_over = False
        """Crashed or closed: nothing happens any more."""
        self.loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()
        self._trace = trace
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = NEVER

    def turn(self, now_s: float) -> None:
        """Do all that can be done now."""
        raise NotImplementedError

    @property
    def now_s(self) -> float:
        return self.loop.time()

    @property
    def is_traced(self) -> bool:
        """Ask before a line is made."""
        return self._trace is not None

    def note(self, line: str) -> None:
        """A line of the trace."""
        if self._trace is not None:
            self._trace(f"{self.name} {line}")

    def wake(self) -> None:
        """Have a turn as soon as what happens now is over."""
        if self._soon is None and not self.is_over:
            self._soon = self.loop.call_soon(self._turn, context=self.context)

    def wake_at(self, at_s: float) -> None:
        """Within a turn: have another one then at the latest."""
        if at_s < self._next_s:
            self._next_s = at_s

    def stop(self) -> None:
        """No turn from now on."""
        self.is_over = True
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()

    def backoff_s(self, first_s: float, most_s: float, tries: int) -> float:
        """Exponential with 20 % jitter, as Java's ExponentialBackoff; constant if it cannot grow."""
        if most_s <= first_s:
            return most_s
        return min(first_s * 2.0 ** min(tries, 30) * self.random.uniform(0.8, 1.2), most_s)

    def _turn(self) -> None:
        self._soon = None
        if self.is_over:
            return
        self._next_s = NEVER
        self.turn(self.loop.time())
        timer, next_s = self._timer, self._next_s
        if timer is not None and timer.when() != next_s:
            timer.cancel()
            timer = self._timer = None
        if timer is None and next_s != NEVER and not self.is_over:
            self._timer = self.loop.call_at(next_s, self._on_time, context=self.context)

    def _on_time(self) -> None:
        self._timer = None
        self.wake()
