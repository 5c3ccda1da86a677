"""What is made of a request is bounded by its size, whatever stands in it: see protocol/work.py.

For each decoder that builds objects out of what a client sends, the frames that make the most of the fewest bytes.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.protocol import codec, work
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support import raw
from tests.support.frames import framed, old_message, produce_request, record_batch
from tests.support.rules import rule
from tests.support.talk import Talk

OWN = "__pidgate_events"
METADATA, INIT_PRODUCER_ID, ADD_PARTITIONS = 3, 22, 24
ADD_OFFSETS, TXN_OFFSET_COMMIT, DESCRIBE_CONFIGS, SASL_AUTHENTICATE = 25, 28, 32, 36
DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_TOPICS = 48, 49, 75
MANY = work.MOST_PARTITIONS - 1
LONG = "n" * 30_000


def bound(frame: bytes) -> int:
    return work.MEMORY_FACTOR * len(frame) + work.MEMORY_SLACK_BYTES


def highest(call: Callable[[], object]) -> int:
    """Bytes that were held at once while it ran, beyond those from before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def highest_of_request(frame: bytes, handshake: str | None = None) -> int:
    ids = ProducerIdSettings(transactional=Mode.ENFORCE)
    quotas = Quotas(Mode.ENFORCE, ids, default=UserQuota.per_window(0))
    client = Client("alice", "", "10.0.0.1", 1)
    talk = Talk(Admission(quotas, lambda: 1, 0), client, gateway_topics=GatewayTopics([OWN]))
    if handshake is not None:
        talk.context.login.sasl.begin_exchange(handshake)

    def call() -> None:
        try:
            talk.request(frame, 4, len(frame), 1_000)
        except KafkaProtocolError:
            return

    return highest(call)


def alteration(entries: int) -> bytes:
    operation = {"key": "producer_ids_rate", "value": 5.0, "remove": False}
    changes = [
        {"entity": [{"entity_type": "user", "entity_name": f"{n}"}], "ops": [operation]}
        for n in range(entries)
    ]
    return raw.request(ALTER_QUOTAS, 1, {"entries": changes, "validate_only": False})


def partitions_added(count: int, topics: int = 1) -> bytes:
    listed = [{"name": f"{n}", "partitions": list(range(count))} for n in range(topics)]
    of = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 0, "topics": listed}
    body = {f"v3_and_below_{key}": value for key, value in of.items()}
    return raw.request(ADD_PARTITIONS, 3, body)


def offsets_committed(count: int) -> bytes:
    partition = {
        **{"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 1},
        "committed_metadata": None,
    }
    body = {
        **{"transactional_id": "t", "group_id": "g", "producer_id": 7, "producer_epoch": 0},
        **{"generation_id": 1, "member_id": "", "group_instance_id": None},
        "topics": [{"name": "t", "partitions": [partition] * count}],
    }
    return raw.request(TXN_OFFSET_COMMIT, 3, body)


EACH: list[tuple[int, bytes | None]] = [(n, record_batch(7)) for n in range(MANY)]
REQUESTS: dict[str, Callable[[], bytes]] = {
    "Produce": lambda: framed(produce_request(12, [("t", EACH)])),
    "Produce, a topic for each": lambda: framed(
        produce_request(12, [(f"{n}", [(0, record_batch(7))]) for n in range(MANY // 2)])
    ),
    "Produce, all batches in one partition": lambda: framed(
        produce_request(2, [("t", [(0, record_batch(7) * MANY)])])
    ),
    "Produce, old messages": lambda: framed(
        produce_request(2, [("t", [(0, old_message(0, b"") * work.MOST_OLD_MESSAGES)])])
    ),
    "Produce, nothing in it": lambda: framed(produce_request(12, [("t", [(n, None) for n in range(MANY)])])),
    "InitProducerId": lambda: raw.request(
        INIT_PRODUCER_ID, 4, {"transactional_id": LONG, "producer_id": -1, "producer_epoch": -1}
    ),
    "AlterClientQuotas": lambda: alteration(work.MOST_ELEMENTS // 3),
    "AlterClientQuotas, too many": lambda: alteration(2 * work.MOST_ELEMENTS),
    "DescribeClientQuotas": lambda: raw.request(
        DESCRIBE_QUOTAS,
        1,
        {
            "components": [{"entity_type": "", "match_type": 0, "match": ""}] * work.MOST_ELEMENTS,
            "strict": False,
        },
    ),
    "Metadata": lambda: raw.request(
        METADATA, 9, {"topics": [{"name": OWN if n % 2 else "t"} for n in range(700)]}
    ),
    "Metadata, long": lambda: raw.request(METADATA, 9, {"topics": [{"name": OWN}] * 5_000}),
    "DescribeConfigs": lambda: raw.request(
        DESCRIBE_CONFIGS,
        4,
        {
            "resources": [{"resource_type": 2, "resource_name": OWN, "configuration_keys": []}]
            + [{"resource_type": 2, "resource_name": "", "configuration_keys": []}] * (work.MOST_DECODED - 1)
        },
    ),
    "DescribeTopicPartitions": lambda: raw.request(
        DESCRIBE_TOPICS,
        0,
        {"topics": [{"name": OWN}] + [{"name": ""}] * (work.MOST_DECODED - 1), "cursor": None},
    ),
    "AddPartitionsToTxn": lambda: partitions_added(MANY),
    "AddPartitionsToTxn, a topic for each": lambda: partitions_added(1, MANY // 2),
    "AddOffsetsToTxn": lambda: raw.request(
        ADD_OFFSETS, 3, {"transactional_id": LONG, "producer_id": 7, "producer_epoch": 0, "group_id": LONG}
    ),
    "TxnOffsetCommit": lambda: offsets_committed(MANY),
}


codec.message_class(DESCRIBE_CONFIGS, "response")  # loads all schemas


@rule("Objects built from a request take at most six times its size and 1 MiB.", "memory")
@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request(kind: str) -> None:
    frame = REQUESTS[kind]()
    highest_of_request(frame)  # what is loaded once belongs to nobody
    assert highest_of_request(frame) <= bound(frame)


TOKENS: dict[str, tuple[str, bytes]] = {
    "PLAIN": ("PLAIN", b"\0" + b"u" * 8_000 + b"\0" + b"p" * 8_000),
    "PLAIN, of NULs": ("PLAIN", bytes(16_000)),
    "PLAIN, not UTF-8": ("PLAIN", b"\0" + b"\xff" * 16_000 + b"\0p"),
    "SCRAM": ("SCRAM-SHA-256", b"n,,n=" + b"=2C" * 5_000 + b",r=x"),
    "SCRAM, extensions": ("SCRAM-SHA-512", b"n,,n=u,r=x" + b",a=b" * 3_900),
    "OAUTHBEARER": ("OAUTHBEARER", b"n,,\x01auth=Bearer " + b"x" * 200_000 + b"\x01\x01"),
    "GSSAPI": ("GSSAPI", bytes(200_000)),
    "PLAIN, too long": ("PLAIN", bytes(500_000)),
}


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token(kind: str) -> None:
    mechanism, token = TOKENS[kind]
    frame = raw.request(SASL_AUTHENTICATE, 2, {"auth_bytes": token})
    assert highest_of_request(frame, mechanism) <= bound(frame)
