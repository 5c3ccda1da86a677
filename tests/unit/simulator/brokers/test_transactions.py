"""The coordinator's decisions: who owns a transactional id, and the table of ends (KIP-98, KIP-360, KIP-890)."""

from __future__ import annotations

import itertools

import pytest
from kio.schema.errors import ErrorCode

from tests.simulator.brokers.transaction import LAST_EPOCH, Identity, State, Transaction
from tests.simulator.brokers.transactions import Coordinator

FENCED, PENDING = ErrorCode.producer_fenced, ErrorCode.concurrent_transactions
NOT_THIS_STATE, OTHER_ID = ErrorCode.invalid_txn_state, ErrorCode.invalid_producer_id_mapping
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


def test_each_init_bumps_the_epoch_and_fences_the_one_before() -> None:
    world = World()
    assert world.init() == (0, 100, 0)
    assert world.init() == (0, 100, 1)
    assert world.add(0) is FENCED
    assert world.add(1, producer_id=5) is OTHER_ID
    assert world.add(1) == 0


def test_an_init_that_names_its_id_is_bumped_once_however_often_it_is_sent() -> None:
    world = World()
    world.init()
    assert world.init(100, 0) == (0, 100, 1)
    assert world.init(100, 0) == (0, 100, 1)
    assert world.init() == (0, 100, 2)
    assert world.init(100, 0) == (FENCED, -1, -1)
    assert world.init(5, 2) == (FENCED, -1, -1)


def test_an_epoch_that_is_used_up_gives_a_new_id() -> None:
    world = World()
    world.init()
    world.transaction.epoch = LAST_EPOCH - 1
    assert world.init(100, LAST_EPOCH - 1) == (0, 101, 0)
    assert world.init(100, LAST_EPOCH - 1) == (0, 101, 0)


def test_an_init_amid_a_transaction_aborts_it_and_is_sent_again() -> None:
    world = World()
    world.init()
    world.add()
    assert world.init() == (PENDING, -1, -1)
    assert world.transaction.state is State.PREPARE_ABORT
    assert world.init() == (PENDING, -1, -1)
    world.complete()
    assert world.init() == (0, 100, 2)


def test_while_markers_are_under_way_everybody_waits() -> None:
    world = World()
    world.init()
    world.add()
    assert world.end() == (0, 100, 1)
    assert world.add(1) is PENDING
    assert world.end() == (PENDING, -1, -1)
    assert world.coordinator.verify("t", 100, 1, [PLACE]) == {PLACE: PENDING}
    world.complete()
    assert world.add(1) == 0


@pytest.mark.parametrize(
    ("state", "commit", "epoch", "expected"),
    [
        # The table above TransactionCoordinator.endTransaction; a retry has the epoch before.
        ("empty", False, 1, 0),
        ("empty", False, 0, FENCED),
        ("empty", True, 1, NOT_THIS_STATE),
        ("empty", True, 0, FENCED),
        ("aborted", False, 1, 0),
        ("aborted", False, 0, 0),
        ("aborted", True, 1, NOT_THIS_STATE),
        ("aborted", True, 0, NOT_THIS_STATE),
        ("committed", False, 1, 0),
        ("committed", False, 0, NOT_THIS_STATE),
        ("committed", True, 1, NOT_THIS_STATE),
        ("committed", True, 0, 0),
    ],
)
def test_ends_of_version_2(state: str, commit: bool, epoch: int, expected: int) -> None:
    world = World()
    world.init()
    if state == "empty":
        world.init()
    else:
        world.add()
        world.end(commit=state == "committed")
        world.complete()
    assert world.transaction.epoch == 1
    bumps = expected == 0 and epoch == 1
    identity = world.end(epoch, commit=commit)
    assert identity == ((0, 100, 2 if bumps else 1) if expected == 0 else (expected, -1, -1))
    assert len(world.ended) == bumps


@pytest.mark.parametrize(
    ("done", "commit", "expected"),
    [(True, True, 0), (True, False, NOT_THIS_STATE), (False, False, 0), (False, True, NOT_THIS_STATE)],
)
def test_ends_of_version_1_keep_the_epoch_and_may_be_sent_again(
    done: bool, commit: bool, expected: int
) -> None:
    world = World()
    world.init()
    world.add()
    assert world.end(commit=done, v2=False) == (0, -1, -1)
    assert world.end(commit=done, v2=False) == (PENDING, -1, -1)
    world.complete()
    assert world.transaction.epoch == 0
    assert world.end(commit=commit, v2=False) == (expected, -1, -1)
    assert world.end(7, commit=commit, v2=False) == (FENCED, -1, -1)


def test_an_end_without_a_transaction_is_an_error_in_version_1() -> None:
    world = World()
    world.init()
    assert world.end(commit=False, v2=False) == (NOT_THIS_STATE, -1, -1)
    assert world.coordinator.end("x", 1, 1, 0, commit=True, is_v2=False) == (OTHER_ID, -1, -1)


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


def test_a_partition_that_was_not_added_is_not_verified() -> None:
    world = World()
    world.init()
    assert world.coordinator.verify("t", 100, 0, [PLACE]) == {PLACE: ErrorCode.transaction_abortable}
    world.add()
    assert world.coordinator.verify("t", 100, 0, [PLACE]) == {PLACE: 0}
    assert world.coordinator.verify("t", 100, 1, [PLACE]) == {PLACE: FENCED}
    assert world.coordinator.verify("x", 100, 0, [PLACE]) == {PLACE: OTHER_ID}


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


@pytest.mark.parametrize("timeout_ms", [0, 900_001])
def test_a_timeout_has_bounds(timeout_ms: int) -> None:
    coordinator = World().coordinator
    assert coordinator.init_producer_id("t", timeout_ms, None)[0] is ErrorCode.invalid_transaction_timeout
    assert coordinator.init_producer_id("", 1, None)[0] is ErrorCode.invalid_request
