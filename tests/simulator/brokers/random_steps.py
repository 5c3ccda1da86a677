"""What to send next: mostly what a client would, often what one would after a mistake. See same_steps.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from tests.simulator.brokers.same_steps import (
    MOST_SEQUENCE,
    NOBODY,
    PARTITIONS,
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    EndTxn,
    InitProducerId,
    Outcome,
    Produce,
    Step,
)

_V1_PRODUCE: Final[tuple[int, ...]] = (3, 5, 7, 8, 9, 10, 11)
_V2_PRODUCE: Final[tuple[int, ...]] = (12, 13)


@dataclass
class Known:
    """A producer as its client knows it."""

    number: int
    epoch: int
    transactional_id: str | None = None
    is_v2: bool = False
    next_sequences: dict[int, int] = field(default_factory=dict)
    sent: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Partition, epoch, base sequence, records."""


class RandomSteps:
    """A stream of steps, led by what came of those before."""

    def __init__(self, chooser: Random, name: str) -> None:
        self._chooser = chooser
        self._name = name
        self._known: list[Known] = []
        self._planned: list[Callable[[], Step]] = []

    def next(self) -> Step:
        """Return a step that may or may not be right."""
        chooser = self._chooser
        if self._planned:
            return self._planned.pop(0)()
        if not self._known or chooser.random() < 0.06:
            return self._begin()
        known = chooser.choice(self._known[-4:])
        if known.transactional_id is None:
            if chooser.random() < 0.05:
                self._plan_pipeline(known)
            return self._produce(known) if chooser.random() < 0.95 else self._renew(known)
        if chooser.random() < 0.06:
            self._plan_transactions(known)
        kinds = (self._produce, self._add, self._end, self._other, self._renew)
        return chooser.choices(kinds, (8, 3 if not known.is_v2 else 1, 3, 2, 1))[0](known)

    def _plan_transactions(self, known: Known) -> None:
        """Transactions as a client makes them, some batches wrong: what a broken one leaves to the next."""
        name = known.transactional_id
        assert name is not None
        if known.is_v2 and self._chooser.random() < 0.3:
            self._planned = [
                lambda: Produce(12, ((0, known.number, known.epoch, -1, 1, True),), name),
                lambda: EndTxn(3, name, known.number, known.epoch, False),
                lambda: self._produce(known, True, 0),
            ]
            return
        for _ in range(3):
            if not known.is_v2:
                self._planned.append(partial(self._add, known, is_right=True))
            self._planned.append(partial(self._produce, known, self._chooser.random() < 0.6))
            self._planned.append(partial(self._end, known, is_right=True))

    def _plan_pipeline(self, known: Known) -> None:
        """More batches than a partition keeps, and the oldest ones again; some go over the largest sequence."""
        if not known.sent and self._chooser.random() < 0.5:
            known.next_sequences[0] = MOST_SEQUENCE - 2
        for n in range(7):
            self._planned.append(partial(self._produce, known, True, 0))
            if n > 4:
                self._planned += [partial(self._again, known, back) for back in (4, 5)]

    def _again(self, known: Known, back: int) -> Produce:
        sent = known.sent[-1 - back :] or [(0, known.epoch, 0, 1)]
        partition, epoch, base_sequence, records = sent[0]
        return Produce(9, ((partition, known.number, epoch, base_sequence, records, False),))

    def _renew(self, known: Known) -> InitProducerId:
        """A client that asks for another epoch of the id it has."""
        chooser = self._chooser
        epoch = max(0, known.epoch + chooser.choice((0, 0, 0, -1, 1)))
        return InitProducerId(chooser.choice((3, 4, 5)), known.transactional_id, known.number, epoch)

    def came(self, step: Step, outcome: Outcome) -> None:
        """Learn what the answer was."""
        if isinstance(step, InitProducerId):
            if outcome[0] == 0:
                self._known.append(
                    Known(outcome[1], outcome[2], step.transactional_id, self._chooser.random() < 0.5)
                )
        elif isinstance(step, EndTxn):
            if outcome[0] == 0 and step.version >= 5:
                for known in self._known:
                    if known.transactional_id == step.transactional_id and known.epoch == step.epoch:
                        known.number, known.epoch, known.next_sequences = outcome[1], outcome[2], {}
        elif isinstance(step, Produce):
            answered = {index: error for index, error, _ in outcome}
            for partition, number, epoch, base_sequence, records, _ in step.batches:
                for known in self._known:
                    if (known.number, known.epoch) == (number, epoch) and answered.get(partition) == 0:
                        known.next_sequences[partition] = (base_sequence + records) & MOST_SEQUENCE
                        known.sent.append((partition, epoch, base_sequence, records))

    def _begin(self) -> InitProducerId:
        chooser = self._chooser
        version = chooser.choice((0, 1, 2, 3, 4, 5))
        if chooser.random() < 0.4:
            return InitProducerId(version)
        transactional_id = f"{self._name}-{chooser.choice('ab')}"
        timeout_ms = chooser.choice((60_000,) * 9 + (0,))
        return InitProducerId(version, transactional_id, timeout_ms=timeout_ms)

    def _epoch(self, known: Known) -> int:
        return max(0, known.epoch + self._chooser.choices((0, -1, 1), (12, 1, 1))[0])

    def _produce(self, known: Known, is_right: bool = False, partition: int | None = None) -> Produce:
        chooser = self._chooser
        if is_right:
            place = chooser.randrange(PARTITIONS) if partition is None else partition
            batch = place, known.number, known.epoch, known.next_sequences.get(place, 0), 1
            version = chooser.choice(_V2_PRODUCE if known.is_v2 else _V1_PRODUCE)
            return Produce(version, ((*batch, known.transactional_id is not None),), known.transactional_id)
        transactional = known.transactional_id is not None
        versions = (*_V1_PRODUCE, *_V2_PRODUCE)
        if transactional:
            versions = _V2_PRODUCE if known.is_v2 else _V1_PRODUCE
        transactional_id = known.transactional_id
        if chooser.random() < 0.04:
            transactional = not transactional
        if chooser.random() < 0.03:
            transactional_id = None
        partitions = chooser.sample(range(PARTITIONS), chooser.choice((1, 1, 1, 2)))
        if chooser.random() < 0.02:
            partitions.append(PARTITIONS)  # there is none
        return Produce(
            chooser.choice(versions),
            tuple((*self._batch(known, partition), transactional) for partition in partitions),
            transactional_id,
            acks=chooser.choice((-1, -1, -1, 1, 1, 5) if chooser.random() < 0.1 else (-1, 1)),
            is_broken=chooser.random() < 0.02,
        )

    def _batch(self, known: Known, partition: int) -> tuple[int, int, int, int, int]:
        chooser = self._chooser
        expected = known.next_sequences.get(partition, 0)
        draw = chooser.random()
        records = chooser.choice((1, 1, 2, 3))
        epoch = self._epoch(known)
        earlier = [sent for sent in known.sent if sent[0] == partition]
        if draw < 0.7:
            base_sequence = expected if epoch == known.epoch else chooser.choice((0, expected))
        elif draw < 0.85 and earlier:
            _, epoch, base_sequence, records = chooser.choice(earlier[-7:])
        elif draw < 0.93:
            base_sequence = expected + chooser.choice((1, 2, 5)) & MOST_SEQUENCE
        elif draw < 0.97:
            base_sequence = chooser.choice((0, max(expected - 1, 0), MOST_SEQUENCE - 1, MOST_SEQUENCE))
        else:
            base_sequence = -1 if chooser.random() < 0.5 else 0
        number = known.number if chooser.random() > 0.01 else NOBODY
        return partition, number, epoch, base_sequence, records

    def _add(self, known: Known, *, is_right: bool = False) -> Step:
        chooser = self._chooser
        assert known.transactional_id is not None
        version = chooser.choice((0, 1, 2, 3))
        if is_right:
            return AddPartitions(version, known.transactional_id, known.number, known.epoch, (0, 1))
        if chooser.random() < 0.2:
            return AddOffsets(version, known.transactional_id, known.number, self._epoch(known))
        partitions = chooser.choice(((0,), (1,), (0, 1), (0, 1), (0, 1, 2)))
        return AddPartitions(version, known.transactional_id, known.number, self._epoch(known), partitions)

    def _end(self, known: Known, *, is_right: bool = False) -> EndTxn:
        chooser = self._chooser
        assert known.transactional_id is not None
        if is_right:
            version = chooser.choice((5, 5, 5, 3)) if known.is_v2 else 3
            return EndTxn(version, known.transactional_id, known.number, known.epoch, chooser.random() < 0.6)
        is_v2 = known.is_v2 if chooser.random() < 0.95 else not known.is_v2
        version = 5 if is_v2 else chooser.choice((0, 1, 2, 3, 4))
        commit = chooser.random() < 0.6
        return EndTxn(version, known.transactional_id, known.number, self._epoch(known), commit)

    def _other(self, known: Known) -> Step:
        chooser = self._chooser
        assert known.transactional_id is not None
        if chooser.random() < 0.6:
            version = chooser.choice((5,) if known.is_v2 else (0, 1, 2, 3, 4))
            return CommitOffsets(
                version, known.transactional_id, known.number, self._epoch(known), chooser.randint(1, 999)
            )
        unknown = f"{self._name}-nobody"
        return EndTxn(chooser.choice((1, 3, 5)), unknown, known.number, known.epoch, True)
