"""A stop ends, whatever fails in it and whenever it is wanted, and saves what it can."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pidgate.gateway.admin.site import AdminSite
from pidgate.gateway.config.loading import parse
from pidgate.gateway.process.server import Gateway
from pidgate.gateway.process.traffic import Traffic
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


async def stopped(serving: Gateway) -> None:
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
