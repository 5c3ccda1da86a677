"""Gateways follow each other through the model of their topics; what is cut off catches up."""

import asyncio
from collections.abc import Callable
from typing import Any

from pidgate.cli.explain import fleet_in_words
from pidgate.gateway.logs import Event
from pidgate.gateway.present.fleet_answers import KEPT_S, PATIENCE_S
from pidgate.quota.changes import Action, Change, Setting, Target
from tests.simulator.gateway import SimulatedGateway, configured
from tests.simulator.machine import Machine
from tests.simulator.topics import ModelTopics
from tests.support.loopback import ScriptedBroker
from tests.support.questions import is_refused, question

EVENTS = {"enabled": True}


async def fleet_of(
    machine: Machine,
    topics: ModelTopics,
    number: int,
    *,
    of_last: dict[str, Any] | None = None,
    quotas: dict[str, Any] | None = None,
    events: dict[str, Any] = EVENTS,
) -> list[SimulatedGateway]:
    """`of_last`: quotas of the last one that differ."""
    broker = ScriptedBroker()
    await machine.loop.process("broker").spawn(broker.__aenter__())
    broker.nodes = {1: ("broker", broker.port)}
    gateways = []
    for n in range(number):
        own = {**(quotas or {}), **(of_last or {} if n == number - 1 else {})}
        settings = configured(f"gw{n}", f"broker:{broker.port}", events=events, quotas=own)
        gateways.append(SimulatedGateway(machine, settings, topics.own_client))
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


def refused_at(gateway: SimulatedGateway) -> int:
    """Bring new ids of alice until one is refused and waits in line; return it."""
    assert gateway.serving is not None
    state, now_ms = gateway.serving._manager.state, gateway.serving._now_ms()
    for producer_id in range(100, 110):
        asked = question("alice", producer_id, came_back=True, address="10.0.3.7")
        if is_refused(state.decide(*asked, now_ms)):
            return producer_id
    raise AssertionError("none was refused")


def test_a_gateway_tells_who_waits_in_the_fleet_and_names_one_that_does_not_answer() -> None:
    with Machine(5) as machine:
        topics = ModelTopics(machine.loop)
        quotas = {"mode": "enforce", "default": {"producer_ids_rate": 1}}

        async def main() -> None:
            first, second = await fleet_of(machine, topics, 2, quotas=quotas)
            await asyncio.sleep(20)
            assert first.serving is not None
            producer_id = refused_at(second)
            loop = asyncio.get_running_loop()
            told, again = await asyncio.gather(first.serving.ask_fleet(), first.serving.ask_fleet())
            assert told is again, "two that ask at once share an answer"
            (row,) = told["waits"]["rows"]
            assert (row["gateway"], row["user"], row["producer_id"]) == ("gw1", "alice", producer_id)
            assert row["says"].endswith("is new, and the quota of alice is used up (1 per 1h)")
            assert [one["answered"] for one in told["gateways"]] == [True, True]
            assert [one["same_quotas"] for one in told["gateways"]] == [True, True]

            target = Target(Setting.PRODUCER_IDS_RATE, "bob")
            topics.cut("gw1")
            await first.change(Change(target=target, action=Action.SET, value=7_000))
            await asyncio.sleep(KEPT_S)
            began_s = loop.time()
            alone = await first.serving.ask_fleet()
            assert PATIENCE_S <= loop.time() - began_s < PATIENCE_S + 1
            assert [one["answered"] for one in alone["gateways"]] == [True, False]
            assert alone["gateways"][1]["heard_ms"] >= PATIENCE_S * 1_000
            lines = list(fleet_in_words(alone))
            assert lines[0].startswith("  gw1: DOES NOT ANSWER, last heard ")
            assert "1 quota set at run time" in lines[1]

            topics.heal()
            await until(lambda: second.quotas == first.quotas)
            await asyncio.sleep(2)
            healed = await first.serving.ask_fleet()
            assert [one["same_quotas"] for one in healed["gateways"]] == [True, True]
            answers = sum(
                b'"phase":"answered"' in (value or b"") for value in topics.values("__pidgate_events")
            )
            assert 2 <= answers <= 3

        machine.loop.run(main())


def test_a_gateway_with_other_quotas_is_named_and_redacted_names_stay_hashed() -> None:
    with Machine(6) as machine:
        topics = ModelTopics(machine.loop)
        events = {"enabled": True, "redact": ["user", "address"]}
        quotas = {"mode": "enforce", "default": {"producer_ids_rate": 1}}

        async def main() -> None:
            first, second = await fleet_of(
                machine,
                topics,
                2,
                quotas=quotas,
                events=events,
                of_last={"default": {"producer_ids_rate": 2}},
            )
            await asyncio.sleep(20)
            assert first.serving is not None
            refused_at(second)
            told = await first.serving.ask_fleet()
            assert [one["same_quotas"] for one in told["gateways"]] == [True, False]
            (row,) = told["waits"]["rows"]
            assert row["user"].startswith("h:"), "this gateway has not met her"
            assert row["address"].startswith("h:")

        machine.loop.run(main())
        written = b"".join(value or b"" for value in topics.values("__pidgate_events"))
        assert b"alice" not in written
        assert b"10.0.3.7" not in written


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
