"""Visitors and batches, as the gateway hands them over."""

from __future__ import annotations

from pidgate.quota.decisions import MOST_CACHED_IDS, Session, lowest_of_each_partition
from tests.unit.quota.world import batch


def test_a_new_identity_empties_the_connections_cache() -> None:
    session = Session("alice", "app", "10.0.0.1", 1)
    session.remember(4711, 3)
    session.identify("alice")
    assert session.admitted == {4711: 3}
    session.identify("mallory")
    assert (session.user, session.admitted) == ("mallory", {})


def test_a_connections_cache_is_bounded() -> None:
    session = Session("alice", "app", "10.0.0.1", 1)
    for number in range(3 * MOST_CACHED_IDS):
        session.remember(number, 0)
        assert len(session.admitted) <= MOST_CACHED_IDS
    assert session.admitted[3 * MOST_CACHED_IDS - 1] == 0


def test_of_several_batches_of_a_partition_the_first_counts() -> None:
    batches = [batch(1, 3), batch(1, 9), batch(1, 4, partition=1), batch(2, 9), batch(1, 0, epoch=1)]
    assert lowest_of_each_partition(batches) == [batches[0], *batches[2:4]]
