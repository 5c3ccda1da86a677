"""Keepalive on both sides of real connections, and what becomes of a peer that vanishes."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from pidgate.gateway.proxy import keepalive
from pidgate.gateway.proxy.bounds import Bounds
from tests.support.loopback import RunningGateway, ScriptedBroker, gateway_before, run, until
from tests.support.rules import rule

ROOT = Path(__file__).parents[4]
HEARTBEAT = 12
ASKS_ONCE = Bounds(broker_check_ms=10**9)
WANTED = (1, keepalive.IDLE_S, keepalive.INTERVAL_S, keepalive.PROBES)


def sockets_of_this_process() -> Iterator[socket.socket]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            descriptor = int(name)
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with closing(socket.socket(fileno=os.dup(descriptor))) as found:
                    if found.family == socket.AF_INET:
                        yield found


def options_of(running: RunningGateway, broker: ScriptedBroker) -> dict[str, set[tuple[int, ...]]]:
    """The keepalive of the gateway's open connections, by side."""
    found: dict[str, set[tuple[int, ...]]] = {"clients": set(), "brokers": set()}
    for opened in sockets_of_this_process():
        with suppress(OSError):
            side = "clients" if opened.getsockname()[1] == running.port else "brokers"
            if side == "brokers" and opened.getpeername()[1] != broker.port:
                continue
            opened.getpeername()
            found[side].add(
                (
                    opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    *(
                        opened.getsockopt(socket.IPPROTO_TCP, option)
                        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                    ),
                )
            )
    return found


@rule("A peer that vanished is noticed within two minutes, on either side.", "connections")
def test_keepalive_is_on_towards_clients_and_brokers_lent_connections_included() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, lanes=1, bounds=ASKS_ONCE) as running,
        ):
            await until(running.gateway.is_ready)
            await until(lambda: not broker.connected)  # the gateway's own
            client, counters = await running.connect(), running.gateway.traffic.counters
            for _ in range(20):
                await client.ask(HEARTBEAT, 4, {"group_id": "g", "member_id": "m"})
            running.gateway.traffic.count_lanes(0)
            assert counters.lane_connections == 1
            await until(lambda: options_of(running, broker) == {"clients": {WANTED}, "brokers": {WANTED}})

    run(scenario())
    assert keepalive.IDLE_S + keepalive.INTERVAL_S * keepalive.PROBES <= 120


@pytest.mark.parametrize("side", ["client", "broker"])
def test_a_peer_that_vanished_is_noticed(side: str) -> None:
    """In a network of its own, whose peers have addresses that are taken away."""
    if shutil.which("ip") is None or subprocess.run(["unshare", "-rn", "true"], check=False).returncode:
        pytest.skip("no network namespace is to be had here")
    command = ["unshare", "-rn", sys.executable, "-m", "tests.support.vanishing", side]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert "vanished: noticed" in done.stdout, done.stdout + done.stderr
