"""Threads for disk work that may block and that process exit must not wait for.

asyncio.to_thread does not fit: the interpreter joins its threads, so a drained process would not exit while a
disk hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Event, Thread
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class DiskThread(Executor):
    """An executor of one daemon thread, which runs its work in order."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Run it after all earlier work."""
        future: Future[_T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                done = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - set on the future
                future.set_exception(error)
            else:
                future.set_result(done)

        if self._thread.ident is None:
            self._thread.start()
        self._queue.put(work)
        return future

    def do(self, work: Callable[..., _T], *args: object) -> asyncio.Future[_T]:
        """Run it after all earlier work; return a future of the running event loop."""
        return asyncio.get_running_loop().run_in_executor(self, work, *args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread after its queued work; never waits."""
        self._queue.put(None)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


class Looks:
    """Work of a DiskThread: call `look` each `every_s` until it is true. The event loop sleeps meanwhile.

    Returns whether it became true; False after `end`.
    """

    def __init__(self, look: Callable[[], bool], every_s: float) -> None:
        self.look = look
        self.every_s = every_s
        self._ended = Event()

    def __call__(self) -> bool:
        while not self._ended.wait(self.every_s) and not self.look():
            pass
        return not self.is_ended

    @property
    def is_ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        self._ended.set()


async def aside(work: Callable[..., _T], *args: object) -> _T:
    """Run it in its own thread."""
    thread = DiskThread("pidgate-disk")
    done = thread.do(work, *args)
    thread.shutdown()
    return await done
