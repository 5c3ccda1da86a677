"""Real gateways on the simulated machine."""

import asyncio

import pytest

from pidgate.gateway.config.loading import parse
from pidgate.gateway.logs import Event
from pidgate.protocol import messages
from tests.simulator.gateway import PORT, SimulatedGateway, config_text, configured
from tests.simulator.machine import Machine
from tests.support.loopback import Client, ScriptedBroker


async def broker_at(machine: Machine, host: str = "broker") -> ScriptedBroker:
    """A broker of the tests' own, whose name is its host's."""
    process = machine.loop.process(host)
    broker = ScriptedBroker()
    await process.spawn(broker.__aenter__())
    broker.nodes = {1: (host, broker.port)}
    return broker


async def client_of(machine: Machine, host: str = "gateway", port: int = PORT) -> Client:
    process = machine.loop.processes.get("client") or machine.loop.process("client")
    return Client(*await process.spawn(asyncio.open_connection(host, port)))


def test_a_gateway_answers_in_virtual_time() -> None:
    with Machine(1) as machine:

        async def main() -> None:
            broker = await broker_at(machine)
            gateway = SimulatedGateway(machine, configured("gateway", f"broker:{broker.port}"))
            await gateway.start()
            client = await client_of(machine)
            answer = await machine.loop.processes["client"].spawn(client.ask(messages.METADATA, 12))
            assert [(node["host"], node["port"]) for node in answer["brokers"]] == [("gateway", PORT + 2)]
            node = await client_of(machine, port=PORT + 2)
            assert await machine.loop.processes["client"].spawn(node.ask(messages.API_VERSIONS, 3))
            client.writer.close()
            node.writer.close()
            await gateway.drain()

        machine.loop.run(main())
        assert machine.logged(Event.STOPPED)


def test_a_killed_gateway_is_followed_by_another_on_its_state_directory() -> None:
    with Machine(3) as machine:

        async def main() -> None:
            broker = await broker_at(machine)
            settings = configured(
                "gateway", f"broker:{broker.port}", state_dir=str(machine.directory / "state")
            )
            gateway = SimulatedGateway(machine, settings)
            for _ in range(3):
                await gateway.start()
                await asyncio.sleep(2)
                gateway.kill()
            await gateway.start()
            await gateway.drain()

        machine.loop.run(main())
        loaded = [line.fields["snapshot"] for line in machine.logged(Event.STATE_LOADED)]
        assert loaded[0] is None
        assert loaded[-1] is not None


def test_a_changed_file_is_read_again() -> None:
    with Machine(5) as machine:
        file = machine.directory / "gateway.yaml"

        def text(broker: ScriptedBroker, rate: int) -> str:
            default = {"producer_ids_rate": rate}
            return config_text("gateway", f"broker:{broker.port}", quotas={"default": default})

        async def main() -> None:
            broker = await broker_at(machine)
            file.write_text(text(broker, 5))
            gateway = SimulatedGateway(machine, parse(text(broker, 5)), file=file)
            with pytest.raises(RuntimeError):
                await gateway.change()
            with pytest.raises(RuntimeError):
                assert gateway.quotas
            await gateway.start()
            await asyncio.sleep(2)
            for rate, is_signalled in ((6, False), (7, True)):
                file.write_text(text(broker, rate))
                if is_signalled:
                    gateway.reload()
                await asyncio.sleep(5)
                assert gateway.quotas.default.producer_ids_rate_milli == 1_000 * rate
            await gateway.drain()

        machine.loop.run(main())
        assert len(machine.logged(Event.CONFIG_RELOADED)) == 2
