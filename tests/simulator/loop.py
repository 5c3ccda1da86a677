"""An event loop with virtual time: where nothing is ready, the clock jumps to the next timer.

asyncio's own loop; replaced are its clock, its timers, its sockets (network.py), its threads, and what runs a handle:
one whose process is dead never runs. What is not replaced raises NotImplementedError. One seed is one run.
"""

from __future__ import annotations

import asyncio
import heapq
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from pidgate.gateway.disk_thread import Looks
from tests.simulator.network import Network, SimulatedServer, SimulatedSocket
from tests.simulator.process import CURRENT, Process

T = TypeVar("T")

BEGAN_S: Final = 1_000.0
"""Of the monotonic clock; any time but 0, which is what variables begin with."""
WALL_BEGAN_MS: Final = 1_767_225_600_000
"""2026-01-01, when the monotonic clock shows 0."""
MOST_TURNS_AT_ONCE: Final = 20_000
"""Turns of the loop without time going on: something runs in a circle."""
_TIDY_TASKS: Final = 2_000
"""Tasks that are made between two looks for those that have ended."""
LONGEST_WORK_S: Final = 0.003
"""Of a thread, with its result's way back: files are written so fast, unless a disk is slowed down."""


class SimulationFailed(Exception):
    """A callback or task raised what nobody took, or nothing can happen any more."""


class SimulatedTask(asyncio.Task[Any]):
    """A task that knows its process."""

    process: Process | None = None


class _Handle(asyncio.Handle):
    """asyncio's, without what it keeps for debugging: a run makes thousands."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback: Any = callback
        self._args: Any = args
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()

    def __init__(self, when: float, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback: Any = callback
        self._args: Any = args
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when = when
        self._scheduled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class SimulatedLoop(asyncio.BaseEventLoop):
    """The one event loop of all processes of a simulation.

    `run` runs a coroutine to its end, as the simulation itself; `process(...)` makes processes. `failures`: exceptions
    that nobody took, which fail the run.
    """

    def __init__(self, seed: int | str) -> None:
        super().__init__()
        self.set_debug(False)
        self.seed = seed
        self.now_s = BEGAN_S
        self.disk_slowness = 1.0
        self.failures: list[str] = []
        self.processes: dict[str, Process] = {}
        """By name; of those that came one after another, the last."""
        self.network = Network(self, seed)
        self._all: list[Process] = []
        self._tasks: list[SimulatedTask] = []
        self._tidy_at = _TIDY_TASKS
        self._disk = Random(f"{seed}/disk")
        self._busy_until_s = WeakKeyDictionary[object, float]()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._turns_at_once = 0
        self._deadline_s = float("inf")
        self._is_ending = False
        self._ready: deque[asyncio.Handle] = deque()
        self._read: dict[int, Callable[[], object]] = {}
        """Callbacks for what lanes tell their process, by the lane's number."""

    # ---- the run ---------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T], *, most_s: float = 86_400.0) -> T:
        """Run `main` to its end, then end all that is left. Raises SimulationFailed, and what `main` raises.

        `most_s`: of virtual time; a run that takes longer has failed.
        """
        self._deadline_s = self.now_s + most_s
        try:
            result = self.run_until_complete(main)
            self.check()
            return result
        finally:
            self._end()

    def check(self) -> None:
        """Raise SimulationFailed where an exception was taken by nobody."""
        for task in self._tasks:
            if _is_failed(task) and (task.process is None or task.process.is_alive):
                self.failures.append(_where(task.exception()))
        if self.failures:
            raise SimulationFailed("\n".join(self.failures))

    def process(self, name: str, *, host: str = "", ip: str = "") -> Process:
        """Return a new process; one of this name that lives is killed first."""
        old = self.processes.get(name)
        if old is not None:
            self.kill(old)
        made = self.processes[name] = Process(name, self, host=host, ip=ip)
        self._all.append(made)
        return made

    def kill(self, process: Process) -> None:
        """Kill a process, kill -9."""
        process.kill()

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on."""
        self._ready.extend(process.thaw())

    def _end(self) -> None:
        """Cancel whatever is left, of the dead too, so that nothing runs when it is freed."""
        self._is_ending = True
        self._turns_at_once = 0
        self._timers.clear()
        self.network.close()
        for process in self._all:
            self._ready.extend(handle for handle in process.revive() if _is_of_a_task(handle))
        self._deadline_s = float("inf")
        left = self._pending()
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.wait(left, timeout=60.0))
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.close()

    def _pending(self) -> list[SimulatedTask]:
        return [task for task in self._tasks if not task.done()]

    def _run_once(self) -> None:
        """One turn: what was ready at its beginning, in order; asyncio's own, with virtual time."""
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._jump()
        while timers and timers[0][0] <= self.now_s:
            ready.append(heapq.heappop(timers)[2])
        self._turns_at_once += 1
        if self._turns_at_once > MOST_TURNS_AT_ONCE:
            raise SimulationFailed(f"{MOST_TURNS_AT_ONCE} turns at {self.now_s:.6f} s: a circle")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(CURRENT)  # type: ignore[attr-defined]
            if process is None or process.is_running:
                handle._run()
            else:
                process.postpone(handle)

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise SimulationFailed(
                f"nothing can happen any more, at {self.now_s:.6f} s; waiting: {_waiting(self)}"
            )
        if timers[0][0] > self.now_s:
            self.now_s = timers[0][0]
            self._turns_at_once = 0
        if self.now_s > self._deadline_s:
            raise SimulationFailed(f"not at its end at {self.now_s:.3f} s; waiting: {_waiting(self)}")

    # ---- asyncio.AbstractEventLoop ---------------------------------------------------------------------

    def time(self) -> float:
        return self.now_s

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970 by the clock of the process that runs."""
        process = CURRENT.get()
        ahead_ms = 0 if process is None else process.wall_offset_ms
        return int(self.now_s * 1_000_000_000) + (WALL_BEGAN_MS + ahead_ms) * 1_000_000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        when = self.now_s + delay
        handle = _TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> SimulatedTask:
        task = SimulatedTask(coro, loop=self, name=None if name is None else str(name), context=context)
        task.process = CURRENT.get() if context is None else context.get(CURRENT)
        tasks = self._tasks
        tasks.append(task)
        if len(tasks) > self._tidy_at:
            self._tasks = [task for task in tasks if not task.done() or _is_failed(task)]
            self._tidy_at = len(self._tasks) + _TIDY_TASKS
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do a thread's work between now and the moment when its result is seen; one executor's in order."""
        future: asyncio.Future[T] = self.create_future()
        if isinstance(func, Looks):
            self._look(func, future)
            return future
        begins_s = self.now_s
        if executor is not None:
            begins_s = max(begins_s, self._busy_until_s.get(executor, 0.0))
        done_s = begins_s + self._disk.random() * LONGEST_WORK_S * self.disk_slowness
        seen_s = done_s + self._disk.random() * LONGEST_WORK_S
        if executor is not None:
            self._busy_until_s[executor] = done_s
        if self._is_ending:  # at once, or it would never be: a save that is cancelled closes its file so
            self._work(done_s, future, func, args)
        else:
            self.call_at(done_s, self._work, seen_s, future, func, args)
        return future

    def _look(self, looks: Looks, future: asyncio.Future[Any]) -> None:
        """Do what Looks does in a thread, without one."""

        def look() -> None:
            if not future.done():
                if looks.look():
                    future.set_result(True)
                else:
                    self.call_later(looks.every_s, look)

        def end() -> None:
            if not future.done():
                future.set_result(False)

        if looks.is_ended:
            end()
        looks.end = end  # type: ignore[method-assign]  # what wakes the thread
        self.call_later(looks.every_s, look)

    def _work(self, seen_s: float, future: asyncio.Future[Any], func: Callable[..., Any], args: Any) -> None:
        if future.cancelled():
            return
        try:
            result, error = func(*args), None
        except Exception as raised:  # noqa: BLE001 - its result, as a thread's
            result, error = None, raised
        self.call_at(seen_s, _seen, future, result, error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_ending:
            error = context.get("exception")
            self.failures.append(f"{context.get('message')}: {error!r}")
            if error is not None:
                self.failures.append(_where(error))

    # ---- the network -----------------------------------------------------------------------------------

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Have this called when a lane of this number has something to tell."""
        context = copy_context()
        self._read[fd] = lambda: self.call_soon(callback, *args, context=context)

    def remove_reader(self, fd: int) -> bool:  # type: ignore[override]
        return self._read.pop(fd, None) is not None

    def tell(self, fd: int) -> None:
        """Call the reader of a number."""
        if fd in self._read:
            self._read[fd]()

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, ssl: Any = None, **_: Any
    ) -> Any:
        _no_tls(ssl)
        return await self.network.connect(protocol_factory, (str(host), int(port)))

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        sock: Any = None,
        ssl: Any = None,
        **_: Any,
    ) -> SimulatedServer:
        _no_tls(ssl)
        bound: SimulatedSocket = self.network.listen((str(host or ""), int(port))) if sock is None else sock
        return SimulatedServer(self, protocol_factory, bound)


def _no_tls(ssl: object) -> None:
    if ssl is not None:
        raise NotImplementedError("the loop's TLS is not simulated; the gateway's own runs on any transport")


def _seen(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _is_of_a_task(handle: asyncio.Handle) -> bool:
    """Whether it is a task's next step: without it, the task could not even be cancelled."""
    callback = handle._callback  # type: ignore[attr-defined]
    return isinstance(getattr(callback, "__self__", None), asyncio.Task)


def _is_failed(task: SimulatedTask) -> bool:
    """Whether it ended with an exception that nobody has looked at."""
    return task.done() and task._log_traceback


def _where(error: BaseException | None) -> str:
    return "".join(traceback.format_exception(error))


def _waiting(loop: SimulatedLoop) -> str:
    names = (f"{task.get_coro()!r}".split(" at ")[0] for task in loop._pending())
    return ", ".join(sorted(names)[:20])
