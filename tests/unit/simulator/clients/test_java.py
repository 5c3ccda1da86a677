"""The Java model in known exchanges: what `Sender`, `RecordAccumulator` and `TransactionManager` do."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulator.clients import frames
from tests.simulator.clients.batches import State
from tests.simulator.clients.traits import JAVA
from tests.unit.simulator.clients.scripts import Once
from tests.unit.simulator.clients.stage import Hold, Refuse, Seen, Stage, Verdict


def five_in_flight(stage: Stage, seconds: float = 10.0, **settings: Any) -> Any:
    """A client that has sent six batches of one record to one partition, some time later."""

    async def story() -> Any:
        client = stage.make(JAVA, **settings)
        await client.start()
        for _ in range(6):
            client.send(0)
        await asyncio.sleep(seconds)
        client.crash()
        return client

    return stage.play(story)


def places(stage: Stage) -> list[tuple[int, int]]:
    """Epoch and sequence of each batch, in the order of arrival."""
    return [(epoch, sequence) for batches in stage.produced for _, epoch, sequence in batches]


def test_waits_as_long_as_it_is_throttled() -> None:
    stage = Stage(script=Once(Refuse(19, 3_000)))
    client = five_in_flight(stage)
    times = [seen.at_s for seen in stage.seen if seen.api == "Produce"]
    assert times[4] < 0.3
    assert times[5] >= times[4] + 2.99
    (throttle,) = [wait for wait in client.told.waits if wait.kind == "throttle"]
    assert round(throttle.ended_s - throttle.began_s, 3) == 3.0


def test_expired_batches_fail_and_the_next_begin_an_epoch() -> None:
    times = JAVA.times.scaled(0.1)

    def script(seen: Seen) -> Verdict | None:
        return Refuse() if seen.api == "Produce" and seen.at_s < 14.0 else None

    async def story() -> Any:
        client = stage.make(JAVA, times=times)
        await client.start()
        early = client.send(0)
        await early.wait()
        late = client.send(0)
        await asyncio.sleep(4.0)
        await late.wait()
        return early, late

    stage = Stage(script=script)
    early, late = stage.play(story)
    assert (early.state, early.error) == (State.FAILED, "timed out")
    assert round(early.done_s - early.queued_s, 1) == 12.0
    assert (late.state, late.epoch, late.base_sequence) == (State.ACKED, 1, 0)


def test_a_request_without_an_answer_costs_the_connection() -> None:
    stage = Stage(script=Once(Hold()))
    client = five_in_flight(stage, 40.0)
    assert len(client.told.acknowledged) == 6
    assert len(stage.log()) == 6
    (again,) = [seen for seen in stage.seen if seen.api == "ApiVersions" and seen.at_s > 20.0]
    assert again.at_s > 30.0


def test_transactions_of_version_1_are_registered() -> None:
    stage = Stage()

    async def story() -> Any:
        client = stage.make(JAVA, transactional_id="t1", newest={frames.PRODUCE: 11, frames.END_TXN: 4})
        await client.start()
        for _ in range(2):
            await client.begin()
            client.send(0)
            await client.commit()
        return client

    client = stage.play(story)
    assert [one.outcome for one in client.told.transactions] == ["committed"] * 2
    assert stage.apis[-6:] == ["AddPartitionsToTxn", "Produce", "EndTxn"] * 2
