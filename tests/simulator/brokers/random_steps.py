"""What to send next: mostly what a client would, often what one would after a mistake. See same_steps.py."""

from __future__ import annotations

from dataclasses import dataclass, field
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

    def next(self) -> Step:
        """Return a step that may or may not be right."""
        chooser = self._chooser
        if not self._known or chooser.random() < 0.06:
            return self._begin()
        known = chooser.choice(self._known[-4:])
        if known.transactional_id is None:
            return self._produce(known)
        kinds = (self._produce, self._produce, self._add, self._end, self._other)
        return chooser.choices(kinds, (4, 4, 3 if not known.is_v2 else 1, 3, 2))[0](known)

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
        owners = [known for known in self._known if known.transactional_id == transactional_id]
        if version < 3 or not owners or chooser.random() < 0.5:
            timeout_ms = chooser.choice((60_000,) * 9 + (0,))
            return InitProducerId(version, transactional_id, timeout_ms=timeout_ms)
        owner = chooser.choice(owners)
        epoch = owner.epoch + chooser.choice((0, 0, 0, -1, 1))
        return InitProducerId(version, transactional_id, owner.number, max(epoch, 0))

    def _epoch(self, known: Known) -> int:
        return max(0, known.epoch + self._chooser.choices((0, -1, 1), (12, 1, 1))[0])

    def _produce(self, known: Known) -> Produce:
        chooser = self._chooser
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
            base_sequence = expected + chooser.choice((1, 2, 5))
        elif draw < 0.97:
            base_sequence = chooser.choice((0, max(expected - 1, 0), MOST_SEQUENCE - 1, MOST_SEQUENCE))
        else:
            base_sequence = -1 if chooser.random() < 0.5 else 0
        number = known.number if chooser.random() > 0.01 else NOBODY
        return partition, number, epoch, base_sequence, records

    def _add(self, known: Known) -> Step:
        chooser = self._chooser
        assert known.transactional_id is not None
        version = chooser.choice((0, 1, 2, 3))
        if chooser.random() < 0.2:
            return AddOffsets(version, known.transactional_id, known.number, self._epoch(known))
        partitions = chooser.choice(((0,), (1,), (0, 1), (0, 1), (0, 1, 2)))
        return AddPartitions(version, known.transactional_id, known.number, self._epoch(known), partitions)

    def _end(self, known: Known) -> EndTxn:
        chooser = self._chooser
        assert known.transactional_id is not None
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
