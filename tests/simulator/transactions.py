"""Transactions against what applications were told: committed whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.clients.batches import Batch, ModelViolation
from tests.simulator.gaps import Overtaken
from tests.simulator.logs import name_in, name_of

if TYPE_CHECKING:
    from tests.simulator.world import World


def check(world: World, overtaken: Overtaken) -> None:
    """Check every transaction that applications know the end of. Raises ModelViolation.

    Nothing is said of partitions in which a batch was overtaken and no gateway was to blame (gaps.py).
    """
    committed = {
        name_in(entry)
        for index in range(world.setup.partitions)
        for entry in world.cluster.partition(world.topic, index).committed()
    }
    for application in world.everybody:
        for transaction in application.client.told.transactions:
            batches = [
                batch for batch in transaction.batches if (batch.producer, batch.partition) not in overtaken
            ]
            visible = [name_of(batch) in committed for batch in batches]
            what = f"transaction {transaction.number} of {application.name}"
            if transaction.outcome == "committed" and not all(visible):
                raise ModelViolation(f"{what} was committed, and {_missing(batches, visible)} are not there")
            is_aborted = transaction.outcome == "aborted" and not transaction.may_be_committed
            if is_aborted and any(visible):
                raise ModelViolation(f"{what} was aborted, and {sum(visible)} of its batches can be read")
            if any(visible) and not all(visible):
                raise ModelViolation(f"{what} is there in part: without {_missing(batches, visible)}")


def _missing(batches: list[Batch], visible: list[bool]) -> str:
    missing = [batch for batch, is_visible in zip(batches, visible, strict=True) if not is_visible]
    return ", ".join(f"{batch.partition}/{batch.number}" for batch in missing)
