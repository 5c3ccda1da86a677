"""Rogues and the hostile client: they do what they are named for, and harm nobody beside them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pidgate.load.plan import Login
from tests.simulator.clients.batches import State
from tests.simulator.clients.hostile import ACTS, Hostile
from tests.simulator.clients.rogue import Rogue
from tests.simulator.clients.traits import JAVA, LIBRDKAFKA, Traits
from tests.unit.simulator.clients.stage import Stage


@pytest.mark.parametrize("traits", [JAVA, LIBRDKAFKA], ids=lambda traits: traits.family)
def test_an_id_for_each_batch(traits: Traits) -> None:
    stage = Stage(partitions=2)

    async def story() -> Rogue:
        rogue = Rogue("rogue", stage.settings(), Random(1), traits=traits, partitions=2)
        await rogue.id_per_batch(8)
        return rogue

    rogue = stage.play(story)
    ids = [producer_id for seen in stage.seen for producer_id in seen.producer_ids]
    assert len(ids) == len(set(ids)) == rogue.lives == 8
    assert all(batch.state is State.ACKED for batch in rogue.sent)


def test_a_crash_loop() -> None:
    stage = Stage()

    async def story() -> Rogue:
        rogue = Rogue("rogue", stage.settings(), Random(1))
        await rogue.crash_loop(10)
        return rogue

    rogue = stage.play(story)
    assert rogue.lives == len(rogue.told) == 10
    assert len({seen.connection for seen in stage.seen}) >= 10


@pytest.mark.parametrize("users", [None, {"mallory": "secret", "alice": "other"}], ids=["open", "login"])
def test_the_hostile_client_runs_and_a_good_one_beside_it_does_not_notice(users: Any) -> None:
    stage = Stage(partitions=3, users=users, traced=False)
    login = None if users is None else Login("mallory", "secret")

    async def story() -> tuple[Hostile, Any]:
        good = stage.make(JAVA, "good", login=users and Login("alice", "other"))
        await good.start()
        hostile = Hostile("hostile", stage.settings(login=login), Random(5))
        hostile.others_ids.append(10**9)
        for _ in range(30):
            await hostile.run(5)
            await good.send(0).wait()
        return hostile, good

    hostile, good = stage.play(story)
    assert set(hostile.acts) == set(ACTS)
    assert len(good.told.acknowledged) == 30
    assert [value for value in stage.log(0) if value.startswith(b"good|")] == [
        batch.value for batch in good.told.acknowledged
    ]


def test_one_seed_of_the_hostile_client_is_one_run() -> None:
    traces = []
    for _ in range(2):
        trace: list[str] = []
        stage = Stage(partitions=2, traced=False)

        async def story(stage: Stage = stage, trace: list[str] = trace) -> None:
            await Hostile("hostile", stage.settings(), Random(3), trace.append).run(40)

        stage.play(story)
        traces.append((trace, len(stage.loop.network.links())))
    assert traces[0] == traces[1]
