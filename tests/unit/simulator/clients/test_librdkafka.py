"""The librdkafka model in known exchanges: implicit acknowledgement, draining, epochs."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from tests.simulator.clients.traits import LIBRDKAFKA
from tests.unit.simulator.clients.scripts import Once
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


def test_counts_messages_where_it_limits_requests() -> None:
    stage = Stage()
    eight_sent(stage, records=5)
    times = [seen.at_s for seen in stage.seen if seen.api == "Produce"]
    assert all(later > earlier for earlier, later in pairwise(times)), "one at a time"


def test_does_not_look_at_throttles() -> None:
    stage = Stage(script=Once(Refuse(19, 8_000)))
    eight_sent(stage, 2.0)
    assert [seen.at_s < 2.0 for seen in stage.seen if seen.api == "Produce"] == [True] * 8


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
