"""A stop ends, whatever fails in it and whenever it is wanted, and saves what it can."""

from __future__ import annotations

import asyncio
import pickle
import signal
import subprocess
from pathlib import Path

import pytest

from pidgate.child_python import python_module
from pidgate.gateway.admin.site import AdminSite
from pidgate.gateway.config.loading import parse
from pidgate.gateway.process.child import Task
from pidgate.gateway.process.server import Gateway
from pidgate.gateway.process.supervisor import Supervisor
from pidgate.gateway.process.traffic import Traffic
from pidgate.gateway.process.worker import Worker
from pidgate.gateway.quotas.reloading import Reloading
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.gateway.state.state_dir import StateDir
from tests.support.loopback import HOST, run, until

PARTS = [
    (Reloading, "stop"),
    (Traffic, "drain"),
    (QuotaStore, "stop"),
    (QuotaStateManager, "stop"),
    (AdminSite, "close"),
]


def fail_at_its_end(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> None:
    """Have a part of a stop raise when it has done its work, so that nothing of it is left behind."""
    work = getattr(of, name)

    async def failing(self: object) -> None:
        await work(self)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(of, name, failing)


def configuration(tmp_path: Path) -> str:
    return (
        f"cluster: {{bootstrap_servers: ['{HOST}:1']}}\n"
        f"listeners: [{{bind: '{HOST}:0'}}]\n"
        f"admin: {{bind: '{HOST}:0'}}\n"
        "events: {enabled: false}\n"
        f"state_dir: {tmp_path / 'state'}\n"
    )


async def stopped(serving: Gateway | Worker | Supervisor) -> None:
    draining = asyncio.ensure_future(serving.drain())
    async with asyncio.timeout(10):
        await serving.until_stopped()
    await asyncio.gather(draining, return_exceptions=True)


@pytest.mark.parametrize(("of", "name"), PARTS)
def test_of_a_gateway_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: type, name: str
) -> None:
    async def scenario() -> None:
        gateway = Gateway(parse(configuration(tmp_path)))
        await gateway.start()
        await until(lambda: gateway._manager.is_restored)
        state_dir = gateway._manager.events.state_dir
        assert isinstance(state_dir, StateDir)
        saves = state_dir.saves
        fail_at_its_end(monkeypatch, of, name)
        await stopped(gateway)
        assert state_dir.saves > saves
        assert not state_dir._lock.is_held

    run(scenario())


def test_of_a_worker_and_of_a_supervisor_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_its_end(monkeypatch, Traffic, "drain")
    fail_at_its_end(monkeypatch, Supervisor, "_end_all")

    async def scenario() -> None:
        settings = parse(configuration(tmp_path))
        await stopped(Worker(settings, 1, str(tmp_path / "socket"), "run.w1-1"))
        await stopped(Supervisor(settings))

    run(scenario())


def catches_sigterm(process: subprocess.Popen[bytes]) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> signal.SIGTERM - 1 & 1)


def test_of_a_child_that_is_to_end_while_it_starts(tmp_path: Path) -> None:
    settings = parse(configuration(tmp_path))
    task = Task("state_owner", settings, 0, str(tmp_path / "socket"), "run")
    command = python_module("pidgate.gateway.process.child")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(task))
        process.stdin.flush()
        while not catches_sigterm(process):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()
