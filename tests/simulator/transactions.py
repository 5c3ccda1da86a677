"""Transactions against what applications were told: committed whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.clients.batches import ModelViolation, Transaction
from tests.simulator.logs import name_in, name_of

if TYPE_CHECKING:
    from tests.simulator.world import World


def check(world: World) -> None:
    """Check every transaction that applications know the end of. Raises ModelViolation."""
    committed = {
        name_in(entry)
        for index in range(world.setup.partitions)
        for entry in world.cluster.partition(world.topic, index).committed()
    }
    for application in world.everybody:
        for transaction in application.client.told.transactions:
            visible = [name_of(batch) in committed for batch in transaction.batches]
            what = f"transaction {transaction.number} of {application.name}"
            if transaction.outcome == "committed" and not all(visible):
                raise ModelViolation(
                    f"{what} was committed, and {_missing(transaction, visible)} are not there"
                )
            is_aborted = transaction.outcome == "aborted" and not transaction.may_be_committed
            if is_aborted and any(visible):
                raise ModelViolation(f"{what} was aborted, and {sum(visible)} of its batches can be read")
            if any(visible) and not all(visible):
                raise ModelViolation(f"{what} is there in part: without {_missing(transaction, visible)}")


def _missing(transaction: Transaction, visible: list[bool]) -> str:
    missing = [
        batch for batch, is_visible in zip(transaction.batches, visible, strict=True) if not is_visible
    ]
    return ", ".join(f"{batch.partition}/{batch.number}" for batch in missing)
