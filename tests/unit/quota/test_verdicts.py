"""Visitors and batches, as the gateway hands them over."""

from __future__ import annotations

from pidgate.quota.decisions import MOST_CACHED_IDS, Client, lowest_of_each_partition
from tests.unit.quota.world import batch


def test_a_new_identity_empties_the_connections_cache() -> None:
    client = Client("alice", "app", "10.0.0.1", 1)
    client.remember(4711, 3)
    client.identify("alice")
    assert client.admitted == {4711: 3}
    client.identify("mallory")
    assert (client.user, client.admitted) == ("mallory", {})


def test_a_connections_cache_is_bounded() -> None:
    client = Client("alice", "app", "10.0.0.1", 1)
    for number in range(3 * MOST_CACHED_IDS):
        client.remember(number, 0)
        assert len(client.admitted) <= MOST_CACHED_IDS
    assert client.admitted[3 * MOST_CACHED_IDS - 1] == 0


def test_of_several_batches_of_a_partition_the_first_counts() -> None:
    batches = [batch(1, 3), batch(1, 9), batch(1, 4, partition=1), batch(2, 9), batch(1, 0, epoch=1)]
    assert lowest_of_each_partition(batches) == [batches[0], *batches[2:4]]
