"""The franz-go model in known exchanges: one in flight before a success, rewinding, a look at the leaders between."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulator.clients.traits import FRANZ_GO
from tests.unit.simulator.clients.scripts import Once, Sticky
from tests.unit.simulator.clients.stage import Cut, Refuse, Stage


def ten_sent(stage: Stage, seconds: float = 30.0) -> Any:
    """A client that has sent ten batches to one partition, some time later."""

    async def story() -> Any:
        client = stage.make(FRANZ_GO)
        await client.start()
        for _ in range(10):
            client.send(0)
        await asyncio.sleep(seconds)
        client.crash()
        return client

    return stage.play(story)


def sequences(stage: Stage) -> list[int]:
    """Of all batches, in the order of arrival."""
    return [sequence for batches in stage.produced for _, _, sequence in batches]


def test_one_in_flight_before_a_success_then_four() -> None:
    stage = Stage()
    client = ten_sent(stage)
    assert sequences(stage) == list(range(10))
    times = [seen.at_s for seen in stage.seen if seen.api == "Produce"]
    assert times[1] > times[0] + 0.001
    assert [batch.value for batch in client.told.acknowledged] == stage.log()


def test_a_refused_batch_goes_again_after_a_look_at_the_leaders() -> None:
    stage = Stage(script=Sticky(0.5))
    ten_sent(stage)
    assert sequences(stage) == [0, *range(10)]
    first, again = [seen.at_s for seen in stage.seen if seen.api == "Produce"][:2]
    looks = [seen.at_s for seen in stage.seen if seen.api == "Metadata" and first < seen.at_s < again]
    assert len(looks) == 1
    assert again - first > 3.0, "the leaders are asked for every 5 s at most"


def test_all_are_sent_again_from_the_first_that_failed() -> None:
    stage = Stage(script=Once(Refuse(), 3))
    client = ten_sent(stage)
    seen = sequences(stage)
    again = seen.index(3, seen.index(3) + 1)
    assert seen[:4] == [0, 1, 2, 3]
    assert seen[again:] == list(range(3, 10)), "what came behind is sent again, whatever became of it"
    assert [batch.number for batch in client.told.acknowledged] == list(range(10))


def test_what_was_cut_off_is_sent_again_over_another_connection() -> None:
    stage = Stage(script=Once(Cut(taken=True), 4))
    client = ten_sent(stage)
    assert sorted(set(stage.log())) == sorted(stage.log())
    assert [batch.number for batch in client.told.acknowledged] == list(range(10))


def test_45_bumps_the_epoch_and_all_begin_at_0() -> None:
    stage = Stage(script=Once(Refuse(45), 2))
    client = ten_sent(stage)
    places = [(epoch, sequence) for batches in stage.produced for _, epoch, sequence in batches]
    assert (1, 0) in places
    assert max(epoch for epoch, _ in places) == 1
    assert len(client.told.acknowledged) == 10
