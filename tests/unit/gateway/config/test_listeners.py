"""Which ports are open for which node, of which listener, and when."""

import asyncio
import socket

import pytest

from pidgate.gateway.config.listening import CannotListen
from pidgate.gateway.process.traffic import Traffic
from pidgate.protocol.error_texts import HIDDEN
from pidgate.protocol.headers import RequestHead
from tests.support import raw
from tests.support.loopback import HOST, Peer, ScriptedBroker, gateway_before, run, until
from tools.sandbox.ports import free_block

HEARTBEAT, METADATA = 12, 3


async def is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


def test_ports_in_the_order_of_node_ids_are_open_from_the_start() -> None:
    async def scenario() -> None:
        first = free_block(4)
        async with gateway_before(
            f"{HOST}:1", listener={"node_ports": {"first": first, "node_ids": [1, 5, "102-103"]}}
        ):
            assert [await is_open(first + n) for n in range(4)] == [True] * 4

    run(scenario())


def test_a_node_that_is_not_listed_is_shown_at_the_bootstrap_port(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.nodes = {1: (HOST, broker.port), 9: (HOST, broker.port)}
            first = free_block(1)
            async with gateway_before(
                broker.address, listener={"node_ports": {"first": first, "node_ids": [1]}}
            ) as gateway:
                answer = await (await gateway.connect()).ask(METADATA, 12, {"topics": []})
                assert [node["port"] for node in answer["brokers"]] == [first, gateway.port]

    run(scenario())
    assert "add the node id to node_ports.node_ids" in capsys.readouterr().out


def test_two_listeners_show_the_same_brokers_each_in_its_own_way() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.nodes = {3: (HOST, broker.port)}
            ports = free_block(12)
            listeners = [
                {"bind": f"{HOST}:{ports}", "node_ports": {"first": ports + 1}},
                {
                    "bind": f"{HOST}:{ports + 6}",
                    "advertise": "gw-{node_id}.example",
                    "node_ports": {"first": ports + 7, "node_ids": [3]},
                },
            ]
            async with gateway_before(broker.address, listeners=listeners) as gateway:
                shown = []
                for port in (ports, ports + 6):
                    answer = await (await gateway.connect(port)).ask(METADATA, 12, {"topics": []})
                    shown.append([(node["host"], node["port"]) for node in answer["brokers"]])
                assert shown == [[(HOST, ports + 4)], [("gw-3.example", ports + 7)]]

    run(scenario())


def test_the_sidecar_of_one_broker_listens_for_it_alone() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as mine, ScriptedBroker() as others:
            mine.nodes = others.nodes = {1: (HOST, mine.port), 2: (HOST, others.port)}
            listener = {"only_node": 1, "advertise": "gw-{node_id}.example:9092", "node_ports": None}
            async with gateway_before(others.address, mine.address, listener=listener) as gateway:
                await until(gateway.gateway.is_ready)
                client = await gateway.connect()
                answer = await client.ask(METADATA, 12, {"topics": []})
                assert [(node["host"], node["port"]) for node in answer["brokers"]] == [
                    ("gw-1.example", 9092),
                    ("gw-2.example", 9092),
                ]
                assert [len(mine.peers), len(others.peers)] == [1, 0]
                assert not await is_open(gateway.first_node_port + 2)

    run(scenario())


def test_a_port_that_is_taken_when_its_broker_comes_is_opened_later() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.nodes = {1: (HOST, broker.port), 2: (HOST, broker.port)}
            first = free_block(5)
            # Listens as the gateway does: a port with connections in TIME_WAIT is free.
            taken = socket.create_server((HOST, first + 2))
            async with gateway_before(broker.address, listener={"node_ports": {"first": first}}) as gateway:
                client = await gateway.connect()

                async def shown() -> list[int]:
                    brokers = (await client.ask(METADATA, 12, {"topics": []}))["brokers"]
                    return [broker["port"] for broker in brokers]

                assert await shown() == [first + 1, gateway.port]  # passwords would go to the other process
                taken.close()
                assert isinstance(gateway.gateway.traffic, Traffic)
                gateway.gateway.traffic.open_missing_ports(0)
                assert await shown() == [first + 1, first + 2]
                node = await gateway.connect(first + 2)
                assert (await node.ask(HEARTBEAT, 0))["error_code"] == 0

    run(scenario())


def test_a_bootstrap_port_that_is_taken_is_an_error_at_start() -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind((HOST, 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(CannotListen, match="the port is in use"):
                async with gateway_before(f"{HOST}:1", listener={"bind": f"{HOST}:{port}"}):
                    pass

    run(scenario())


def test_an_error_text_shows_no_host_of_a_broker() -> None:
    """As an IncrementalAlterConfigs with validateOnly is answered, which any administrator may send."""
    key, text = 44, "Endpoint(host='k1.internal', port=9092) or listeners=PLAINTEXT://{}:9092"

    async def refuses(head: RequestHead, _peer: Peer) -> bytes:
        entry = {"error_code": 40, "error_message": text.format(HOST), "resource_type": 4}
        answer = {"responses": [{**entry, "resource_name": "1"}]}
        return raw.response(key, head.api_version, answer, correlation_id=head.correlation_id)

    async def scenario() -> None:
        async with ScriptedBroker({key: refuses}) as broker:
            broker.nodes = {1: (HOST, broker.port), 2: ("k1.internal", 9092)}
            async with gateway_before(broker.address) as gateway:
                await until(gateway.gateway.is_ready)
                client = await gateway.connect()
                answer = await client.ask(key, 1, {"resources": [], "validate_only": True})
                said = answer["responses"][0]["error_message"]
                assert said == text.format(HIDDEN).replace("k1.internal", HIDDEN)

    run(scenario())
