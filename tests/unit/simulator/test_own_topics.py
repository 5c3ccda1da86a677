"""Gateways follow each other through the model of their topics; what is cut off catches up."""

import asyncio
from collections.abc import Callable

from pidgate.gateway.logs import Event
from pidgate.quota.changes import Action, Change, Setting, Target
from tests.simulator.gateway import SimulatedGateway, configured
from tests.simulator.machine import Machine
from tests.simulator.topics import ModelTopics
from tests.support.loopback import ScriptedBroker

EVENTS = {"enabled": True}


async def fleet_of(machine: Machine, topics: ModelTopics, number: int) -> list[SimulatedGateway]:
    broker = ScriptedBroker()
    await machine.loop.process("broker").spawn(broker.__aenter__())
    broker.nodes = {1: ("broker", broker.port)}
    gateways = [
        SimulatedGateway(
            machine, configured(f"gw{n}", f"broker:{broker.port}", events=EVENTS), topics.own_client
        )
        for n in range(number)
    ]
    for gateway in gateways:
        await gateway.start()
    return gateways


def test_a_fleet_finds_itself_and_a_successor_reads_what_was_written() -> None:
    with Machine(1) as machine:
        topics = ModelTopics(machine.loop)

        async def main() -> None:
            gateways = await fleet_of(machine, topics, 2)
            await asyncio.sleep(5)
            assert sorted(line.process for line in machine.logged(Event.FLEET_MEMBER_SEEN)) == ["gw0", "gw1"]
            gateways[0].kill()
            await gateways[0].start()
            await asyncio.sleep(5)
            restored = [line.fields["restored_from"] for line in machine.logged(Event.STATE_RESTORED)]
            assert restored[-1] == "topic"
            for gateway in gateways:
                await gateway.drain()

        machine.loop.run(main())
        values = [value or b"" for value in topics.values("__pidgate_events")]
        assert sum(b'"phase":"stop"' in value for value in values) == 2


def test_who_is_cut_off_says_so_and_catches_up() -> None:
    with Machine(2) as machine:
        topics = ModelTopics(machine.loop)

        async def main() -> None:
            gateways = await fleet_of(machine, topics, 2)
            await asyncio.sleep(5)
            topics.cut("gw1")
            await asyncio.sleep(60)
            assert {line.process for line in machine.logged(Event.EVENTS_TOPIC_UNAVAILABLE)} == {"gw1"}
            before = gateways[0].quotas
            change = Change(target=Target(Setting.PRODUCER_IDS_RATE, None), action=Action.SET, value=7_000)
            await gateways[0].change(change)
            assert gateways[0].quotas != before
            assert gateways[1].quotas == before
            topics.heal()
            await until(lambda: gateways[1].quotas == gateways[0].quotas)
            await until(lambda: bool(machine.logged(Event.EVENTS_TOPIC_AVAILABLE)))

        machine.loop.run(main())


def test_a_topic_that_loses_records_or_is_deleted_is_followed_on() -> None:
    with Machine(4) as machine:
        topics = ModelTopics(machine.loop)

        async def main() -> None:
            gateways = await fleet_of(machine, topics, 2)
            await asyncio.sleep(5)
            topics.lose("__pidgate_events", 0.5)
            await asyncio.sleep(60)
            topics.delete("__pidgate_events")
            await asyncio.sleep(60)
            assert len(machine.logged(Event.EVENTS_TOPIC_CREATED)) == 2
            assert any(b'"phase":"alive"' in (value or b"") for value in topics.values("__pidgate_events"))
            for gateway in gateways:
                await gateway.drain()

        machine.loop.run(main())


def test_one_seed_writes_one_topic() -> None:
    def written(seed: int) -> list[bytes | None]:
        with Machine(seed) as machine:
            topics = ModelTopics(machine.loop)
            topics.slowness = 5.0

            async def main() -> None:
                gateways = await fleet_of(machine, topics, 2)
                await asyncio.sleep(40)
                topics.cut("gw0")
                await asyncio.sleep(1)
                gateways[1].kill()
                topics.heal()
                await asyncio.sleep(40)

            machine.loop.run(main())
        return topics.values("__pidgate_events")

    assert written(1) == written(1)
    assert written(1) != written(2)


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
