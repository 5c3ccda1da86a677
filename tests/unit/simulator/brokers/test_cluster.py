"""The model cluster by its bytes: what each request is answered, and when."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from pidgate.protocol import codec
from pidgate.protocol.record_batch import RecordBatch, record_batch
from tests.simulator.brokers.batches import values
from tests.simulator.brokers.caller import Caller
from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.produce import Fault
from tests.simulator.brokers.replies import Later
from tests.simulator.brokers.same_steps import fetch_session_outcomes
from tests.simulator.brokers.sessions import Listener
from tests.simulator.brokers.timers import Delays
from tests.support import raw

PRODUCE, METADATA, FIND_COORDINATOR, INIT, END_TXN = 0, 3, 10, 22, 26
NOT_LEADER, TIMED_OUT, LOADING, NOT_COORDINATOR = 6, 7, 14, 16
VERSIONS = range(3, 14)


def batch(sequence: int = 0, *, producer_id: int = 7, epoch: int = 0, value: bytes = b"v") -> bytes:
    return record_batch([value], producer_id, epoch, sequence, 0)


def body(
    cluster: ModelCluster, *batches: tuple[int, bytes], acks: int = -1, topic: str = "orders"
) -> raw.Body:
    topic_id = UUID(bytes=cluster.topics.by_name[topic].topic_id)
    data = [{"index": index, "records": records} for index, records in batches]
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": data}],
    }


def outcomes(answer: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [
        (partition["index"], partition["error_code"], partition["base_offset"])
        for topic in answer["responses"]
        for partition in topic["partition_responses"]
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_is_appended_and_answered_in_every_version(version: int) -> None:
    cluster = ModelCluster(1, {"orders": 2})
    caller = Caller(cluster)
    asked = body(cluster, (0, batch()), (1, batch()), (2, batch()))
    assert outcomes(caller.call(PRODUCE, version, asked)) == [(0, 0, 0), (1, 0, 0), (2, 3, -1)]
    assert [values(entry.raw) for entry in cluster.partition("orders", 0).committed()] == [[b"v"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_another_node_is_not_the_leader_and_names_it_from_version_10_on(version: int) -> None:
    cluster = ModelCluster(3, {"orders": 3})
    answer = Caller(cluster, 2).call(PRODUCE, version, body(cluster, (0, batch()), (1, batch())))
    assert outcomes(answer) == [(0, NOT_LEADER, -1), (1, 0, 0)]
    if version >= 10:
        leader = answer["responses"][0]["partition_responses"][0]["current_leader"]
        assert leader == {"leader_id": 1, "leader_epoch": 0}
        named = [(node["node_id"], node["host"], node["port"]) for node in answer["node_endpoints"]]
        assert named == [(1, "broker-1", 9092)]


def test_a_topic_id_that_nobody_has_is_unknown() -> None:
    cluster = ModelCluster(1, {"orders": 1})
    asked = body(cluster, (0, batch()))
    cluster.topics.delete("orders")
    caller = Caller(cluster)
    assert outcomes(caller.call(PRODUCE, 13, asked)) == [(0, 100, -1)]
    assert outcomes(caller.call(PRODUCE, 9, asked)) == [(0, 3, -1)]
    found = caller.call(METADATA, 12, {"topics": [{"name": "orders", "topic_id": UUID(int=0)}]})
    assert found["topics"][0]["error_code"] == 3
    cluster.topics.create("orders", 1)
    assert outcomes(caller.call(PRODUCE, 13, asked)) == [(0, 100, -1)]


def slow_cluster(**delays: int) -> ModelCluster:
    made = {name: (lambda delay=delay: delay) for name, delay in delays.items()}
    return ModelCluster(3, {"orders": 3}, delays=Delays(**made))


def test_acks_all_is_answered_after_replication_and_acks_1_before() -> None:
    cluster = slow_cluster(replication_ms=20)
    caller = Caller(cluster)
    waits = caller.hand_over(raw.request(PRODUCE, 9, body(cluster, (0, batch()))))
    assert isinstance(waits, Later)
    assert isinstance(caller.hand_over(raw.request(PRODUCE, 9, body(cluster, (0, batch(1)), acks=1))), bytes)
    cluster.advance(19)
    assert not waits.is_done
    cluster.advance(20)
    assert waits.value is not None
    assert outcomes(raw.decoded(PRODUCE, 9, waits.value[4:])) == [(0, 0, 0)]
    cluster.advance(10_000)
    assert cluster.next_due_ms is None


def test_who_waits_is_told_when_the_leader_moves_or_the_time_is_over() -> None:
    for moves, code in ((True, NOT_LEADER), (False, TIMED_OUT)):
        cluster = slow_cluster(replication_ms=5000)
        waits = Caller(cluster).hand_over(raw.request(PRODUCE, 9, body(cluster, (0, batch()))))
        assert isinstance(waits, Later)
        if moves:
            cluster.move_leader("orders", 0, 2)
        cluster.advance(1000)
        assert waits.value is not None
        assert outcomes(raw.decoded(PRODUCE, 9, waits.value[4:]))[0][1] == code


def test_metadata_names_leaders_ids_and_the_addresses_of_the_listener_asked() -> None:
    listeners = (Listener(), Listener("SASL_PLAINTEXT", {"alice": "secret"}))
    cluster = ModelCluster(3, {"orders": 2}, listeners=listeners)
    cluster.move_leader("orders", 1, 3)
    found = Caller(cluster).call(METADATA, 12, {"topics": None})
    assert [node["port"] for node in found["brokers"]] == [9092] * 3
    assert found["controller_id"] == 1
    (topic,) = found["topics"]
    assert UUID(str(topic["topic_id"])).bytes == cluster.topics.by_name["orders"].topic_id
    assert [(p["leader_id"], p["leader_epoch"]) for p in topic["partitions"]] == [(1, 0), (3, 1)]
    cluster.stop(1)
    found = Caller(cluster, 2).call(METADATA, 1, {"topics": None})
    assert [node["node_id"] for node in found["brokers"]] == [2, 3]
    with pytest.raises(ConnectionRefusedError):
        cluster.connect(1)
    assert cluster.address(1, "SASL_PLAINTEXT") == ("broker-1", 9093)


def test_a_transactional_id_belongs_to_one_node() -> None:
    cluster = ModelCluster(3, {"orders": 3})
    ask = {"key": "t", "key_type": 1}
    node_id = Caller(cluster).call(FIND_COORDINATOR, 3, ask)["node_id"]
    wanted = {"transactional_id": "t", "transaction_timeout_ms": 1000}
    codes = [Caller(cluster, node).call(INIT, 4, wanted)["error_code"] for node in (1, 2, 3)]
    assert codes == [LOADING if node == node_id else NOT_COORDINATOR for node in (1, 2, 3)]
    assert Caller(cluster, node_id).call(INIT, 4, wanted)["error_code"] == 0


def transactional(cluster: ModelCluster, identity: dict[str, Any], sequence: int) -> raw.Body:
    place = identity["producer_id"], identity["producer_epoch"], sequence, 0
    records = RecordBatch([b"v"]).stamped(*place, is_transactional=True)
    return {**body(cluster, (0, records)), "transactional_id": "t"}


def begun(cluster: ModelCluster) -> tuple[Caller, dict[str, Any]]:
    caller = Caller(cluster)
    wanted = {"transactional_id": "t", "transaction_timeout_ms": 1000}
    while True:
        identity = caller.call(INIT, 4, wanted)
        if identity["error_code"] == 0:
            return caller, identity


def end_txn(caller: Caller, version: int, identity: dict[str, Any]) -> dict[str, Any]:
    return caller.call(END_TXN, version, {"transactional_id": "t", **identity, "committed": True})


def test_version_2_adds_by_producing_and_waits_a_moment_for_the_markers_before() -> None:
    cluster = ModelCluster(1, {"orders": 1}, delays=Delays(markers_ms=lambda: 50))
    caller, identity = begun(cluster)
    assert outcomes(caller.call(PRODUCE, 12, transactional(cluster, identity, 0))) == [(0, 0, 0)]
    bumped = end_txn(caller, 5, identity)
    assert bumped["producer_epoch"] == 1
    waits = caller.hand_over(raw.request(PRODUCE, 13, transactional(cluster, bumped, 0)))
    assert isinstance(waits, Later)
    assert cluster.partition("orders", 0).last_stable_offset == 0
    cluster.advance(60)
    assert waits.value is not None
    assert outcomes(raw.decoded(PRODUCE, 13, waits.value[4:])) == [(0, 0, 2)]
    assert [entry.commits for entry in cluster.partition("orders", 0).log] == [None, True, None]


def test_a_transaction_is_aborted_when_its_time_is_over() -> None:
    cluster = ModelCluster(1, {"orders": 1})
    caller, identity = begun(cluster)
    caller.call(PRODUCE, 12, transactional(cluster, identity, 0))
    cluster.advance(9_999)
    assert len(cluster.partition("orders", 0).log) == 1
    cluster.advance(10_000)
    assert cluster.partition("orders", 0).log[-1].commits is False
    caller.now_ms = 10_000
    assert outcomes(caller.call(PRODUCE, 12, transactional(cluster, identity, 1)))[0][1] == 47


def test_nodes_learn_of_a_new_leader_one_by_one() -> None:
    delays = iter([0, 50])  # of the two nodes that are not the new leader
    cluster = ModelCluster(3, {"orders": 1}, delays=Delays(metadata_ms=lambda: next(delays, 0)))

    def leaders() -> list[tuple[int, int]]:
        found = [Caller(cluster, node).call(METADATA, 12, {"topics": None}) for node in (1, 2, 3)]
        places = [answer["topics"][0]["partitions"][0] for answer in found]
        return [(place["leader_id"], place["leader_epoch"]) for place in places]

    assert leaders() == [(1, 0)] * 3
    cluster.move_leader("orders", 0, 3)
    assert leaders() == [(3, 1), (1, 0), (3, 1)]
    cluster.advance(50)
    assert leaders() == [(3, 1)] * 3


def test_a_broker_may_fail_before_it_appends_or_after() -> None:
    cluster = ModelCluster(1, {"orders": 1})
    caller = Caller(cluster)
    faults = iter(
        [Fault(ErrorCode.kafka_storage_error), Fault(ErrorCode.request_timed_out, is_appended=True)]
    )
    cluster.fault(lambda session, partition: next(faults, None))
    asked = body(cluster, (0, batch()))
    assert [outcomes(caller.call(PRODUCE, 9, asked))[0][1] for _ in range(3)] == [56, TIMED_OUT, 0]
    assert len(cluster.partition("orders", 0).log) == 1


FETCH, LIST_OFFSETS, OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT = 1, 2, 8, 11, 12
UNKNOWN_MEMBER, UNKNOWN_SESSION, WRONG_EPOCH = 25, 70, 71


def fetch_body(cluster: ModelCluster, offset: int, *, isolation_level: int = 0, wait_ms: int = 0) -> raw.Body:
    asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 100_000}
    topic_id = UUID(bytes=cluster.topics.by_name["orders"].topic_id)
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": 100_000,
        "isolation_level": isolation_level,
        "topics": [{"topic": "orders", "topic_id": topic_id, "partitions": [asked]}],
    }


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
def test_a_consumer_reads_what_is_replicated(version: int) -> None:
    cluster = ModelCluster(1, {"orders": 1})
    caller = Caller(cluster)
    for n in range(3):
        caller.call(PRODUCE, 9, body(cluster, (0, batch(n, value=b"%d" % n))))
    frame = caller.ask(raw.request(FETCH, version, fetch_body(cluster, 1)))
    (found,) = codec.decode_response(FETCH, version, frame, 0, len(frame)).responses[0].partitions
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
    length = len(found.records) // 2
    assert values(found.records[:length]) == [b"1"]
    assert found.records[length : length + 8] == (2).to_bytes(8, "big")


def test_a_consumer_at_the_end_waits_for_what_comes() -> None:
    cluster = ModelCluster(1, {"orders": 1})
    caller = Caller(cluster)
    ask = raw.request(FETCH, 12, fetch_body(cluster, 0, wait_ms=500))
    first, second = caller.hand_over(ask), Caller(cluster).hand_over(ask)
    assert isinstance(first, Later)
    assert isinstance(second, Later)
    cluster.advance(499)
    assert not first.is_done
    caller.now_ms = 499
    caller.call(PRODUCE, 9, body(cluster, (0, batch())))
    assert first.is_done
    cluster.advance(500)
    assert second.is_done


def test_a_fetch_session_answers_what_is_new_and_knows_its_epoch() -> None:
    found = fetch_session_outcomes(Caller(ModelCluster(1, {"orders": 1})), "orders", batch())
    of_session = [(0, True, 1), (0, True, 0), (0, True, 1), (WRONG_EPOCH, False, 0), (0, True, 1)]
    ended = [(0, False, 0), (0, True, 1), (0, False, 1), (UNKNOWN_SESSION, False, 0)]
    assert found == [*of_session, (WRONG_EPOCH, False, 0), (UNKNOWN_SESSION, False, 0), *ended]


def test_a_node_that_stops_has_no_fetch_sessions() -> None:
    cluster = ModelCluster(1, {"orders": 1})
    begun = Caller(cluster).call(FETCH, 12, {**fetch_body(cluster, 0), "session_epoch": 0})
    cluster.stop(1)
    cluster.start(1)
    named = {**fetch_body(cluster, 0), "session_id": begun["session_id"], "session_epoch": 1}
    assert Caller(cluster).call(FETCH, 12, named)["error_code"] == UNKNOWN_SESSION


def test_a_member_is_expelled_when_it_is_not_heard() -> None:
    cluster = ModelCluster(1, {"orders": 1})
    caller = Caller(cluster)
    me = {
        "group_id": "g",
        "session_timeout_ms": 1_000,
        "rebalance_timeout_ms": 1_000,
        "protocol_type": "consumer",
    }
    joined = caller.call(JOIN_GROUP, 3, {**me, "protocols": [{"name": "range", "metadata": b""}]})
    me |= {"member_id": joined["member_id"], "generation_id": 1}
    offsets = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": None}]
    commit = {
        **me,
        "generation_id_or_member_epoch": 1,
        "retention_time_ms": -1,
        "topics": [{"name": "orders", "partitions": offsets}],
    }
    codes = []
    for caller.now_ms in (900, 1_800, 2_900):
        codes.append(caller.call(HEARTBEAT, 3, me)["error_code"])
        answer = caller.call(OFFSET_COMMIT, 3, commit)["topics"][0]["partitions"][0]
        codes.append(answer["error_code"])
    group = cluster.groups.by_name["g"]
    assert codes == [0, 0, 0, 0, UNKNOWN_MEMBER, UNKNOWN_MEMBER]
    assert (group.generation, group.expelled, group.offsets) == (1, 1, {("orders", 0): 7})


def test_a_consumer_of_committed_records_stops_at_an_open_transaction_and_is_told_of_aborted_ones() -> None:
    cluster = ModelCluster(1, {"orders": 1})
    caller, identity = begun(cluster)
    caller.call(PRODUCE, 12, transactional(cluster, identity, 0))
    ask = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    ends = []
    for level in (0, 1):
        answer = caller.call(LIST_OFFSETS, 7, {**ask, "isolation_level": level})
        ends.append(answer["topics"][0]["partitions"][0]["offset"])
    assert ends == [1, 0]
    seen = caller.call(FETCH, 12, fetch_body(cluster, 0, isolation_level=1))["responses"][0]["partitions"][0]
    assert not seen["records"]
    caller.call(END_TXN, 5, {"transactional_id": "t", **identity, "committed": False})
    seen = caller.call(FETCH, 12, fetch_body(cluster, 0, isolation_level=1))["responses"][0]["partitions"][0]
    assert seen["aborted_transactions"] == [{"producer_id": identity["producer_id"], "first_offset": 0}]
