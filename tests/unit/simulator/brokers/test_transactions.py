"""The coordinator's decisions: who owns a transactional id, and the table of ends (KIP-98, KIP-360, KIP-890)."""

from __future__ import annotations

import itertools

import pytest
from kio.schema.errors import ErrorCode

from tests.simulator.brokers.transaction import LAST_EPOCH, Identity, State, Transaction
from tests.simulator.brokers.transactions import Coordinator

FENCED = ErrorCode.producer_fenced
PLACE = ("orders", 0)


class World:
    """A coordinator, and the transactions whose markers are under way."""

    def __init__(self, *, is_v2: bool = True) -> None:
        ids = itertools.count(100)
        self.ended: list[Transaction] = []
        self.coordinator = Coordinator(lambda: next(ids), lambda _: None, self.ended.append, is_v2=is_v2)

    def init(self, producer_id: int = -1, epoch: int = -1) -> Identity:
        expected = None if producer_id == -1 else (producer_id, epoch)
        return self.coordinator.init_producer_id("t", 60_000, expected)

    def add(self, epoch: int = 0, producer_id: int = 100) -> ErrorCode:
        return self.coordinator.add("t", producer_id, epoch, [PLACE], 0)

    def end(
        self, epoch: int = 0, *, commit: bool = True, v2: bool = True, producer_id: int = 100
    ) -> Identity:
        return self.coordinator.end("t", producer_id, epoch, 0, commit=commit, is_v2=v2)

    def complete(self) -> None:
        self.coordinator.complete(self.ended.pop())

    @property
    def transaction(self) -> Transaction:
        return self.coordinator.transactions["t"]

    def committed(self) -> None:
        self.init()
        self.add()
        self.end()
        self.complete()


def test_an_epoch_that_is_used_up_gives_a_new_id() -> None:
    world = World()
    world.init()
    world.transaction.epoch = LAST_EPOCH - 1
    assert world.init(100, LAST_EPOCH - 1) == (0, 101, 0)
    assert world.init(100, LAST_EPOCH - 1) == (0, 101, 0)


def test_the_end_that_uses_up_the_epoch_gives_a_new_id_and_may_be_sent_again() -> None:
    world = World()
    world.init()
    last = world.transaction.epoch = LAST_EPOCH - 1
    world.add(last)
    assert world.end(last) == (0, 101, 0)
    assert (world.ended[0].producer_id, world.ended[0].epoch) == (100, LAST_EPOCH)
    world.complete()
    assert (world.transaction.producer_id, world.transaction.epoch) == (101, 0)
    assert world.end(last) == (0, 101, 0)
    assert world.add(0, producer_id=101) == 0


@pytest.mark.parametrize(("is_v2", "epoch"), [(True, 1), (False, 1)])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    is_v2: bool, epoch: int
) -> None:
    world = World(is_v2=is_v2)
    world.init()
    world.add()
    world.coordinator.abort_timed_out(world.transaction, 60_000)
    assert not world.ended
    world.coordinator.abort_timed_out(world.transaction, 60_001)
    world.complete()
    assert (world.transaction.state, world.transaction.epoch) == (State.COMPLETE_ABORT, epoch)
    assert world.add() is FENCED
