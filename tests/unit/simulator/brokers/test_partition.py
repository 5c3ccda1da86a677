"""Replication, leaders that move, and what a read_committed consumer sees."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.simulator.brokers.partition import Partition
from tests.unit.simulator.brokers.test_producer_state import ID, TRANSACTIONAL, appended, verified


def three() -> Partition:
    return Partition("orders", 0, [1, 2, 3], min_in_sync=2)


def replicate(partition: Partition, *nodes: int) -> None:
    for node in nodes:
        partition.replicate(node, partition.end_offset, partition.leader_epoch)


def test_an_append_is_replicated_when_every_in_sync_replica_has_it() -> None:
    partition, told = three(), list[ErrorCode]()
    result = appended(partition, 0)
    partition.wait(result.next_offset, told.append)
    replicate(partition, 2)
    assert not told
    replicate(partition, 3)
    assert told == [0]
    assert partition.high_watermark == 1


def test_a_new_leader_has_the_state_that_replication_made_it() -> None:
    partition = three()
    appended(partition, 0)
    replicate(partition, 2, 3)
    partition.move_leader(2)
    assert (partition.leader, partition.leader_epoch) == (2, 1)
    assert appended(partition, 0).base_offset == 0
    assert appended(partition, 2).error_code is ErrorCode.out_of_order_sequence_number
    assert appended(partition, 1).base_offset == 1


def test_what_was_not_replicated_is_lost_with_its_leader_and_its_state() -> None:
    partition, told = three(), list[ErrorCode]()
    appended(partition, 0)
    replicate(partition, 2, 3)
    result = appended(partition, 1)
    partition.wait(result.next_offset, told.append)
    replicate(partition, 3)
    partition.move_leader(2)
    assert told == [ErrorCode.not_leader_or_follower]
    assert [entry.base_sequence for entry in partition.lost] == [1]
    assert appended(partition, 2).error_code is ErrorCode.out_of_order_sequence_number
    assert appended(partition, 1).base_offset == 1


def test_a_first_batch_that_was_lost_leaves_no_state_so_a_later_one_is_taken() -> None:
    partition = three()
    appended(partition, 0)
    partition.move_leader(2)
    assert appended(partition, 1).error_code == 0  # KAFKA-15591, until Kafka 4.5


def test_a_fetch_from_the_old_leader_counts_no_more() -> None:
    partition = three()
    appended(partition, 0)
    old = partition.end_offset, partition.leader_epoch
    partition.move_leader(2)
    appended(partition, 0)
    partition.replicate(3, *old)
    assert partition.high_watermark == 0


def test_only_an_in_sync_replica_leads() -> None:
    partition = three()
    partition.node_lost(3)
    with pytest.raises(ValueError, match="not in sync"):
        partition.move_leader(3)


def test_too_few_in_sync_replicas_refuse_acks_all_and_only_that() -> None:
    partition, told = three(), list[ErrorCode]()
    result = appended(partition, 0)
    partition.wait(result.next_offset, told.append)
    partition.node_lost(2)
    partition.node_lost(3)
    assert told == [ErrorCode.not_enough_replicas_after_append]
    assert partition.refusal(1, -1) is ErrorCode.not_enough_replicas
    assert partition.refusal(1, 1) == 0
    assert partition.refusal(2, 1) is ErrorCode.not_leader_or_follower


def test_without_its_last_in_sync_replica_a_partition_has_no_leader() -> None:
    partition = Partition("orders", 0, [1])
    appended(partition, 0)
    partition.node_lost(1)
    assert partition.refusal(1, 1) is ErrorCode.not_leader_or_follower
    partition.node_back(1)
    assert partition.refusal(1, -1) == 0
    assert len(partition.log) == 1


def test_a_node_that_is_back_is_in_sync_and_may_lead() -> None:
    partition = three()
    partition.node_lost(1)
    assert partition.leader == 2
    appended(partition, 0)
    partition.node_back(1)
    replicate(partition, 3)
    partition.move_leader(1)
    assert len(partition.log) == 1


def test_read_committed_ends_before_the_first_open_transaction_and_leaves_out_aborted_ones() -> None:
    partition = Partition("orders", 0, [1])
    appended(partition, 0, attributes=TRANSACTIONAL, guard=verified(partition, 0))
    assert partition.last_stable_offset == 0
    partition.append_marker(ID, 1, 0, 0, commit=False, transactions_v2=True)
    guard = verified(partition, 0, 1)
    appended(partition, 0, epoch=1, attributes=TRANSACTIONAL, guard=guard)
    assert partition.last_stable_offset == 2
    partition.append_marker(ID, 2, 0, 0, commit=True, transactions_v2=True)
    assert partition.last_stable_offset == 4
    assert [entry.base_offset for entry in partition.committed()] == [2]
    assert partition.aborted_in(0, 4) == [(ID, 0)]
    assert partition.aborted_in(2, 4) == []


def test_a_transaction_is_open_until_its_marker_is_replicated() -> None:
    partition = three()
    appended(partition, 0, attributes=TRANSACTIONAL, guard=verified(partition, 0))
    replicate(partition, 2, 3)
    partition.append_marker(ID, 1, 0, 0, commit=True, transactions_v2=True)
    assert partition.last_stable_offset == 0
    replicate(partition, 2, 3)
    assert partition.last_stable_offset == 2
