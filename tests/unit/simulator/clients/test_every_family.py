"""What holds of every model client: nothing is lost, nothing is there twice, all is in order, and a run is a run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.simulator.clients.traits import FAMILIES, KAFKA_PYTHON, Traits
from tests.unit.simulator.clients.scripts import Once, Sticky
from tests.unit.simulator.clients.stage import TOPIC, Cut, Hold, Script, Stage

families = pytest.mark.parametrize("traits", FAMILIES.values(), ids=FAMILIES)
transactional_families = pytest.mark.parametrize(
    "traits",
    [traits for traits in FAMILIES.values() if traits is not KAFKA_PYTHON],
    ids=lambda traits: traits.family,
)


def sent_and_flushed(stage: Stage, traits: Traits, batches: int = 24) -> Any:
    """A client that has sent to all partitions, and knows the end of it."""
    partitions = len(stage.cluster.topics.by_name[TOPIC].partitions)

    async def story() -> Any:
        client = stage.make(traits)
        await client.start()
        for number in range(batches):
            client.send(number % partitions, 1 + number % 3)
            if number % 7 == 6:
                await asyncio.sleep(0.2)
        await client.flush()
        await client.close()
        return client

    return stage.play(story)


def check_exactly_once(stage: Stage, client: Any) -> None:
    """Each acknowledged batch once, in order; none that failed before one that is there."""
    for partition in range(len(stage.cluster.topics.by_name[TOPIC].partitions)):
        log = [value for value in stage.log(partition) if value.startswith(client.name.encode() + b"|")]
        acknowledged = [batch.value for batch in client.told.acknowledged if batch.partition == partition]
        assert log == acknowledged, stage.story()
    assert not client.open


@families
def test_everything_arrives(traits: Traits) -> None:
    stage = Stage(nodes=2, partitions=3)
    client = sent_and_flushed(stage, traits)
    assert len(client.told.acknowledged) == 24
    check_exactly_once(stage, client)
    assert len({producer_id for seen in stage.seen for producer_id in seen.producer_ids}) == 1


@families
def test_refused_for_seconds(traits: Traits) -> None:
    stage = Stage(nodes=2, partitions=3, script=Sticky(3.0))
    client = sent_and_flushed(stage, traits)
    assert len(client.told.acknowledged) == 24, stage.story()
    check_exactly_once(stage, client)


SCRIPTS = {
    "cut, not taken": Once(Cut(taken=False), 2),
    "cut, taken": Once(Cut(taken=True), 2),
    "no answer": Once(Hold(), 1),
    "cut at the id": Once(Cut(taken=True), 0, "InitProducerId"),
    "cut at the greeting": Once(Cut(taken=False), 0, "ApiVersions"),
    "cut at the leaders": Once(Cut(taken=False), 0, "Metadata"),
}


@families
@pytest.mark.parametrize("what", SCRIPTS)
def test_one_thing_goes_wrong(traits: Traits, what: str) -> None:
    script = SCRIPTS[what]
    stage = Stage(nodes=2, partitions=3, script=type(script)(**_fresh(script)))
    client = sent_and_flushed(stage, traits)
    assert len(client.told.acknowledged) == 24, stage.story()
    check_exactly_once(stage, client)


def _fresh(script: Once) -> dict[str, Any]:
    return {"verdict": script._verdict, "n": script._left, "api": script._api}


@families
def test_leaders_move(traits: Traits) -> None:
    stage = Stage(nodes=3, partitions=2)

    async def story() -> Any:
        client = stage.make(traits)
        await client.start()
        for round_ in range(6):
            for number in range(6):
                client.send(number % 2, 2)
            await asyncio.sleep(0.004)
            stage.brokers.move_leader(TOPIC, round_ % 2, 1 + round_ % 3)
            await asyncio.sleep(0.4)
        await client.flush()
        return client

    client = stage.play(story)
    assert len(client.told.acknowledged) == 36, stage.story()
    check_exactly_once(stage, client)


@transactional_families
@pytest.mark.parametrize("script", [None, Sticky(2.0)], ids=["fine", "refused"])
def test_transactions(traits: Traits, script: Script | None) -> None:
    stage = Stage(partitions=2, script=script and Sticky(2.0))

    async def story() -> Any:
        client = stage.make(traits, transactional_id="t1")
        assert not await client.start()
        for number in range(4):
            assert not await client.begin()
            client.send(0, 2)
            batch = client.send(1)
            if number == 2:
                await batch.wait()
            assert not await (client.abort() if number % 2 else client.commit()), stage.story()
        await client.close()
        return client

    client = stage.play(story)
    assert [one.outcome for one in client.told.transactions] == ["committed", "aborted"] * 2
    committed = [value for value in stage.committed(0)]
    assert committed == [batch.value for batch in client.told.acknowledged if batch.partition == 0]


@families
def test_crash_says_nothing_more(traits: Traits) -> None:
    stage = Stage(script=Sticky(1_000.0))

    async def story() -> Any:
        client = stage.make(traits)
        await client.start()
        client.send(0)
        await asyncio.sleep(2.0)
        client.crash()
        before = len(stage.seen)
        await asyncio.sleep(400.0)
        assert len(stage.seen) == before
        return client

    client = stage.play(story)
    assert not client.told.acknowledged
    assert not client.told.failed
