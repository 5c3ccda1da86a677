"""The kafka-python model in known exchanges: one batch of a partition in flight, pauses, and what it loses."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulator.clients.batches import State
from tests.simulator.clients.traits import KAFKA_PYTHON
from tests.unit.simulator.clients.scripts import Sticky
from tests.unit.simulator.clients.stage import Refuse, Seen, Stage, Verdict


def six_sent(stage: Stage, seconds: float = 10.0, partitions: int = 1, **settings: Any) -> Any:
    """A client that has sent six batches, some time later."""

    async def story() -> Any:
        client = stage.make(KAFKA_PYTHON, **settings)
        await client.start()
        for number in range(6):
            client.send(number % partitions)
        await asyncio.sleep(seconds)
        client.crash()
        return client

    return stage.play(story)


def test_has_one_batch_of_a_partition_in_flight() -> None:
    stage = Stage(partitions=2)
    six_sent(stage, partitions=2)
    assert [sorted(batches) for batches in stage.produced] == [[(0, 0, n), (1, 0, n)] for n in range(3)]
    times = [seen.at_s for seen in stage.seen if seen.api == "Produce"]
    assert times == sorted(set(times))


def test_a_throttled_connection_is_paused() -> None:
    stage = Stage(script=Sticky(3.0, 2_000))
    client = six_sent(stage)
    times = [seen.at_s for seen in stage.seen if seen.api == "Produce"]
    assert times[1] - times[0] >= 1.99
    assert [batch.value for batch in client.told.acknowledged] == stage.log()


def test_is_stuck_when_a_batch_has_expired_that_was_sent() -> None:
    def script(seen: Seen) -> Verdict | None:
        return Refuse() if seen.api == "Produce" and seen.at_s < 20.0 else None

    stage = Stage(script=script)
    times = KAFKA_PYTHON.times.scaled(0.1)

    async def story() -> Any:
        client = stage.make(KAFKA_PYTHON, times=times)
        await client.start()
        first = client.send(0)
        await first.wait()
        later = client.send(0)
        await asyncio.sleep(100.0)
        return client, first, later

    client, first, later = stage.play(story)
    assert first.state is State.FAILED
    assert later.state is State.QUEUED, "nobody is told, not even after its time"
    assert client.is_stuck


def test_is_not_stuck_before_it_knows_the_cluster() -> None:
    """Or a schedule would go on, and end, as if everything had been told."""
    stage = Stage()

    async def story() -> tuple[bool, Any]:
        client = stage.make(KAFKA_PYTHON)
        await client.start()
        batch = client.send(0)
        was_stuck = client.is_stuck
        await batch.wait()
        return was_stuck, batch

    was_stuck, batch = stage.play(story)
    assert not was_stuck
    assert batch.state is State.ACKED
