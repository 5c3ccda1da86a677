"""The producer's requests as the walk, the hand-written readers and kafka.protocol read them."""

from pidgate.protocol import codec, messages, producer_requests
from pidgate.protocol.headers import peek_request
from pidgate.protocol.produce import walk
from pidgate.protocol.record_batch import RecordBatch
from pidgate.protocol.transaction_parts import ADD_PARTITIONS_TO_TXN
from tests.support import raw

BATCH = RecordBatch([b"value"])
LONG = RecordBatch([b"v" * 5_000])


def body(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def read(frame: bytes) -> dict[str, object]:
    request = body(frame)
    fields: dict[str, object] = codec.decode_request(
        request, peek_request(request, 0, len(request))
    ).to_dict()
    return fields


def test_produce() -> None:
    batches = [(3, BATCH.stamped(41, 2, 7, 0)), (200, LONG.stamped(42, 0, 9, 0))]
    request = body(producer_requests.produce_request(5, "client", "orders", batches, acks=-1))
    head = peek_request(request, 0, len(request))
    assert (head.api_key, head.api_version, head.correlation_id, head.client_id) == (0, 11, 5, "client")
    assert walk(request, peek_request(request, 0, len(request))) == (
        -1,
        False,
        [(41, 2, 7, b"orders", 3), (42, 0, 9, b"orders", 200)],
    )


def test_produce_in_a_transaction() -> None:
    batch = BATCH.stamped(41, 2, 0, 0, is_transactional=True)
    frame = producer_requests.produce_request(5, "c", "orders", [(0, batch)], transactional_id="txn")
    request = body(frame)
    assert walk(request, peek_request(request, 0, len(request))) == (-1, True, [(41, 2, 0, b"orders", 0)])
    fields = read(frame)
    assert (fields["transactional_id"], fields["acks"], fields["timeout_ms"]) == ("txn", -1, 30_000)


def test_init_producer_id() -> None:
    for transactional_id in (None, "txn"):
        request = body(producer_requests.init_producer_id_request(1, "c", transactional_id))
        assert messages.init_producer_id_request(request, peek_request(request, 0, len(request))) == (
            transactional_id,
            -1,
            -1,
        )


def test_find_coordinator_and_its_answer() -> None:
    fields = read(producer_requests.find_coordinator_request(1, "c", "txn"))
    assert fields == {"key": "txn", "key_type": 1}
    for error_code in (0, 15):
        told = {
            "throttle_time_ms": 9,
            "error_code": error_code,
            "error_message": "no" if error_code else None,
            "node_id": 4,
            "host": "broker-4",
            "port": 9092,
        }
        answer = body(raw.response(producer_requests.FIND_COORDINATOR, 2, told))
        assert producer_requests.find_coordinator_answer(answer) == (error_code, "broker-4", 9092)
        assert producer_requests.throttle_time_ms(answer) == 9


def test_add_partition_to_txn_and_its_answer() -> None:
    frame = producer_requests.add_partition_to_txn_request(1, "c", "txn", (41, 2), "orders", 6)
    fields = read(frame)
    assert fields["v3_and_below_transactional_id"] == "txn"
    assert (fields["v3_and_below_producer_id"], fields["v3_and_below_producer_epoch"]) == (41, 2)
    assert fields["v3_and_below_topics"] == [{"name": "orders", "partitions": [6]}]
    told = {
        "throttle_time_ms": 0,
        "results_by_topic_v3_and_below": [
            {
                "name": "orders",
                "results_by_partition": [{"partition_index": 6, "partition_error_code": 51}],
            }
        ],
    }
    answer = body(raw.response(ADD_PARTITIONS_TO_TXN, 2, told))
    assert producer_requests.add_partition_to_txn_answer(answer) == 51


def test_end_txn() -> None:
    for commit in (True, False):
        request = body(producer_requests.end_txn_request(1, "c", "txn", (41, 2), commit=commit))
        assert messages.end_txn_request(request, peek_request(request, 0, len(request))) == (
            "txn",
            41,
            2,
            commit,
        )


def test_sasl() -> None:
    request = body(producer_requests.sasl_handshake_request(1, "c", "PLAIN"))
    assert messages.sasl_mechanism(request, peek_request(request, 0, len(request))) == "PLAIN"
    request = body(producer_requests.sasl_authenticate_request(1, "c", b"\0alice\0secret"))
    assert messages.sasl_token(request, peek_request(request, 0, len(request))) == b"\0alice\0secret"
