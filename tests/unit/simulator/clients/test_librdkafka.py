"""The librdkafka model in known exchanges: implicit acknowledgement, draining, epochs."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from tests.simulator.clients.traits import LIBRDKAFKA
from tests.unit.simulator.clients.scripts import Once, Sticky
from tests.unit.simulator.clients.stage import TOPIC, Refuse, Seen, Stage, Verdict


def eight_sent(stage: Stage, seconds: float = 10.0, records: int = 1) -> Any:
    """A client that has sent eight batches to one partition, some time later."""

    async def story() -> Any:
        client = stage.make(LIBRDKAFKA)
        await client.start()
        for _ in range(8):
            client.send(0, records)
        await asyncio.sleep(seconds)
        client.crash()
        return client

    return stage.play(story)


def test_a_later_success_acknowledges_what_was_refused() -> None:
    stage = Stage(script=Once(Refuse()))
    client = eight_sent(stage)
    assert [batch.number for batch in client.told.acknowledged] == list(range(8))
    assert client.told.acknowledged[0].offset == -1
    assert b"client-1|0|0" not in stage.log(), "it is lost, and nobody knows"


def test_retries_in_a_pipeline_after_a_drain() -> None:
    stage = Stage(script=Sticky(0.6))
    client = eight_sent(stage)
    sequences = [sequence for batches in stage.produced for _, _, sequence in batches]
    assert sequences[:5] == [0, 1, 2, 3, 4]
    assert sequences[5:7] == [0, 1], "the second try does not wait for the answer to the first batch"
    assert [batch.value for batch in client.told.acknowledged] == stage.log()


def test_counts_messages_where_it_limits_requests() -> None:
    stage = Stage()
    eight_sent(stage, records=5)
    times = [seen.at_s for seen in stage.seen if seen.api == "Produce"]
    assert all(later > earlier for earlier, later in pairwise(times)), "one at a time"


def test_does_not_look_at_throttles() -> None:
    stage = Stage(script=Once(Refuse(19, 8_000)))
    eight_sent(stage, 2.0)
    assert [seen.at_s < 2.0 for seen in stage.seen if seen.api == "Produce"] == [True] * 8


def test_45_for_a_later_batch_drains_all_and_bumps_the_epoch() -> None:
    verdicts = iter([Refuse(19), *[Refuse(45)] * 4])
    stage = Stage(script=lambda seen: next(verdicts, None) if seen.api == "Produce" else None)
    client = eight_sent(stage)
    places = [(epoch, sequence) for batches in stage.produced for _, epoch, sequence in batches]
    assert places == [*((0, sequence) for sequence in range(5)), *((1, sequence) for sequence in range(8))]
    assert not client.told.fatal
    assert [batch.value for batch in client.told.acknowledged] == stage.log()


def test_dies_of_45_for_the_batch_that_is_next() -> None:
    stage = Stage(script=Once(Refuse(45)))
    client = eight_sent(stage)
    assert client.told.fatal.startswith("45 for sequence 0")
    assert client.told.failed


def test_a_new_leader_gets_nothing_before_the_old_one_has_answered() -> None:
    def script(seen: Seen) -> Verdict | None:
        return Refuse(19) if seen.api == "Produce" and seen.node_id == 1 and seen.at_s > 0.3 else None

    stage = Stage(nodes=2, script=script)

    async def story() -> Any:
        client = stage.make(LIBRDKAFKA)
        await client.start()
        for number in range(12):
            client.send(0)
            await asyncio.sleep(0.1)
            if number == 4:
                stage.brokers.move_leader(TOPIC, 0, 2)
                client.request_metadata()
        await client.flush()
        return client

    client = stage.play(story)
    assert [batch.value for batch in client.told.acknowledged] == stage.log()
    assert len(stage.log()) == 12


def test_expired_batches_fail_and_all_begin_an_epoch() -> None:
    def script(seen: Seen) -> Verdict | None:
        return Refuse() if seen.api == "Produce" and seen.at_s < 35.0 else None

    stage = Stage(script=script)

    async def story() -> Any:
        client = stage.make(LIBRDKAFKA, times=LIBRDKAFKA.times.scaled(0.1))
        await client.start()
        early = client.send(0)
        await asyncio.sleep(8.0)
        late = client.send(0)
        await client.flush()
        return early, late

    early, late = stage.play(story)
    assert early.error == "timed out"
    assert 30.0 <= early.done_s - early.queued_s <= 31.5
    assert (late.epoch, late.base_sequence, late.offset) == (1, 0, 0)
