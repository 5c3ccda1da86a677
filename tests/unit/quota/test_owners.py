"""Who was given which id, and what was never used."""

from __future__ import annotations

import pytest

from quota import owners as owners_module
from quota.owners import Owner, ProducerIdOwners


def test_ids_not_produced_with_are_counted_when_their_connection_closes() -> None:
    owners = ProducerIdOwners()
    for producer_id in (1, 2, 3):
        owners.learnt("alice", producer_id, 0, connection_id=7)
    owners.learnt("bob", 4, 0, connection_id=8)
    owners.produced(2)
    owners.produced(99)
    assert owners.connection_closed(7) == {"alice": 2}
    assert owners.connection_closed(7) == {}
    assert owners.connection_closed(8) == {"bob": 1}


def test_an_epoch_bump_is_no_second_id() -> None:
    owners = ProducerIdOwners()
    owners.learnt("alice", 1, 0, connection_id=7)
    owners.produced(1)
    owners.learnt("alice", 1, 1, connection_id=8)
    assert owners.owner(1) == Owner("alice", 1, True)
    assert owners.connection_closed(8) == {}


def test_the_latest_ids_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners_module, "MOST_OWNED_IDS", 2)
    owners = ProducerIdOwners()
    for producer_id in (1, 2, 3):
        owners.learnt("alice", producer_id, 0, connection_id=7)
    assert owners.owner(1) is None
    assert owners.owner(3) == Owner("alice", 0, False)
    assert owners.connection_closed(7) == {"alice": 2}
