"""Ports that cannot begin to accept because no descriptor is free: they try again."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Self

import pytest
import uvloop

from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy import accepting
from pidgate.gateway.proxy.accepting import Accepting, Port
from pidgate.gateway.proxy.connection_quotas import ConnectionLimits, ConnectionQuotas


class Scarce(socket.socket):
    """A listening socket of a process that has no free descriptor for a while."""

    failures_left = 0

    def dup(self) -> Self:
        if self.failures_left:
            self.failures_left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().dup()


class Ports:
    """One port, and those who look after it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.bound = Scarce()
        self.bound.bind(("127.0.0.1", 0))
        self.bound.listen()
        self.bound.setblocking(False)
        self.accepted = 0
        counters = Counters()
        self.quotas = ConnectionQuotas(ConnectionLimits(1_000, 10, 1_000, 1_000), counters)
        self.accepting = Accepting(loop, lambda: int(loop.time() * 1_000), self.quotas, counters)
        self.port = Port(loop, self.bound, self._accepted)

    def _accepted(self) -> asyncio.BaseProtocol:
        self.accepted += 1
        return asyncio.Protocol()

    async def accept_one(self) -> bool:
        """Connect; return whether somebody accepts before long."""
        accepted = self.accepted
        _, writer = await asyncio.open_connection(*self.bound.getsockname())
        for _ in range(200):
            if self.accepted > accepted:
                break
            await asyncio.sleep(0.01)
        writer.close()
        return self.accepted > accepted


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "RETRY_MS", 20)


def test_a_port_that_resumes_while_no_descriptor_is_free_accepts_once_one_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def resume() -> bool:
        ports = Ports()
        await ports.accepting.add(ports.port)
        assert await ports.accept_one()
        now_ms = asyncio.get_running_loop().time() * 1_000
        for number in range(22):
            ports.quotas.opened(number, lambda _number: None, int(now_ms))
        ports.accepting.check_limits()
        ports.bound.failures_left = 3
        accepts_again = await ports.accept_one()
        ports.port.close()
        return accepts_again and not ports.bound.failures_left

    assert asyncio.run(resume())
    assert capsys.readouterr().out.count("accepting_failed") == 1


def test_a_port_that_is_opened_while_no_descriptor_is_free_accepts_once_one_is() -> None:
    async def learn() -> bool:
        ports = Ports()
        ports.bound.failures_left = 2
        await ports.accepting.add(ports.port)
        accepts = await ports.accept_one()
        ports.port.close()
        return accepts

    assert asyncio.run(learn())


def test_a_port_that_is_closed_meanwhile_stays_closed() -> None:
    async def close() -> None:
        ports = Ports()
        ports.bound.failures_left = 1
        await ports.accepting.add(ports.port)
        ports.port.close()
        await asyncio.sleep(0.1)
        assert ports.bound.fileno() == -1
        assert ports.accepted == 0

    asyncio.run(close())


def test_a_port_that_is_emptied_has_accepted_all_that_waited() -> None:
    async def scenario() -> None:
        ports = Ports()
        await ports.accepting.add(ports.port)
        address = ports.bound.getsockname()
        waiting = [socket.create_connection(address) for _ in range(20)]
        assert ports.accepted == 0
        await ports.accepting.empty()
        ports.port.close()
        assert ports.accepted == 20
        for client in waiting:
            client.close()

    asyncio.run(scenario())


def test_emptying_ends_although_connections_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the kernel takes no packet filter."""
    monkeypatch.setattr(accepting, "drop_new_connections", lambda _bound: False)

    async def scenario() -> None:
        ports = Ports()
        await ports.accepting.add(ports.port)
        loop = asyncio.get_running_loop()
        emptying = loop.create_task(ports.accepting.empty())
        began_s = loop.time()
        while not emptying.done():
            assert await ports.accept_one()
            ports.accepting.check_limits()
            assert loop.time() < began_s + 10
        ports.port.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("most_at_once", [1, 8])
def test_a_port_accepts_as_many_in_a_turn_as_it_has_servers(most_at_once: int) -> None:
    """On uvloop one server accepts one connection a turn: a turn that is long then keeps a fleet out."""

    async def scenario() -> int:
        ports = Ports()
        port = Port(asyncio.get_running_loop(), ports.bound, ports._accepted, most_at_once)
        waiting = [socket.create_connection(ports.bound.getsockname()) for _ in range(32)]
        await ports.accepting.add(port)
        turns = 0
        while ports.accepted < len(waiting):
            turns += 1
            await asyncio.sleep(0)
        port.close()
        assert ports.bound.fileno() == -1
        for client in waiting:
            client.close()
        return turns

    turns = uvloop.run(scenario())
    assert turns >= 32 if most_at_once == 1 else turns <= 10
