"""Supervisor of a gateway of several processes: starts the state owner and the workers, restarts them, ends them all.

It serves no client itself: what can fail is in its children, and one that dies takes nothing with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import shutil
import signal
import socket
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pidgate.child_python import python_module
from pidgate.gateway.config.conflicts import reserved_ports
from pidgate.gateway.config.listening import listening_on
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.errors import CannotStart
from pidgate.gateway.logs import Event, begun_anew, logger
from pidgate.gateway.process import byte_cells, held_notes
from pidgate.gateway.process.child import Role, Task
from pidgate.gateway.process.outside import Outside
from pidgate.gateway.quotas.reloading import kept_beside, kept_settings, log_nothing_to_reload
from pidgate.units import Address

log = logger()

FIRST_RESTART_S: Final = 0.05
LONGEST_RESTART_S: Final = 5.0
HEALTHY_AFTER_S: Final = 10.0
"""A child that lived as long is restarted at once; one that did not waits, longer each time."""
KILL_AFTER_S: Final = 5.0
"""Beyond the drain's own time-out, until a child that does not end is killed."""


@dataclass(slots=True)
class _Child:
    role: Role
    number: int
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    is_listening: bool = False

    @property
    def name(self) -> str:
        return f"worker {self.number}" if self.role == "worker" else self.role


class Supervisor:
    """A RunsAndDrains: `drain` ends the workers, then the state owner. `file`: where the settings are from."""

    def __init__(self, settings: Settings, file: Path | None = None) -> None:
        self._settings = settings
        self._file = file
        self._run = Outside().name()
        self._directory = Path(tempfile.mkdtemp(prefix="pidgate-"))  # of mode 0700
        self._socket_path = self._directory / "state.sock"
        self._state_owner = _Child("state_owner", 0)
        self._workers = [_Child("worker", number) for number in range(1, settings.workers + 1)]
        self._keeping: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()
        self._is_draining = False

    async def start(self) -> None:
        """Start all children, until they listen. Raises CannotListen, ChildEnded."""
        for what, address in self._addresses():
            _check_free(what, address)
        for listener in self._settings.listeners:
            for port in reserved_ports(listener):
                _check_not_shared("listeners.node_ports", Address(listener.bind_host, port))
        try:
            self._make_byte_cells()
            self._make_held_notes()
            for child in (self._state_owner, *self._workers):
                await self._begin(child)
        except BaseException:
            await self._end_all()
            raise
        loop = asyncio.get_running_loop()
        self._keeping = [
            loop.create_task(begun_anew(child.name, partial(self._keep, child)))
            for child in (self._state_owner, *self._workers)
        ]

    async def until_stopped(self) -> None:
        await self._stopped.wait()

    async def drain(self) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        for task in self._keeping:
            task.cancel()
        try:
            await self._end_all()
        finally:
            self._stopped.set()

    def reload(self) -> None:
        """Have the state owner read the file again; one that is being started does so anyway."""
        if self._file is None:
            log_nothing_to_reload()
        elif self._state_owner.process is not None and self._state_owner.is_listening:
            # It may have ended a moment ago.
            with contextlib.suppress(ProcessLookupError):
                self._state_owner.process.send_signal(signal.SIGHUP)

    def _addresses(self) -> list[tuple[str, Address]]:
        listeners = [
            ("listeners.bind", Address(listener.bind_host, listener.bind_port))
            for listener in self._settings.listeners
        ]
        return [*listeners, ("admin.bind", Address(*self._settings.admin.bind))]

    def _make_byte_cells(self) -> None:
        """Without them each worker counts bytes for itself, and logs it."""
        settings = self._settings
        try:
            byte_cells.create(
                byte_cells.cells_path(self._socket_path), settings.workers, settings.to_quotas().bytes.samples
            )
        except OSError as error:
            log.error(Event.BYTE_CELLS_MISSING, worker=0, reason=str(error))

    def _make_held_notes(self) -> None:
        """Without them each worker sees only what it holds itself, and logs it."""
        try:
            held_notes.create(held_notes.notes_path(self._socket_path))
        except OSError as error:
            log.error(Event.HELD_NOTES_MISSING, worker=0, reason=str(error))

    # ---- one child -------------------------------------------------------------------------------------

    async def _begin(self, child: _Child) -> None:
        """Start it and wait until it listens. Raises ChildEnded, OSError."""
        child.starts += 1
        process = await asyncio.create_subprocess_exec(
            *python_module("pidgate.gateway.process.child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        child.process, child.is_listening = process, False
        task = Task(
            child.role,
            # One that is restarted begins with what the state owner has put in force since.
            kept_settings(kept_beside(self._socket_path)) or self._settings,
            child.number,
            str(self._socket_path),
            self._incarnation(child),
            self._file,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pickle.dumps(task))
        log.info(Event.PROCESS_STARTED, role=child.name, pid=process.pid)
        if not await process.stdout.readline():
            raise ChildEnded(child.name, await process.wait())
        child.is_listening = True

    def _incarnation(self, child: _Child) -> str:
        """Return the process's own, which begins with the run's."""
        if child.role == "state_owner":
            return self._run if child.starts == 1 else f"{self._run}.h{child.starts}"
        return f"{self._run}.w{child.number}-{child.starts}"

    async def _keep(self, child: _Child) -> None:
        """Restart it whenever it ends, until cancelled."""
        loop = asyncio.get_running_loop()
        wait_s = FIRST_RESTART_S
        while True:
            began = loop.time()
            try:
                if child.process is None:
                    await self._begin(child)
                assert child.process is not None
                exit_code = await child.process.wait()
            except (ChildEnded, OSError) as error:
                exit_code = error.exit_code if isinstance(error, ChildEnded) else -1
            wait_s = (
                FIRST_RESTART_S
                if loop.time() - began > HEALTHY_AFTER_S or child.starts == 1
                else min(2 * wait_s, LONGEST_RESTART_S)
            )
            log.error(
                Event.PROCESS_ENDED,
                role=child.name,
                pid=child.process.pid if child.process else None,
                exit_code=exit_code,
                restart_in_ms=round(wait_s * 1000),
            )
            child.process = None
            await asyncio.sleep(wait_s)

    async def _end_all(self) -> None:
        """End the workers first: their last events pass through the state owner."""
        try:
            await asyncio.gather(*(self._end(child) for child in self._workers))
            await self._end(self._state_owner)
        except asyncio.CancelledError:
            # A second signal. Left alone they would go on draining, and hold their ports as long.
            for child in (*self._workers, self._state_owner):
                if child.process is not None and child.process.returncode is None:
                    child.process.kill()
            raise
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    async def _end(self, child: _Child) -> None:
        process = child.process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._settings.drain_timeout_ms / 1000 + KILL_AFTER_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class ChildEnded(CannotStart):
    """A child ended before it listened; it has printed why itself."""

    def __init__(self, name: str, exit_code: int) -> None:
        super().__init__(
            f"{name} ended with exit code {exit_code} before it listened; its own line above says why"
        )
        self.exit_code = exit_code


def _check_free(what: str, address: Address) -> None:
    """Raise CannotListen for a port in use, which the kernel would let workers share with a stranger."""
    with listening_on(what, address):
        _bind(address, is_shared=False)


def _check_not_shared(what: str, address: Address) -> None:
    """Raise CannotListen for a port that the workers of another gateway have: the kernel would deal clients to both.

    One that anybody else has is found in use when its broker is known, as without workers.
    """
    with contextlib.suppress(OSError):
        _bind(address, is_shared=True)
        _check_free(what, address)


def _bind(address: Address, *, is_shared: bool) -> None:
    """Bind the address for a moment. Raises OSError."""
    family, kind, proto, _, found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, proto) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind(found)
