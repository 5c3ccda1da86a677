"""A client or a broker of a gateway that vanishes without a word: its address is taken away, in a network of its own.

Run in a network namespace: unshare -rn python -m tests.support.vanishing client|broker
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Final

from pidgate.gateway.proxy import keepalive
from tests.support.loopback import Client, ScriptedBroker, gateway_before, run, until

HEARTBEAT: Final = 12
ELSEWHERE: Final = "10.77.77.7"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


async def client_at(host: str, port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))


async def vanish(side: str) -> None:
    """Print whether the gateway notices that the peer has vanished, and closes the connection of the other."""
    keepalive.IDLE_S = keepalive.INTERVAL_S = keepalive.PROBES = 1  # type: ignore[misc]
    near = "127.0.0.1"
    async with (
        ScriptedBroker(host=ELSEWHERE if side == "broker" else near) as broker,
        gateway_before(broker.address) as running,
    ):
        await until(running.gateway.is_ready)
        client = await client_at(ELSEWHERE if side == "client" else near, running.port)
        counters = running.gateway.traffic.counters
        await client.ask(HEARTBEAT, 4, {"group_id": "g", "member_id": "m"})
        await asyncio.sleep(2.5)
        assert counters.connections_open == 1, "a peer that is there answers the probes"
        ip("addr", "del", f"{ELSEWHERE}/32", "dev", "lo")
        await until(lambda: counters.connections_open == 0)
        print(f"vanished: noticed, {dict(counters.connections_closed)}")


if __name__ == "__main__":
    ip("link", "set", "lo", "up")
    ip("addr", "add", f"{ELSEWHERE}/32", "dev", "lo")
    run(vanish(sys.argv[1]))
