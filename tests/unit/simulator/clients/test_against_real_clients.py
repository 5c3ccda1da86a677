"""The models against the real clients: before the same brokers, with the same faults, they send the same.

Compared is each partition's (epoch, base sequence), in the order of arrival; how many failures the application is told
of; and the requests beside Produce. librdkafka has one partition here: which of several gets a free place among the
requests in flight is a matter of microseconds.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulator.brokers.batches import values
from tests.simulator.clients.traits import JAVA, KAFKA_PYTHON, LIBRDKAFKA, Traits
from tests.unit.simulator.clients import real_clients
from tests.unit.simulator.clients.scripts import Once, Overtaking, answers
from tests.unit.simulator.clients.stage import Cut, Refuse, Script, Stage

BATCHES = 14
PLAYS_OF_TWO_PARTITIONS = 4

SCRIPTS: dict[str, Callable[[], Script | None]] = {
    "fine": lambda: None,
    "the first refused": lambda: Overtaking(0),
    "a later one refused": lambda: Overtaking(7),
    "cut, not taken": lambda: Once(Cut(taken=False), 2),
    "cut, taken": lambda: Once(Cut(taken=True), 3),
    "cut at the id": lambda: Once(Cut(taken=True), 0, "InitProducerId"),
    "not the leader": lambda: Once(Refuse(6), 1),
    "45 for the next one": lambda: Once(Refuse(45)),
    "45 for those behind": lambda: answers(Refuse(19), *[Refuse(45)] * 4),
}

CLIENTS: dict[str, tuple[real_clients.Send, Traits, tuple[int, ...]]] = {
    "librdkafka": (real_clients.librdkafka, LIBRDKAFKA, (1,)),
    "kafka-python": (real_clients.kafka_python, KAFKA_PYTHON, (1, 2)),
    "java": (real_clients.java, JAVA, (1,)),
}


def model(
    traits: Traits, script: Script | None, partitions: int, records: list[int]
) -> tuple[Stage, list[str]]:
    """The same of the model client; `records`: of each of its batches."""
    stage = Stage(partitions=partitions, delay_s=real_clients.SLOW_S, script=script)

    async def story() -> list[str]:
        client = stage.make(traits)
        await client.start()
        for number, count in enumerate(records):
            client.send(number % partitions, count)
        await client.flush()
        client.crash()
        return [batch.error for batch in client.told.failed]

    return stage, stage.play(story)


def sent(stage: Stage, partition: int) -> list[tuple[int, int]]:
    """Epoch and base sequence of all that arrived of a partition."""
    return [
        (epoch, sequence) for batches in stage.produced for at, epoch, sequence in batches if at == partition
    ]


def batches_of_java(stage: Stage) -> list[int]:
    """Records of each batch, in the order in which they were made: its values count up."""
    found = [values(raw) for seen in stage.seen for raw in seen.raw]
    return [len(batch) for _, batch in sorted({int(batch[0] or b""): batch for batch in found}.items())]


Sent = tuple[list[list[tuple[int, int]]], int, list[str]]
"""Of each partition what arrived, the number of errors, and the requests beside Produce."""


def compared(name: str, partitions: int, what: str) -> tuple[Sent, Sent]:
    """Return what the model sends, and what the real client does."""
    real, traits, _ = CLIENTS[name]
    there, real_errors = real_clients.run(real, SCRIPTS[what](), batches=BATCHES, partitions=partitions)
    records = [1] * BATCHES
    if traits is JAVA:  # its smallest batch has room for more than one
        records = batches_of_java(there)
    here, errors = model(traits, SCRIPTS[what](), partitions, records)

    def seen(stage: Stage, told: list[str]) -> Sent:
        ids = [api for api in stage.apis if api != "Produce"]
        return [sent(stage, partition) for partition in range(partitions)], len(told), ids

    return seen(here, errors), seen(there, real_errors)


@pytest.mark.nightly
@pytest.mark.parametrize("what", SCRIPTS)
@pytest.mark.parametrize(
    ("name", "partitions"), [(name, count) for name, (_, _, counts) in CLIENTS.items() for count in counts]
)
def test_a_model_sends_what_the_real_client_sends(name: str, partitions: int, what: str) -> None:
    """With two partitions, one of some plays has to be the same.

    Which of two partitions is in a client's n-th request is a matter of microseconds. A model that does something else
    is never the same.
    """
    for _ in range(PLAYS_OF_TWO_PARTITIONS if partitions > 1 else 1):
        here, there = compared(name, partitions, what)
        if here == there:
            return
    assert here == there
