"""The batches by which a refused id is known when it comes back: bounded for each id and in all, the latest kept."""

from __future__ import annotations

import sys
from random import Random

import pytest

from pidgate.quota import refused_ids
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.refused_ids import MOST_BATCHES_OF_ID, Refusal, RefusedIds
from pidgate.quota.state import AskedId, Question, complete
from pidgate.quota.sticky import WATCH_MS
from pidgate.quota.verdicts import Reason
from tests.unit.quota.world import enforcing, seeds

STEP_MS = 1_000


def asked(producer_id: int, partition: int, *, topic: bytes = b"t", epoch: int = 0) -> AskedId:
    return AskedId(producer_id, epoch, 0, topic, partition)


def ask(state: ProducerIdQuota, *ids: AskedId, now_ms: int) -> list[tuple[Reason, bool]]:
    """Ask as through a process that knows none of the refusals; return each reason, and whether it came back."""
    question = Question("alice", "10.0.0.1", "app", False, len(ids), ids)
    complete(question, state.table.refusals, now_ms)
    answer = state.decide(question, now_ms)
    assert answer.refused
    return [(decision.reason, one.came_back) for decision, one in zip(answer.decisions, ids, strict=True)]


def blocked() -> ProducerIdQuota:
    return ProducerIdQuota(enforcing(0), seeds(), 0)


def kept(state: ProducerIdQuota) -> list[Refusal]:
    return list(state.table.refusals._ids.values())


def partitions_of_one_id(state: ProducerIdQuota) -> int:
    """An id that is refused in ever new partitions, topics and epochs."""
    for step in range(300):
        ask(state, asked(7, step, topic=b"t-%d" % step, epoch=step), now_ms=step * STEP_MS)
    return max(len(record.batches) for record in kept(state))


def partitions_of_many_ids(state: ProducerIdQuota) -> int:
    """The same with many ids, eight in a request."""
    for step in range(20):
        for first in range(0, 80, 8):
            ask(state, *(asked(first + n, step) for n in range(8)), now_ms=step)
    return sum(len(record.batches) - 1 for record in kept(state))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(refused_ids, "MOST_FURTHER_BATCHES", 100)
    return 100


def test_no_number_of_partitions_makes_a_refusal_grow(few: int) -> None:
    assert partitions_of_one_id(blocked()) == MOST_BATCHES_OF_ID
    state = blocked()
    assert few / 2 <= partitions_of_many_ids(state) <= few
    assert min(len(record.batches) for record in kept(state)) == 1, "one of each stays"


def test_a_mutant_that_keeps_every_batch_is_noticed(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_ids, "MOST_BATCHES_OF_ID", sys.maxsize)
    assert partitions_of_one_id(blocked()) > MOST_BATCHES_OF_ID
    monkeypatch.setattr(refused_ids, "MOST_FURTHER_BATCHES", sys.maxsize)
    assert partitions_of_many_ids(blocked()) > few


def test_of_a_batch_that_is_forgotten_the_place_in_the_queue_is_lost_and_no_more() -> None:
    state = ProducerIdQuota(enforcing(1), seeds(), 0)
    for producer_id in (1, 2):
        state.decide(Question("alice", "", "", False, 1, [asked(producer_id, 0)]), 0)
    for partition in range(MOST_BATCHES_OF_ID + 1):
        ask(state, asked(7, partition), now_ms=partition)
    in_line = state.status("alice", STEP_MS).waiting
    assert in_line == 1, "who returns before its deadline has come back"
    later_ms = 40_000
    state.sweep(later_ms + 50_000)  # it left the queue
    assert state.status("alice", later_ms + 50_000).waiting == 0
    assert ask(state, asked(7, 0), now_ms=later_ms + 50_000) == [(Reason.FIRST_SEEN, False)]
    assert ask(state, asked(7, 5), now_ms=later_ms + 110_000) == [(Reason.QUEUE, True)]


def test_the_batch_refused_last_is_the_last_to_go() -> None:
    state = blocked()
    for step in range(3 * MOST_BATCHES_OF_ID):
        ask(state, asked(7, 0), now_ms=2 * step)
        ask(state, asked(7, 1 + step), now_ms=2 * step + 1)
    assert ask(state, asked(7, 0), now_ms=1_000) == [(Reason.BLOCKED, True)]
    assert ask(state, asked(7, 1), now_ms=1_000) == [(Reason.BLOCKED, False)]


def test_further_batches_are_counted_exactly(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends a refusal: an admission, time, or others that push it out."""
    monkeypatch.setattr(refused_ids, "MOST_EXPLAINED", 10)
    dice = Random(1)
    for _ in range(20):
        table, now_ms = RefusedIds(), 0
        for _ in range(500):
            user, producer_id = dice.choice(("alice", "bob")), dice.randrange(10)
            now_ms += dice.choice((0, 1_000, WATCH_MS // 5))
            act = dice.randrange(8)
            if act <= 5:
                record = table.refused(user, producer_id, now_ms)
                for _ in range(dice.randrange(12)):
                    table.came(user, record, (0, b"t", dice.randrange(60)), 0)
                table.explained(user, record)
            elif act == 6:
                table.admitted(user, producer_id)
            else:
                table.sweep(now_ms)
            further = sum(max(0, len(record.batches) - 1) for record in table._ids.values())
            assert further == table._further_batches <= few
            assert all(len(record.batches) <= MOST_BATCHES_OF_ID for record in table._ids.values())
            several = {key for key, record in table._ids.items() if len(record.batches) > 1}
            assert set(table._with_further) == several
