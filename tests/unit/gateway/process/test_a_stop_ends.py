"""A stop ends, whatever fails in it and whenever it is wanted, and saves what it can."""

from __future__ import annotations

import asyncio
import os
import signal
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, cast

import pytest

from pidgate.gateway.config.loading import parse
from pidgate.gateway.process import child
from pidgate.gateway.process.child import Task
from pidgate.gateway.process.server import Gateway
from pidgate.gateway.process.supervisor import Supervisor
from pidgate.gateway.process.traffic import Traffic
from pidgate.gateway.process.worker import Worker
from pidgate.gateway.quotas.reloading import Reloading
from pidgate.gateway.state.state_dir import StateDir
from tests.support.loopback import HOST, run, until

FAILING = [
    (Reloading, "stop", True),
]


def fail(*_: object) -> None:
    raise OSError(5, "Input/output error")


async def fail_later(*_: object) -> None:
    fail()


def configuration(tmp_path: Path) -> str:
    return (
        f"cluster: {{bootstrap_servers: ['{HOST}:1']}}\n"
        f"listeners: [{{name: plain, bind: '{HOST}:0'}}]\n"
        f"admin: {{bind: '{HOST}:0'}}\n"
        "events: {enabled: false}\n"
        f"state_dir: {tmp_path / 'state'}\n"
    )


async def stopped(serving: Gateway | Worker | Supervisor) -> None:
    draining = asyncio.ensure_future(serving.drain())
    async with asyncio.timeout(10):
        await serving.until_stopped()
    await asyncio.gather(draining, return_exceptions=True)


@pytest.mark.parametrize(("of", "name", "is_saved"), FAILING)
def test_of_a_gateway_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: type, name: str, is_saved: bool
) -> None:
    async def scenario() -> None:
        gateway = Gateway(parse(configuration(tmp_path)))
        await gateway.start()
        await until(lambda: gateway._manager.is_restored)
        state_dir = gateway._manager.events.state_dir
        assert isinstance(state_dir, StateDir)
        monkeypatch.setattr(of, name, fail_later if iscoroutinefunction(getattr(of, name)) else fail)
        saves = state_dir.saves
        await stopped(gateway)
        assert (state_dir.saves > saves) == is_saved
        assert not state_dir._lock.is_held or name == "stop"

    run(scenario())


def test_of_a_worker_and_of_a_supervisor_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Traffic, "drain", fail_later)
    monkeypatch.setattr(Supervisor, "_end_all", fail_later)

    async def scenario() -> None:
        settings = parse(configuration(tmp_path))
        await stopped(Worker(settings, 1, str(tmp_path / "socket"), "run.w1-1"))
        await stopped(Supervisor(settings))

    run(scenario())


def test_of_a_child_that_is_told_so_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Serving:
        def __init__(self) -> None:
            self._stopped = asyncio.Event()

        async def start(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)
            said.append("started")

        async def until_stopped(self) -> None:
            await self._stopped.wait()

        async def drain(self) -> None:
            said.append("drained")
            self._stopped.set()

        def reload(self) -> None: ...

    monkeypatch.setattr(child, "_made", lambda _task: Serving())
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe, os.fdopen(writing, "w"):
        monkeypatch.setattr(child.sys, "stdin", pipe)
        task: Any = Task("worker", cast(Any, None), 1, "", "")

        async def scenario() -> None:
            async with asyncio.timeout(10):
                await child._serve(task)

        run(scenario())
    assert said == ["started", "drained"]
