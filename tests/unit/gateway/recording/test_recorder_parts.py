"""What the recorder is made of: counting per id, storms, the cluster's shape."""

from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from pidgate.events.definitions import ConnectionEvent, InitProducerIdEvent
from pidgate.gateway.cluster.seen_answers import hash_of
from pidgate.gateway.recording import sampling, topology, usage
from pidgate.gateway.recording.sampling import (
    PER_SECOND,
    EventSampler,
    RefusedIds,
)
from pidgate.gateway.recording.topology import BETWEEN_CHANGES_MS, Topology
from pidgate.gateway.recording.usage import IdUsage, UsageTable
from pidgate.protocol.work import at_once
from tests.support.frames import entity_class, response_frame


class Caller:
    def __init__(self, connection_id: int) -> None:
        self.connection_id = connection_id
        self.usages: dict[int, IdUsage] = {}

    def about(self) -> dict[str, Any]:
        return {}

    def end_slice(self) -> None:
        self.usages.clear()


def used(
    table: UsageTable, caller: Caller, producer_id: int, partition: int = 0, records: int = 1
) -> IdUsage:
    found = caller.usages.get(producer_id) or table.begin(caller, "alice", producer_id, 5)
    assert found is not None
    found.requests += 1
    found.count((producer_id, 3, 0, b"orders", partition), records)
    return found


def test_connections_of_one_id_share_its_record_and_it_leaves_with_the_last_of_them() -> None:
    table, first, second = UsageTable(), Caller(1), Caller(2)
    used(table, first, 7, 0, 10)
    counted = used(table, second, 7, 1, 20)
    used(table, first, 8)
    assert (counted.requests, counted.batches, counted.records) == (2, 2, 30)
    assert (counted.partitions, counted.connections, counted.epoch) == (2, 2, 3)
    table.connection_closed(first)
    assert [one.producer_id for one in table.leaving] == [8]
    table.connection_closed(second)
    assert [one.producer_id for one in table.leaving] == [8, 7]
    assert (first.usages, second.usages) == ({}, {})


def test_a_slice_ends_for_all_and_the_next_one_begins_anew() -> None:
    table, caller = UsageTable(), Caller(1)
    before = used(table, caller, 7)
    table.end_slice()
    caller.usages.clear()
    after = used(table, caller, 7)
    assert after is not before
    assert list(table.leaving) == [before]
    assert (before.requests, after.requests) == (1, 1)


Written = list[tuple[bytes, int]]
WRITTEN = st.lists(
    st.tuples(st.sampled_from((b"orders", b"clicks", b"\0id")), st.integers(0, 4)), min_size=1, max_size=5
)


@given(st.lists(WRITTEN, min_size=1, max_size=6), st.booleans())
def test_partitions_are_counted_exactly(requests: list[Written], one_by_one: bool) -> None:
    """Whether batches come alone or several in a request, as ConnectionRecorder counts them."""
    table, caller = UsageTable(), Caller(1)
    found = table.begin(caller, "alice", 7, 0)
    assert found is not None
    for request in requests:
        batches = [(7, 0, 0, topic, partition) for topic, partition in request]
        if one_by_one or not found.count_all(batches, [2] * len(batches)):
            for batch in batches:
                found.count(batch, 2)
    everything = [where for request in requests for where in request]
    assert found.partitions == len(set(everything))
    assert (found.batches, found.records) == (len(everything), 2 * len(everything))


def test_beyond_its_bounds_the_number_of_partitions_is_a_lower_bound() -> None:
    table, caller = UsageTable(), Caller(1)
    for topic in range(usage.MOST_TOPICS + 5):
        used(table, caller, 7).count((7, 0, 0, b"t%d" % topic, 3), 1)
    for partition in (-1, usage.MOST_PARTITIONS, 2**31 - 1):
        found = used(table, caller, 7, partition)
        assert not found.count_all([(7, 0, 0, b"orders", partition)] * 2, [1, 1])
    assert found.partitions == usage.MOST_TOPICS


def test_a_count_of_records_that_is_a_lie_is_not_added() -> None:
    assert used(UsageTable(), Caller(1), 7, records=-(2**31)).records == 0


def test_ids_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_IDS", 3)
    table, caller = UsageTable(), Caller(1)
    for producer_id in range(3):
        used(table, caller, producer_id)
    assert table.begin(caller, "alice", 4, 0) is None
    assert table.uncounted_requests == 1
    table.end_slice()
    assert table.begin(caller, "alice", 4, 0) is None  # what has not been told yet takes room, too
    table.leaving.clear()
    assert table.begin(caller, "alice", 4, 0) is not None


# EventSampler

ENVELOPE: dict[str, Any] = {
    "cluster": "c", "gateway_id": "g", "incarnation": "i", "seq": 0, "wall_time_ms": 0, "decision_time_ms": 0
}  # fmt: skip


def connection(client_id: str = "etl", phase: Any = "close", connection_id: int = 1) -> ConnectionEvent:
    return ConnectionEvent(
        **ENVELOPE, connection_id=connection_id, user="alice", client_id=client_id, address="10.0.0.1",
        phase=phase, node_id=1, seconds=0.5, bytes_in=10, bytes_out=20, requests=3,
    )  # fmt: skip


def init(error: int = 0) -> InitProducerIdEvent:
    return InitProducerIdEvent(
        **ENVELOPE, user="alice", client_id="etl", address="10.0.0.1", asked_producer_id=-1, asked_epoch=-1,
        answered_producer_id=4, answered_epoch=0, error=error, node_id=1, transactional=False,
    )  # fmt: skip


def test_what_is_beyond_ten_in_a_second_becomes_one_sum() -> None:
    known = EventSampler()
    told = [known.may_publish(connection(connection_id=number), 1_000 + number) for number in range(1, 31)]
    assert told == [True] * PER_SECOND + [False] * 20
    assert known.may_publish(connection(phase="open"), 1_050)
    assert known.may_publish(connection("other"), 1_050)
    assert known.may_publish(init(), 1_050)
    assert known.sums(1_999) == []
    (total,) = known.sums(2_000)
    assert isinstance(total, ConnectionEvent)
    assert (total.count, total.seconds, total.bytes_in, total.bytes_out, total.requests) == (
        20,
        10.0,
        200,
        400,
        60,
    )
    assert (total.connection_id, total.user, total.client_id) == (None, "alice", "etl")
    assert known.sums(3_000) == []


def test_a_new_client_id_each_time_is_a_storm_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_CLIENTS", 3)
    known = EventSampler()
    told = [known.may_publish(connection(f"etl-{number}"), 0) for number in range(1_000)]
    assert sum(told) == 3 + PER_SECOND
    (total,) = known.sums(1_000)
    assert (total.count, total.client_id, total.user) == (1_000 - 3 - PER_SECOND, "", "alice")


# Refusals


def test_refused_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_REFUSED_IDS", 2)
    ids = RefusedIds()
    for producer_id in (1, 2, 1, 3):
        ids.refused("alice", producer_id, "etl", "10.0.0.1")
    assert ids.ended("alice", 2) is None
    found = ids.ended("alice", 1)
    assert found is not None
    assert found == (2, "etl", "10.0.0.1")
    assert ids.ended("alice", 1) is None


# Topology


def metadata(
    version: int, leaders: dict[str, list[int]], nodes: tuple[int, ...] = (1, 2), error: int = 0
) -> bytes:
    cls = entity_class(3, version)
    module: Any = import_module(cls.__module__)
    topics = []
    for name, of in leaders.items():
        partitions = []
        for index, leader in enumerate(of):
            more: dict[str, Any] = {"leader_epoch": 4} if version >= 7 else {}
            more |= {"offline_replicas": ()} if version >= 5 else {}
            partitions.append(
                module.MetadataResponsePartition(
                    error_code=ErrorCode(0), partition_index=index, leader_id=leader,
                    replica_nodes=tuple(nodes), isr_nodes=(leader,), **more,
                )
            )  # fmt: skip
        more = {"is_internal": False} if version >= 1 else {}
        if version >= 10:
            more["topic_id"] = UUID(int=hash(name) & 0xFFFF | 1)
        topics.append(
            module.MetadataResponseTopic(
                error_code=ErrorCode(error), name=name, partitions=tuple(partitions), **more
            )
        )
    brokers = []
    for node in nodes:
        rack: dict[str, Any] = {"rack": f"rack-{node}"} if version >= 1 else {}
        brokers.append(module.MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092, **rack))
    fields: dict[str, Any] = {"brokers": tuple(brokers), "topics": tuple(topics)}
    if version >= 1:
        fields["controller_id"] = 1
    if version >= 2:
        fields["cluster_id"] = "the-cluster"
    if version >= 3:
        fields["throttle_time"] = timedelta(0)
    if version >= 13:
        fields["error_code"] = ErrorCode(0)
    return response_frame(cls(**fields))


def offer(shape: Topology, answer: bytes, version: int) -> None:
    shape.offer(answer, version, at_once(hash_of(answer)))


@pytest.mark.parametrize("version", range(14))
def test_brokers_leaders_and_replicas_are_read(version: int) -> None:
    shape = Topology()
    offer(shape, metadata(version, {"orders": [1, 2, 1], "clicks": [2]}), version)
    assert shape.change(0) is None
    shape.read()
    change = shape.change(0)
    assert change is not None
    brokers, topics = change
    assert [(one.node_id, one.host, one.port, one.rack) for one in brokers] == [
        (node, f"broker-{node}", 9092, f"rack-{node}" if version >= 1 else "") for node in (1, 2)
    ]
    assert [(one.topic, one.leaders, one.replicas) for one in topics] == [
        ("orders", [1, 2, 1], [[1, 2]] * 3),
        ("clicks", [2], [[1, 2]]),
    ]
    assert shape.cluster_id == ("the-cluster" if version >= 2 else "")


def test_only_what_changed_is_told_and_at_most_every_ten_seconds() -> None:
    shape = Topology()
    for leaders in ({"orders": [1], "clicks": [2]}, {"orders": [1]}, {"orders": [2], "clicks": [2]}):
        offer(shape, metadata(12, leaders), 12)
    shape.read()
    assert shape.change(1_000) is not None
    offer(shape, metadata(12, {"orders": [1], "clicks": [2]}), 12)  # the very first one once more
    shape.read()
    assert shape.change(99_000) is None
    offer(shape, metadata(12, {"orders": [1, 1], "clicks": [2]}), 12)
    shape.read()
    assert shape.change(1_000 + BETWEEN_CHANGES_MS - 1) is None
    offer(shape, metadata(12, {"orders": [1, 1], "clicks": [3]}), 12)
    shape.read()
    at_the_end = shape.change(1_000 + BETWEEN_CHANGES_MS - 1, ends=True)
    assert at_the_end is not None
    assert {one.topic for one in at_the_end[1]} == {"orders", "clicks"}
    offer(shape, metadata(12, {"orders": [1, 2], "clicks": [3]}), 12)
    shape.read()
    change = shape.change(1_000 + 2 * BETWEEN_CHANGES_MS)
    assert change is not None
    assert [one.topic for one in change[1]] == ["orders"]


def test_a_broker_that_left_is_no_longer_told() -> None:
    shape = Topology()
    shape.broker_learnt(9, "elsewhere", 1)
    offer(shape, metadata(12, {}), 12)
    shape.read()
    change = shape.change(0)
    assert change is not None
    assert [one.node_id for one in change[0]] == [1, 2]


def test_topics_in_error_and_damaged_answers_are_left_out() -> None:
    shape = Topology()
    whole = metadata(12, {"orders": [1]}, error=5)
    for answer in (whole, whole[:-20], whole[:5]):
        offer(shape, answer, 12)
    shape.read()
    change = shape.change(0)
    assert change is not None
    assert change[1] == []


def test_a_large_cluster_is_read_and_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "PARTITIONS_PER_READ", 10)
    monkeypatch.setattr(topology, "PARTITIONS_PER_EVENT", 12)
    shape, names = Topology(), [f"t{number}" for number in range(20)]
    offer(shape, metadata(12, {name: [1, 2, 1] for name in names}), 12)
    told: list[str] = []
    for second in range(12):
        shape.read()
        change = shape.change(second * BETWEEN_CHANGES_MS)
        told += [one.topic for one in change[1]] if change else []
    assert told == names


def test_topics_and_waiting_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "MOST_TOPICS", 4)
    answer = metadata(12, {f"t{number}": [1] for number in range(9)})
    monkeypatch.setattr(topology, "MOST_WAITING_BYTES", len(answer) + 10)
    shape = Topology()
    offer(shape, answer, 12)
    offer(shape, metadata(12, {"late": [1]}), 12)
    shape.read()
    change = shape.change(0)
    assert change is not None
    assert [one.topic for one in change[1]] == ["t0", "t1", "t2", "t3"]
