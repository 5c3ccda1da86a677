"""The supervisor starts a child again whatever becomes of its own log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import pytest
import structlog
import yaml

from pidgate.gateway import logs
from pidgate.gateway.config.listening import CannotListen
from pidgate.gateway.config.loading import parse
from pidgate.gateway.process.supervisor import Supervisor, _check_not_shared
from pidgate.units import Address
from tests.support.loopback import HOST, run, until
from tools.sandbox.ports import free_block


@pytest.fixture
def _log_on_a_full_disk() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    full = open("/dev/full", "w")  # noqa: SIM115 - closed below, where it fails once more
    logs.configure("info", full, "json")
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    with contextlib.suppress(OSError):
        full.close()


@pytest.mark.usefixtures("_log_on_a_full_disk")
def test_a_state_owner_that_ends_is_started_again_while_the_disk_of_the_log_is_full() -> None:
    first = free_block(16)
    config = {
        "cluster": {"bootstrap_servers": [f"{HOST}:{first + 15}"]},
        "listeners": [{"bind": f"{HOST}:{first + 1}", "node_ports": {"first": first + 2}}],
        "admin": {"bind": f"{HOST}:{first}"},
        "events": {"enabled": False},
        "workers": 2,
    }
    settings = parse(yaml.safe_dump(config))

    async def scenario() -> None:
        supervisor = Supervisor(settings)
        child = supervisor._state_owner
        child.process, child.starts = await asyncio.create_subprocess_exec("false"), 1
        keeping = asyncio.ensure_future(supervisor._keep(child))
        try:
            await until(lambda: keeping.done() or child.is_listening)
            assert not keeping.done()
            assert child.starts == 2
        finally:
            keeping.cancel()
            await supervisor._end_all()

    run(scenario())


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_brokers_port_is_shared_with_no_other_gateways_workers(*, is_shared: bool) -> None:
    """One that a single socket has is found in use when the broker is known, as without workers."""
    with socket.socket() as other:
        if is_shared:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((HOST, 0))
        other.listen()
        address = Address(*other.getsockname())
        with pytest.raises(CannotListen, match="in use") if is_shared else contextlib.nullcontext():
            _check_not_shared("listeners.node_ports", address)
    _check_not_shared("listeners.node_ports", address)
