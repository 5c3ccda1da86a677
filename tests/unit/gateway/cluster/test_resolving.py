"""Names of brokers: one look-up for all who wait, and a name without an answer holds up no other."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence

import pytest

from pidgate.gateway.cluster import resolving
from pidgate.gateway.cluster.resolving import MOST_AT_ONCE, Resolver
from pidgate.protocol import messages
from tests.support import raw
from tests.support.loopback import HOST, NODE_ID, ScriptedBroker, gateway_before, run, until
from tools.sandbox.ports import free_block


def test_those_who_wait_for_a_name_share_a_look_up_and_the_next_has_its_own() -> None:
    asked = list[str]()

    async def look_up(host: str) -> Sequence[str]:
        asked.append(host)
        await asyncio.sleep(0.01)
        return [f"10.0.0.{len(asked)}"]

    async def scenario() -> None:
        resolver = Resolver(look_up)
        first = await asyncio.gather(*(resolver.addresses("k1.example") for _ in range(50)))
        assert first == [["10.0.0.1"]] * 50
        assert await resolver.addresses("k1.example") == ["10.0.0.2"]
        assert await resolver.addresses("::1") == ["::1"]
        assert asked == ["k1.example"] * 2

    run(scenario())


def test_a_name_without_an_answer_fails_in_time_and_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolving, "WAIT_S", 0.05)
    asked = list[str]()

    async def look_up(host: str) -> Sequence[str]:
        asked.append(host)
        await asyncio.Event().wait()
        return []

    async def scenario() -> None:
        resolver = Resolver(look_up)
        for _ in range(2):
            with pytest.raises(socket.gaierror, match="does not answer"):
                await resolver.addresses("slow.example")
        names = [f"slow-{number}.example" for number in range(MOST_AT_ONCE)]
        found = await asyncio.gather(*map(resolver.addresses, names), return_exceptions=True)
        assert "too many names" in str(found[-1])
        assert len(asked) == len(set(asked)) == MOST_AT_ONCE

    run(scenario())


def test_slow_names_hold_up_no_other_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop's own four threads would be taken."""
    ask, answers = socket.getaddrinfo, threading.Event()

    def slow(host: str, *more: object, **named: object) -> object:
        if host.endswith(".slow"):
            answers.wait(10)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return ask("127.0.0.1" if host == "good.example" else host, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("socket.getaddrinfo", slow)

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.nodes = {
                NODE_ID: ("good.example", broker.port),
                **{number: (f"k{number}.slow", 9092) for number in range(2, 10)},
            }
            async with gateway_before(broker.address) as gateway:
                await until(gateway.gateway.is_ready)
                waiting = [await gateway.connect(gateway.first_node_port + number) for number in range(2, 10)]
                for client in waiting:
                    client.send(raw.request(messages.METADATA, 9, {"topics": []}))
                await asyncio.sleep(0.1)
                running = gateway.gateway.traffic.nodes.resolver
                assert len(running._running) == 8  # the control: they are asked for
                good = await gateway.connect(gateway.first_node_port + NODE_ID)
                async with asyncio.timeout(2):
                    assert (await good.ask(messages.METADATA, 9, {"topics": []}))["brokers"]
            answers.set()

    try:
        run(scenario())
    finally:
        answers.set()


def test_brokers_beyond_the_most_are_not_learnt_and_cost_no_descriptor() -> None:
    async def scenario() -> None:
        first = free_block(64)
        async with ScriptedBroker() as broker:
            gateways = gateway_before(broker.address, listener={"node_ports": {"first": first}})
            async with gateways as gateway:
                await until(gateway.gateway.is_ready)
                traffic = gateway.gateway.traffic
                traffic.nodes._most = 8
                client = await gateway.connect()
                for turn in range(5):
                    broker.nodes = {
                        NODE_ID: (HOST, broker.port),
                        **{number: (HOST, 9092) for number in range(100 * turn + 2, 100 * turn + 52)},
                        -7: (HOST, 9092),
                        9_999: ("x" * 300, 9092),
                    }
                    answer = await client.ask(messages.METADATA, 9, {"topics": []})
                    shown = {one["node_id"]: one["port"] for one in answer["brokers"]}
                    assert shown[NODE_ID] == first + NODE_ID
                    assert shown[-7] == shown[9_999] == gateway.port
                    assert shown[100 * turn + 51] == gateway.port
                assert len(traffic.nodes.known_addresses) == 8
                assert len(traffic._listeners[0]._accepting) <= 9

    run(scenario())
