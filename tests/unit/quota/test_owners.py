"""Who was given which id, and what was never used."""

from __future__ import annotations

import pytest

from pidgate.quota import counters
from pidgate.quota.counters import Owner, ProducerIdOwners


def test_ids_not_produced_with_are_counted_when_their_connection_closes() -> None:
    owners = ProducerIdOwners()
    for producer_id in (1, 2, 3):
        owners.learnt("alice", producer_id, 0, connection_id=7)
    owners.learnt("bob", 4, 0, connection_id=8)
    owners.note_produced(2)
    owners.note_produced(99)
    assert owners.connection_closed(7) == {"alice": 2}
    assert owners.connection_closed(7) == {}
    assert owners.connection_closed(8) == {"bob": 1}


def test_an_epoch_bump_is_no_second_id() -> None:
    owners = ProducerIdOwners()
    owners.learnt("alice", 1, 0, connection_id=7)
    owners.note_produced(1)
    owners.learnt("alice", 1, 1, connection_id=8)
    assert owners.owner(1) == Owner("alice", 1, True)
    assert owners.connection_closed(8) == {}


def test_the_latest_ids_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_OWNED_IDS", 2)
    owners = ProducerIdOwners()
    for producer_id in (1, 2, 3):
        owners.learnt("alice", producer_id, 0, connection_id=7)
    assert owners.owner(1) is None
    assert owners.owner(3) == Owner("alice", 0, False)
    assert owners.connection_closed(7) == {"alice": 2}


def test_millions_of_ids_on_one_connection_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_OWNED_IDS", 10)
    owners = ProducerIdOwners()
    for producer_id in range(1_000):
        owners.learnt("alice", producer_id, 0, connection_id=7)
    assert sum(owners.owner(producer_id) is not None for producer_id in range(1_000)) <= 10
    assert all(owners.owner(producer_id) is not None for producer_id in range(995, 1_000))
    assert owners.connection_closed(7)["alice"] <= 10


def test_an_id_in_use_is_kept_by_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_OWNED_IDS", 10)
    owners = ProducerIdOwners()
    owners.learnt("alice", 1, 0, connection_id=7)
    for producer_id in range(2, 100):
        owners.learnt("bob", producer_id, 0, connection_id=8)
        owners.learnt("alice", 1, producer_id, connection_id=7)
    assert owners.owner(1) == Owner("alice", 99, False)
    assert owners.connection_closed(7) == {"alice": 1}


def test_a_connection_whose_ids_are_all_forgotten_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_OWNED_IDS", 4)
    owners = ProducerIdOwners()
    owners.learnt("alice", 1, 0, connection_id=7)
    for producer_id in range(2, 8):
        owners.learnt("bob", producer_id, 0, connection_id=8)
    assert owners.connection_closed(7) == {}
