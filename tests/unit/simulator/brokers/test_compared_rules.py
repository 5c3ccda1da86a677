"""Each rule of the model cluster, broken, changes an answer that is compared with Kafka's in tests/kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.simulator.brokers import produce, producer_state, transaction_apis
from tests.simulator.brokers.caller import Caller
from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.partition import Partition
from tests.simulator.brokers.producer_state import ProducerStates, Verification
from tests.simulator.brokers.random_steps import RandomSteps
from tests.simulator.brokers.same_steps import PARTITIONS, InitProducerId, Outcome, Side, Step
from tests.simulator.brokers.transactions import Coordinator

SCHEDULES, STEPS = 200, 15
"""As many as are compared by day."""

OK = ErrorCode.none
Mutation = tuple[Any, str, Any]


def outcomes() -> Iterator[tuple[Step, Outcome]]:
    """Yield what the schedules come to."""
    cluster = ModelCluster(1, {"orders": PARTITIONS})
    side = Side(Caller(cluster), "orders", cluster.topics.by_name["orders"].topic_id, 0, lambda _: None)
    InitProducerId(1).play(side)  # the first finds no block of ids
    for number in range(SCHEDULES):
        steps = RandomSteps(Random(number), f"orders-{number}")
        for _ in range(STEPS):
            step = steps.next()
            outcome = step.play(side)
            yield step, outcome
            steps.came(step, outcome)


@cache
def right() -> list[tuple[Step, Outcome]]:
    return list(outcomes())


def mutated(target: Any, name: str, change: Callable[..., Callable[..., Any]]) -> Mutation:
    """`change`: of the right function, the wrong one."""
    return target, name, change(getattr(target, name))


def knows_only_the_last(find: Callable[..., Any]) -> Callable[..., Any]:
    def found(self: ProducerStates, head: Any) -> Any:
        kept = find(self, head)
        return kept if kept is not None and kept is self.states[head.producer_id].kept[-1] else None

    return found


def any_sequence_for_a_new_epoch(judge: Callable[..., Any]) -> Callable[..., Any]:
    def judged(self: ProducerStates, head: Any, state: Any) -> Any:
        return OK if state is not None and head.epoch != state.epoch else judge(self, head, state)

    return judged


def zero_for_a_new_id(judge: Callable[..., Any]) -> Callable[..., Any]:
    def judged(self: ProducerStates, head: Any, state: Any) -> Any:
        wrong = state is None and head.base_sequence != 0
        return ErrorCode.out_of_order_sequence_number if wrong else judge(self, head, state)

    return judged


def without_verifications(judge: Callable[..., Any]) -> Callable[..., Any]:
    def judged(self: ProducerStates, head: Any, state: Any) -> Any:
        self._verifications = {}
        return judge(self, head, state)

    return judged


def with_options(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda function: lambda *args, **given: function(*args, **{**given, **options})


def always(value: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda _: lambda *args, **given: value


def clears_every_verification(append: Callable[..., Any]) -> Callable[..., Any]:
    def appended(self: ProducerStates, producer_id: int, *args: Any) -> Any:
        first = append(self, producer_id, *args)
        self._verifications.pop(producer_id, None)
        return first

    return appended


def keeps_every_verification(append: Callable[..., Any]) -> Callable[..., Any]:
    def appended(self: ProducerStates, producer_id: int, *args: Any) -> Any:
        kept = self._verifications.get(producer_id)
        first = append(self, producer_id, *args)
        if kept is not None:
            self._verifications[producer_id] = kept
        return first

    return appended


def never_by_an_old_owner(init: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, name, timeout_ms, expected: init(self, name, timeout_ms, None)


def without_bump(prepare: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, found, *, commit, is_v2: prepare(self, found, commit=commit, is_v2=False)


def ends_as_version_1(end: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, found, producer_id, epoch, now_ms, *, commit: self._end_v1(
        found, producer_id, epoch, commit=commit
    )


def everything_is_added(
    self: Coordinator, transactional_id: str, producer_id: int, epoch: int, partitions: list[Any]
) -> dict[Any, ErrorCode]:
    return dict.fromkeys(partitions, OK)


MUTATIONS = {
    "four batches are kept": (producer_state, "KEPT_BATCHES", 4),
    "six batches are kept": (producer_state, "KEPT_BATCHES", 6),
    "duplicates are not known": mutated(ProducerStates, "duplicate_of", always(None)),
    "one batch is kept": mutated(ProducerStates, "duplicate_of", knows_only_the_last),
    "sequences do not go round": (producer_state, "SEQUENCES", 1 << 40),
    "no sequence is checked": mutated(ProducerStates, "_judge_sequence", always(OK)),
    "a new epoch begins anywhere": mutated(ProducerStates, "_judge_sequence", any_sequence_for_a_new_epoch),
    "a new id begins with 0": mutated(ProducerStates, "_judge_sequence", zero_for_a_new_id),
    "verifications do not hold sequences": mutated(ProducerStates, "_judge_sequence", without_verifications),
    "the lowest sequence is not kept": mutated(Verification, "saw", always(None)),
    "offsets have sequences": mutated(ProducerStates, "judge", with_options(has_sequence=True)),
    "nothing is judged": mutated(ProducerStates, "judge", always(OK)),
    "a marker clears every verification": mutated(ProducerStates, "append_marker", clears_every_verification),
    "a marker clears no verification": mutated(ProducerStates, "append_marker", keeps_every_verification),
    "partitions are not verified": mutated(Coordinator, "verify", lambda _: everything_is_added),
    "an owner is not asked for": mutated(Coordinator, "init_producer_id", never_by_an_old_owner),
    "an end does not bump": mutated(Coordinator, "_prepare", without_bump),
    "version 2 ends as version 1": mutated(Coordinator, "_end_v2", ends_as_version_1),
    "codes of coordinators reach producers": mutated(
        produce, "said_to_producer", lambda _: lambda error, _: error
    ),
    "old versions know PRODUCER_FENCED": mutated(
        transaction_apis, "_spoken", lambda _: lambda error, _: error
    ),
    "leaders are not asked for acks": mutated(Partition, "refusal", always(ErrorCode.not_enough_replicas)),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_rule_is_noticed(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = right()
    monkeypatch.setattr(*MUTATIONS[mutation])
    assert any(found != wanted for found, wanted in zip(outcomes(), expected, strict=True))
