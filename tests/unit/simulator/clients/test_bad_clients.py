"""Rogues and the hostile client: they do what they are named for, and harm nobody beside them."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulator.clients.batches import State
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
