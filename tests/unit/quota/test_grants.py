"""Grants: what a lane repeats stays true until a cell of it changes, whatever else happens meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

import pytest

from pidgate.quota import sticky
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.grants import Cell, Grant, PlainCell
from pidgate.quota.sticky import WATCH_MS
from tests.support.rules import rule
from tests.unit.quota.world import World, batch, enforcing

TOPICS: Final = (b"a", b"b")
IDS: Final = (1, 2, 3, 4)
PARTITIONS: Final = 3
STORIES: Final = 100
STEPS: Final = 150


@dataclass
class _Lent:
    """A grant in use."""

    client: Client
    epoch: int
    grant: Grant
    numbers: tuple[int, int]


def _number(cell: Cell) -> int:
    assert isinstance(cell, PlainCell)
    return cell.number


class _Story:
    """Two connections of one user and one of another, and all that changes what is known of their ids."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = World(enforcing(random.choice([1, 3, 20])))
        self.admission: Admission = self.world.admission
        self.clients = [self.world.connect("alice"), self.world.connect("alice"), self.world.connect("bob")]
        self.epochs = dict.fromkeys(IDS, 0)
        self.sequences: dict[tuple[int, bytes, int], int] = {}
        self.lent: list[_Lent] = []
        self.checked = 0

    def step(self) -> None:
        random, now_ms = self.random, self.world.now_ms
        admission, client = self.admission, random.choice(self.clients)
        producer_id = random.choice(IDS)
        match random.randrange(24):
            case 0:
                admission.sticky.watch_refused_elsewhere(client.user, producer_id, now_ms)
            case 1 | 20 | 21:
                key = random.choice(TOPICS), random.randrange(PARTITIONS)
                admission.sticky.forget_failed_batches(client.user, producer_id, [key])
            case 2:
                self._reconnect(random.randrange(len(self.clients)))
            case 3:
                held = [
                    batch(producer_id, 0, topic=random.choice(TOPICS), partition=random.randrange(PARTITIONS))
                ]
                admission.held_beginnings.note(client.user, held, now_ms)
            case 4:
                admission.set_quotas(enforcing(random.choice([1, 3, 20])), now_ms)
            case 5:
                self.world.now_ms += random.choice([10, 5_000, WATCH_MS // 2, WATCH_MS + 1])
                admission.sweep(self.world.now_ms)
            case 6:
                self.epochs[producer_id] += 1
            case 7 | 8 | 9 | 10 | 22 | 23:
                self._lend(client, producer_id)
            case _:
                self._write(client, producer_id)

    def _reconnect(self, at: int) -> None:
        old = self.clients[at]
        for lent in [one for one in self.lent if one.client is old]:
            self.admission.grants.give_back(lent.grant)
        self.lent = [one for one in self.lent if one.client is not old]
        self.world.close(old)
        self.clients[at] = self.world.connect(old.user)

    def _write(self, client: Client, producer_id: int) -> None:
        topic, partition = self.random.choice(TOPICS), self.random.randrange(PARTITIONS)
        key = producer_id, topic, partition
        sequence = self.sequences.get(key, 0) + self.random.choice([0, 0, 1])
        self.sequences[key] = sequence
        epoch = self.epochs[producer_id]
        self.world.judge(client, batch(producer_id, sequence, epoch=epoch, topic=topic, partition=partition))

    def _lend(self, client: Client, producer_id: int) -> None:
        epoch, grants = self.epochs[producer_id], self.admission.grants
        grant = self.admission.grant(client, producer_id, epoch, TOPICS, False, self.world.now_ms)
        if grant is not None:
            numbers = _number(grants.everything), _number(grant.cell)
            self.lent.append(_Lent(client, epoch, grant, numbers))

    def check(self) -> None:
        grants, now_ms = self.admission.grants, self.world.now_ms
        for lent in list(self.lent):
            grant = lent.grant
            if lent.numbers != (_number(grants.everything), _number(grant.cell)) or now_ms >= grant.until_ms:
                grants.give_back(grant)
                self.lent.remove(lent)
                continue
            for topic, allowed in grant.partitions.items():
                for partition in range(PARTITIONS):
                    if allowed is None or allowed >> partition & 1:
                        self.checked += 1
                        assert self.admission.knows(
                            lent.client, grant.producer_id, lent.epoch, [topic], [[partition]], False, now_ms
                        ), (grant, topic, partition)


@rule("A grant ends before what it says stops being true.", "order")
def test_what_is_granted_is_known_until_a_cell_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky, "MOST_HELD_OF_USER", 4)
    checked = 0
    for seed in range(STORIES):
        story = _Story(Random(seed))
        for _ in range(STEPS):
            story.step()
            story.check()
        checked += story.checked
    assert checked > 10 * STORIES, "nothing was lent"


@pytest.mark.parametrize("seed", range(5))
def test_cells_are_forgotten_with_their_last_grant(seed: int) -> None:
    story = _Story(Random(seed))
    for _ in range(STEPS):
        story.step()
    for lent in story.lent:
        story.admission.grants.give_back(lent.grant)
    assert len(story.admission.grants) == 0
