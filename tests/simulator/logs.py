"""The log against what applications were told: everything acknowledged is there, once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulator.brokers.batches import values
from tests.simulator.brokers.entries import Entry
from tests.simulator.clients.batches import Batch, ModelViolation, State
from tests.simulator.gaps import Overtaken
from tests.simulator.ledger import Name

_COVERED_FROM: Final = 21
"""What stands before it in a batch, a broker writes."""

if TYPE_CHECKING:
    from tests.simulator.world import World


def check(world: World, overtaken: Overtaken) -> None:
    """Check the log of every partition. Raises ModelViolation."""
    sent = {name_of(batch): batch for application in world.everybody for batch in application.sent}
    for index in range(world.setup.partitions):
        partition = world.cluster.partition(world.topic, index)
        log = [entry for entry in partition.log if entry.head is not None]
        _check_order(log, sent, overtaken)
        written = {name_in(entry) for entry in log}
        for name, batch in sent.items():
            if name.partition != index or batch.state is not State.ACKED or name in written:
                continue
            if (name.producer, index) not in overtaken:
                raise ModelViolation(f"{words(batch)} was acknowledged and is not in the log")


def check_readers(world: World) -> None:
    """Check that whoever follows the logs was given what is in them, in order, and all that he was waited for to read:
    a producer that is closing may write behind that. Raises ModelViolation.
    """
    for reader in world.readers.values():
        for index, read in enumerate(reader.read):
            partition = world.cluster.partition(world.topic, index)
            held = [entry for entry in partition.log if entry.next_offset <= partition.high_watermark]
            waited_for = sum(entry.next_offset <= world.read_to[index] for entry in held)
            given = [raw[_COVERED_FROM:] for raw in read]
            if len(given) < waited_for or given != [
                entry.raw[_COVERED_FROM:] for entry in held[: len(given)]
            ]:
                raise ModelViolation(
                    f"{reader.name} was given {len(read)} batches of {len(held)} in partition {index}"
                )


def is_missing(world: World, batch: Batch) -> bool:
    """Return whether a batch is not in its log at this moment. Looks from the log's end on."""
    log = world.cluster.partition(world.topic, batch.partition).log
    name = name_of(batch)
    return all(entry.head is None or name_in(entry) != name for entry in reversed(log))


def _check_order(log: list[Entry], sent: dict[Name, Batch], overtaken: Overtaken) -> None:
    latest: dict[str, int] = {}
    written: set[Name] = set()
    for entry in log:
        name = name_in(entry)
        batch = sent.get(name)
        if batch is None or entry.records != batch.records:
            raise ModelViolation(f"{name} is in the log with {entry.records} records, and was never sent so")
        if name in written:
            if not batch.may_repeat:
                raise ModelViolation(f"{words(batch)} is in the log twice")
            continue
        written.add(name)
        if name.number < latest.get(name.producer, -1) and (name.producer, name.partition) not in overtaken:
            raise ModelViolation(
                f"{words(batch)} stands behind number {latest[name.producer]} of its partition"
            )
        latest[name.producer] = max(latest.get(name.producer, -1), name.number)


def name_of(batch: Batch) -> Name:
    return Name(batch.producer, batch.partition, batch.number)


def name_in(entry: Entry) -> Name:
    """Return the name that is in every record of a batch of the log. Raises ModelViolation where it is not."""
    found = set(values(entry.raw))
    if len(found) != 1:
        raise ModelViolation(f"offset {entry.base_offset} holds records of several batches")
    return Name.of(found.pop())


def words(batch: Batch) -> str:
    """Return a batch as a person reads it."""
    return f"batch {batch.number} of {batch.producer} to partition {batch.partition}"
