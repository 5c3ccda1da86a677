"""No frame that is taken makes a callback of the event loop run for longer than others can wait.

Counted are the lines that run, of the dearest frames that are just not refused.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pidgate.gateway.cluster import seen_answers
from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.proxy import session as session_of
from pidgate.gateway.proxy.apis import api as api_of
from pidgate.gateway.proxy.apis import client_quotas, producer_ids
from pidgate.gateway.proxy.apis import produce as produce_api
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES
from pidgate.gateway.proxy.read_ahead import HELD_LIMIT_BYTES
from pidgate.protocol import codec, fetch, frames, messages, metadata, produce, produce_answers, work
from pidgate.protocol.errors import FrameTooLarge, KafkaProtocolError
from pidgate.protocol.frames import MAX_TAGS, Reader, uvarint
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import MOST_IDS_PER_REQUEST, Client
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.quota.sticky import Position
from tests.support import raw
from tests.support.bounds import THOROUGH
from tests.support.frames import framed, old_message, produce_request, record_batch
from tests.support.raw import CORRELATION_ID
from tests.support.rules import rule
from tests.support.scene import Pair, Scene
from tests.support.steps import MOST_STEPS, steps_of
from tests.support.talk import Talk
from tests.unit.gateway.proxy.test_not_taken import Script as NotTaken

OWN = "__pidgate_events"
PRODUCE, FETCH, METADATA, FIND_COORDINATOR, ADD_OFFSETS, DESCRIBE_CONFIGS = 0, 1, 3, 10, 25, 32
LIST_OFFSETS, DELETE_TOPICS = 2, 20
INIT_PRODUCER_ID = 22
DESCRIBE_QUORUM = 55
DESCRIBE_QUOTAS, ALTER_QUOTAS, SHARE_FETCH, SHARE_ACKNOWLEDGE = 48, 49, 78, 79
TOPIC_ID = "00000000-0000-0000-0000-000000000001"
NODE = {"node_id": 1, "host": "broker-1", "port": 9092, "rack": None}
LEADER = {"leader_id": 1, "leader_epoch": 1}
MANY = work.MOST_PARTITIONS - 1


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene(rate=10)
    yield made
    made.loop.close()


def conversation(rate: int | None) -> Talk:
    quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(rate))
    session = Client("alice", "", "10.0.0.1", 1)
    return Talk(
        Admission(quotas, lambda: 1, 0), session, gateway_topics=GatewayTopics([OWN, "__pidgate_quotas"])
    )


def produces(partitions: int) -> dict[str, bytes]:
    each: list[tuple[int, bytes | None]] = [(n, record_batch(7)) for n in range(partitions)]
    return {
        "a batch in each partition": produce_request(12, [("t", each)]),
        "old version": produce_request(8, [("t", each)]),
        "no records": produce_request(12, [("t", [(n, None) for n in range(partitions)])]),
        "all batches in one partition": produce_request(2, [("t", [(0, record_batch(7) * partitions)])]),
        "a topic for each": produce_request(
            12, [(f"t{n}", [(0, record_batch(7))]) for n in range(partitions // 2)]
        ),
        "old messages": produce_request(2, [("t", [(0, old_message(0, b"") * work.MOST_OLD_MESSAGES)])]),
    }


def alteration(users: int) -> bytes:
    operation = {"key": "producer_ids_rate", "value": 5.0, "remove": False}
    entries = [
        {"entity": [{"entity_type": "user", "entity_name": f"u{n}"}], "ops": [operation]}
        for n in range(users)
    ]
    return raw.request(ALTER_QUOTAS, 1, {"entries": entries, "validate_only": False})[4:]


def fetch_with(topics: int) -> bytes:
    asked = [{"topic": OWN if n == topics - 1 else "t", "partitions": []} for n in range(topics)]
    return raw.request(FETCH, 12, {"topics": asked, "forgotten_topics_data": []})[4:]


def steps_of_request(frame: bytes, rate: int | None = 1000) -> int:
    talk, whole = conversation(rate), framed(frame)

    def call() -> None:
        try:
            talk.request(whole, 4, len(whole), 1_000)
        except KafkaProtocolError:
            return

    return steps_of(call)


@rule("The gateway compares every count with a bound before building objects.", "memory")
@pytest.mark.parametrize("kind", produces(3))
@pytest.mark.parametrize("rate", [0, 1000, None], ids=["refused", "admitted", "without limit"])
def test_a_produce(kind: str, rate: int | None) -> None:
    assert 0 < steps_of_request(produces(MANY)[kind], rate) < MOST_STEPS


def test_requests_that_are_read_field_by_field() -> None:
    assert steps_of_request(alteration(work.MOST_ELEMENTS // 3)) < MOST_STEPS
    # A topic name of one byte and no partitions: nothing has more elements in so few bytes.
    codec.message_class(FETCH, "request")
    assert steps_of_request(fetch_with(work.MOST_DECODED)) < MOST_STEPS


MANY_TAGS = bytes((MAX_TAGS,)) + b"".join(bytes((tag, 0)) for tag in range(MAX_TAGS))


def tagged_produce(partitions: int, topic: bytes = b"t") -> bytes:
    """A Produce v9 in which each partition has as many tagged fields as a struct may."""
    head = struct.pack(">hhihb", PRODUCE, 9, 1, -1, 0) + b"\0" + struct.pack(">hi", 1, 1_000) + b"\2"
    each = b"".join(n.to_bytes(4, "big") + b"\0" + MANY_TAGS for n in range(partitions))
    return head + uvarint(len(topic) + 1) + topic + uvarint(partitions + 1) + each + b"\0\0"


def tagged_filters(count: int) -> bytes:
    head = struct.pack(">hhihb", DESCRIBE_QUOTAS, 1, 1, -1, 0)
    return head + uvarint(count + 1) + (bytes(3) + MANY_TAGS) * count + b"\0\0"


@pytest.mark.parametrize(
    "frame",
    [
        tagged_produce(180),
        tagged_produce(MANY - 1),
        tagged_produce(170, OWN.encode()),
        tagged_produce(MANY - 1, OWN.encode()),
        tagged_filters(80),
        tagged_filters(work.MOST_ELEMENTS - 1),
    ],
)
def test_tagged_fields_count_as_well(frame: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < steps_of_request(frame) < MOST_STEPS
    for module in (frames, produce, produce_answers):
        monkeypatch.setattr(module, "TAGS_BYTES_FOR_ONE", 1_000_000)
    assert steps_of_request(frame) > MOST_STEPS or len(frame) < 20_000


def test_a_produce_to_a_gateway_topic_has_no_more_partitions_than_another() -> None:
    large = produce_request(12, [(OWN, [(n, None) for n in range(20 * MANY)])])
    assert steps_of_request(large) < MOST_STEPS


# ---- answers ---------------------------------------------------------------------------------------------


def coordinators(count: int) -> bytes:
    one = {
        "key": "group",
        "node_id": 1,
        "host": "broker-1",
        "port": 9092,
        "error_code": 0,
        "error_message": None,
    }
    return raw.response(FIND_COORDINATOR, 4, {"coordinators": [one] * count})


def settings(count: int) -> bytes:
    synonym = {"name": "x.y", "value": "1", "source": 5}
    setting = {
        **{"name": "a.b", "value": "1", "read_only": False, "config_source": 5, "is_sensitive": False},
        **{"synonyms": [synonym] * 2, "config_type": 1, "documentation": None},
    }
    topic = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "t"}
    return raw.response(DESCRIBE_CONFIGS, 4, {"results": [{**topic, "configs": [setting] * 33}] * count})


def empty_partitions(count: int) -> bytes:
    partition = {
        **{"partition_index": 0, "error_code": 0, "high_watermark": 1, "last_stable_offset": 1},
        **{"log_start_offset": 0, "aborted_transactions": [], "preferred_read_replica": -1, "records": b""},
    }
    topic = {"topic_id": TOPIC_ID, "partitions": [partition] * count}
    return raw.response(FETCH, 16, {"responses": [topic]})


def unlike_partitions(count: int) -> bytes:
    """None of them can be skipped with the one before."""
    partition = {
        **{"partition_index": 0, "error_code": 0, "high_watermark": 1, "last_stable_offset": 1},
        **{"log_start_offset": 0, "preferred_read_replica": -1, "records": b""},
        "aborted_transactions": [{"producer_id": 1, "first_offset": 1}],
    }
    topic = {"topic_id": TOPIC_ID, "partitions": [partition] * count}
    return raw.response(FETCH, 16, {"responses": [topic]})


def shared_partitions(count: int) -> bytes:
    partition = {
        **{"partition_index": 0, "error_code": 0, "error_message": "x", "acknowledge_error_code": 0},
        **{"acknowledge_error_message": "x", "current_leader": LEADER, "records": b""},
        "acquired_records": [{"first_offset": 1, "last_offset": 1, "delivery_count": 1}],
    }
    topic = {"topic_id": TOPIC_ID, "partitions": [partition] * count}
    head = {"error_code": 0, "error_message": None, "acquisition_lock_timeout_ms": 1}
    return raw.response(SHARE_FETCH, 1, {**head, "responses": [topic], "node_endpoints": [NODE]})


def acknowledged(count: int) -> bytes:
    partition = {"partition_index": 0, "error_code": 0, "error_message": None, "current_leader": LEADER}
    topic = {"topic_id": TOPIC_ID, "partitions": [partition] * count}
    body = {"error_code": 0, "error_message": None, "responses": [topic], "node_endpoints": [NODE] * count}
    return raw.response(SHARE_ACKNOWLEDGE, 1, body)


def acknowledged_topics(count: int) -> bytes:
    """Of a ShareAcknowledge v2: topics without a partition, as in `quorum_of`. By hand: the codec takes long."""
    topics_of = uvarint(count + 1) + (bytes(16) + b"\1\0") * count
    return framed(struct.pack(">i", CORRELATION_ID) + bytes(7) + b"\0" + bytes(4) + topics_of + b"\1\0")


def quorum_of(count: int) -> bytes:
    topics_of = uvarint(count + 1) + b"\2t\1\0" * count
    return framed(struct.pack(">i", CORRELATION_ID) + bytes(3) + b"\0" + topics_of + b"\1\0")


def brokers_of(count: int) -> bytes:
    """A Metadata v12 answer without topics."""
    broker = struct.pack(">i", 1) + b"\x09broker-1" + struct.pack(">i", 9092) + b"\0\0"
    head = struct.pack(">i", CORRELATION_ID) + bytes(5) + uvarint(count + 1) + broker * count
    return framed(head + b"\2c" + bytes(4) + b"\1\0")


def quotas_of_users(count: int) -> bytes:
    entry = {
        "entity": [{"entity_type": "user", "entity_name": "u"}],
        "values": [{"key": "k", "value": 1.0}] * 3,
    }
    return raw.response(
        DESCRIBE_QUOTAS, 1, {"error_code": 0, "error_message": None, "entries": [entry] * count}
    )


def record_errors(version: int, count: int) -> bytes:
    """The answer to a batch of which no record has a key, for a topic that is compacted."""
    partition = {
        **{"index": 0, "error_code": 87, "base_offset": -1, "log_append_time_ms": -1, "log_start_offset": 0},
        "record_errors": [{"batch_index": 1, "batch_index_error_message": None}] * count,
        "error_message": "one or more records have been rejected",
    }
    topic = {"name": "t", "topic_id": TOPIC_ID, "partition_responses": [partition]}
    body = {"responses": [topic], "throttle_time_ms": 0, "node_endpoints": [NODE]}
    return raw.response(PRODUCE, version, body)


def cluster(topics: int, partitions: int = 100) -> bytes:
    """A Metadata v12 answer. By hand: the codec would take seconds."""
    partition = struct.pack(">hiii", 0, 1, 1, 1) + (b"\4" + struct.pack(">iii", 1, 2, 3)) * 2 + b"\1\0"
    listed = uvarint(partitions + 1) + partition * partitions + bytes(5)
    broker = struct.pack(">i", 1) + b"\x09broker-1" + struct.pack(">i", 9092) + b"\0\0"
    head = struct.pack(">i", CORRELATION_ID) + bytes(5) + uvarint(101) + broker * 100 + b"\2c" + bytes(4)
    entries = (b"\0\0\x07t%05d" % n + struct.pack(">QQ", 1, n + 1) + b"\0" + listed for n in range(topics))
    return framed(b"".join((head, uvarint(topics + 1), *entries, b"\0")))


PRODUCED: dict[str, Any] = {"transactional_id": None, "acks": 1, "timeout_ms": 1, "topic_data": []}
SHARING = {"group_id": "g", "member_id": TOPIC_ID, "topics": [], "forgotten_topics_data": []}

ANSWERS: dict[str, tuple[int, int, dict[str, Any], Callable[[int], bytes], int]] = {
    "FindCoordinator": (FIND_COORDINATOR, 4, {"coordinator_keys": ["x"]}, coordinators, 20_000),
    "DescribeConfigs": (DESCRIBE_CONFIGS, 4, {"resources": []}, settings, 300),
    "Fetch": (FETCH, 16, {"topics": [], "forgotten_topics_data": []}, empty_partitions, 20_000),
    "Fetch, unlike": (FETCH, 16, {"topics": [], "forgotten_topics_data": []}, unlike_partitions, 10_000),
    "ShareFetch": (SHARE_FETCH, 1, SHARING, shared_partitions, 10_000),
    "ShareAcknowledge": (SHARE_ACKNOWLEDGE, 1, SHARING, acknowledged, 10_000),
    "DescribeClientQuotas": (
        DESCRIBE_QUOTAS,
        1,
        {"components": [], "strict": False},
        quotas_of_users,
        10_000,
    ),
    "Produce v8": (PRODUCE, 8, PRODUCED, partial(record_errors, 8), 20_000),
    "Produce v9": (PRODUCE, 9, PRODUCED, partial(record_errors, 9), 20_000),
    "Produce v13": (PRODUCE, 13, PRODUCED, partial(record_errors, 13), 20_000),
    "Metadata": (METADATA, 12, {"topics": None}, cluster, 2_000),
    "Metadata, brokers": (METADATA, 12, {"topics": None}, brokers_of, work.MOST_BROKERS),
    "ShareAcknowledge, topics": (SHARE_ACKNOWLEDGE, 2, SHARING, acknowledged_topics, 50_000),
    "DescribeQuorum, topics": (DESCRIBE_QUORUM, 2, {"topics": []}, quorum_of, 50_000),
}


def dearest_turn(scene: Scene, pair: Pair, answer: bytes) -> int:
    """Steps of the longest callback while the answer arrives in reads of 256 KB."""
    longest = at = 0

    def read() -> None:
        nonlocal at
        at += pair.broker.receive(answer[at : at + 256_000])

    for _ in range(10_000):
        if pair.broker.is_reading():
            if at == len(answer):
                return longest
            longest = max(longest, steps_of(read))
        else:
            longest = max(longest, steps_of(scene.turns))
    raise AssertionError("the answer does not end")


@rule("Long responses are parsed in turns of at most 10 ms.", "memory")
@pytest.mark.parametrize("api", ANSWERS)
def test_an_answer_however_long(scene: Scene, api: str) -> None:
    api_key, version, body, made, count = ANSWERS[api]
    pair = scene.connect()
    pair.client.receive(raw.request(api_key, version, body))
    small = raw.request(12, 0, {"group_id": "g", "member_id": "m"}, correlation_id=78)
    pair.client.receive(small)
    behind = raw.response(12, 0, {"error_code": 0}, correlation_id=78)
    # By day shorter, though still of several turns: each step is counted, which takes long.
    answer = made(count if THOROUGH else count // 3)
    assert dearest_turn(scene, pair, answer + behind) < MOST_STEPS
    sent = pair.client.sent()
    assert sent.endswith(behind)
    assert len(sent) >= len(answer) + len(behind)
    assert pair.channel.connection.session.is_quiet


def api_ranges(count: int) -> bytes:
    ranges = b"".join(struct.pack(">hhh", n % 92, 0, 9) for n in range(count))
    return struct.pack(">ihi", CORRELATION_ID, 0, count) + ranges


def endpoints(count: int) -> bytes:
    endpoint = struct.pack(">i", 1) + b"\2h" + struct.pack(">i", 9092) + b"\0\0"
    array = uvarint(count + 1) + endpoint * count
    return b"\1\0" + uvarint(len(array)) + array


def read_at_once(kind: str, count: int) -> None:
    if kind == "ApiVersions":
        ranges = api_ranges(count)
        messages.cap_api_versions(ranges, 0, len(ranges), 0)
    elif kind == "endpoints":
        fetch.rewrite_tail(endpoints(count), lambda *_: ("gw.example.com", 9092), tagged=True)
    else:
        answer = brokers_of(count)[4:]
        metadata.to_topics(Reader(answer, 0, len(answer)), 12)


READ_AT_ONCE: dict[str, tuple[Any, str]] = {
    "ApiVersions": (messages, "MOST_API_RANGES"),
    "endpoints": (fetch, "MOST_ENDPOINTS"),
    "brokers": (metadata, "MOST_BROKERS"),
}


@pytest.mark.parametrize("kind", READ_AT_ONCE)
def test_what_is_read_at_once_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, limit = READ_AT_ONCE[kind]
    most = getattr(work, limit)
    assert steps_of(lambda: read_at_once(kind, most)) < MOST_STEPS
    with pytest.raises(FrameTooLarge, match=f"{most + 1} .*the limit is {most}"):
        read_at_once(kind, most + 1)
    monkeypatch.setattr(module, limit, 1_000_000)
    assert steps_of(lambda: read_at_once(kind, 30_000)) > MOST_STEPS


def turns_for(scene: Scene, answer: bytes) -> int:
    """Turns of the event loop between the last byte of a Metadata answer and its first at the client."""
    pair = scene.connect()
    pair.client.receive(raw.request(METADATA, 12, {"topics": None}))
    at = 0
    while at < len(answer):
        at += pair.broker.receive(answer[at : at + 256_000])
    for turns in range(1_000):
        if pair.client.written:
            return turns
        scene.turns()
    raise AssertionError("the answer does not end")


def test_bytes_are_work_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashed once, and searched for each of two names: one line of Python, however many they are."""
    answer = cluster(2_000)
    handled = 3 * len(answer) // (work.STEPS_PER_TURN * work.BYTES_PER_STEP)
    monkeypatch.setattr(
        scene.context.surroundings, "gateway_topics", GatewayTopics([OWN, "__pidgate_quotas"])
    )
    assert turns_for(scene, answer) >= handled > 5
    monkeypatch.setattr(seen_answers, "BYTES_PER_STEP", 1 << 30)
    assert turns_for(scene, answer) < handled


@rule(
    "In one turn of the event loop each account has 10 ms of work, and one waiting account is served.",
    "memory",
)
def test_many_small_frames_in_one_read(scene: Scene) -> None:
    pair = scene.connect()
    flood = b"".join(
        raw.request(17, 0, {"mechanism": ""}, correlation_id=n, client_id=None) for n in range(9_000)
    )
    assert steps_of(lambda: pair.client.receive(flood)) < MOST_STEPS
    for _ in range(9_000 * work.READ_FOR // work.JUDGED_PER_TURN + 1):
        assert steps_of(scene.turns) < MOST_STEPS
    assert len(pair.client.sent()) >= 9_000 * 12


def produced() -> bytes:
    """Return as many Produce requests with eight new ids each as one read takes."""
    ids = iter(range(1_000, 100_000))
    frames = []
    for _ in range(300):
        batches: list[tuple[int, bytes | None]] = [(n, record_batch(next(ids))) for n in range(8)]
        frames.append(framed(produce_request(9, [("orders", batches)])))
    return b"".join(frames)


def added() -> bytes:
    """Return beginnings of a transaction, each of a new id: more than a turn takes."""
    part = {"transactional_id": "t", "producer_epoch": 0, "group_id": "g"}
    return b"".join(
        raw.request(ADD_OFFSETS, 3, {**part, "producer_id": 1_000 + n}, correlation_id=n) for n in range(500)
    )


NEW_IDS = pytest.mark.parametrize("new_ids", [produced, added])


def steps_of_new_ids(rate: int, frames: bytes) -> int:
    scene = Scene(rate=rate)
    try:
        pair = scene.connect()
        return steps_of(lambda: pair.client.receive(frames))
    finally:
        scene.loop.close()


@rule(
    "In one turn of the event loop each account has 10 ms of work, and one waiting account is served.",
    "memory",
)
@NEW_IDS
@pytest.mark.parametrize("rate", [1_000_000, 0], ids=["admitted", "refused"])
def test_new_ids_of_one_read_are_decided_about_in_turns(rate: int, new_ids: Callable[[], bytes]) -> None:
    assert steps_of_new_ids(rate, new_ids()) < MOST_STEPS


def asked_for_in_one_read() -> int:
    """Return how many of 400 InitProducerId of one read its turn hands on: the others wait for the next."""
    scene = Scene(rate=1_000_000)
    admission = scene.shared.admission
    admission.set_quotas(replace(admission.quotas, producer_ids=ProducerIdSettings(refuse_init=True)), 0)
    request = raw.request(INIT_PRODUCER_ID, 0, {"transactional_id": None, "transaction_timeout_ms": 60_000})
    try:
        pair = scene.connect()
        pair.client.receive(request * 400)
        return len(pair.broker.sent()) // len(request)
    finally:
        scene.loop.close()


def test_new_ids_that_are_asked_for_are_decided_about_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_for_in_one_read() == work.JUDGED_PER_TURN // (work.READ_FOR + work.DECIDED_FOR)
    monkeypatch.setattr(session_of, "READ_FOR", 0)
    monkeypatch.setattr(producer_ids, "DECIDED_FOR", 0)
    assert asked_for_in_one_read() == 400


# ---- requests that are small, with as many tagged fields as may be ----------------------------------------

TAGS = bytes([MAX_TAGS]) + b"".join(bytes([tag, 0]) for tag in range(MAX_TAGS))
OF_NOBODY = struct.pack(">qh", -1, 0)

TAGGED: dict[str, tuple[int, int, bytes]] = {
    "ApiVersions": (18, 5, b"\2a\2b\0" + struct.pack(">i", -1)),
    "AddOffsetsToTxn": (ADD_OFFSETS, 3, b"\2t" + OF_NOBODY + b"\2g"),
    "AddPartitionsToTxn": (24, 3, b"\2t" + OF_NOBODY + b"\2\2t\2\0\0\0\0" + TAGS),
    "InitProducerId": (INIT_PRODUCER_ID, 4, b"\0" + struct.pack(">i", 1) + OF_NOBODY),
} | {
    f"Produce, {topics} topics": (
        PRODUCE,
        9,
        b"\0" + struct.pack(">hi", 1, 1) + bytes([1 + topics]) + topics * (b"\2t\1" + TAGS),
    )
    for topics in (0, 1, 2, 3, 5, 10)
}


def of_tags(kind: str) -> bytes:
    """Return as many such requests as one read takes, without a client id: their heads are read each time."""
    api_key, version, body = TAGGED[kind]
    frame = framed(struct.pack(">hhih", api_key, version, 1, 0) + TAGS + body + TAGS)
    return frame * (READ_BUFFER_BYTES // len(frame))


@pytest.mark.parametrize("kind", TAGGED)
def test_small_requests_with_many_tagged_fields(scene: Scene, kind: str) -> None:
    pair = scene.connect()
    frames = of_tags(kind)
    assert steps_of(lambda: pair.client.receive(frames)) < MOST_STEPS
    assert not pair.channel.connection.is_gone


# ---- dear requests of one read, or let go by one release -------------------------------------------------


def without_records(topic: str) -> bytes:
    return framed(produce_request(12, [(topic, [(n, None) for n in range(MANY - 1)])]))


def sticky(partition: int) -> bytes:
    """Refused as long as its id's deadline is not over: one batch, and as many partitions as may be."""
    empty: list[tuple[int, bytes | None]] = [(n, None) for n in range(10_000, 10_000 + MANY - 2)]
    return framed(produce_request(12, [("t", [(partition, record_batch(7)), *empty])]))


def old_messages(count: int) -> bytes:
    return framed(produce_request(2, [("t", [(0, old_message(0, b"") * count)])]))


def offsets_asked() -> bytes:
    partition = {"current_leader_epoch": 0, "timestamp": 0}
    partitions = [{"partition_index": n, **partition} for n in range(470)]
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": OWN, "partitions": partitions}]}
    return raw.request(LIST_OFFSETS, 6, body)


def deleted(names: list[str]) -> bytes:
    return raw.request(DELETE_TOPICS, 5, {"topic_names": names, "timeout_ms": 1})


def described() -> bytes:
    """Filters of no type and no name. By hand, as in `mentioned`: the codec would take a second."""
    head = struct.pack(">hhih", DESCRIBE_QUOTAS, 1, 1, -1) + b"\0"
    return framed(head + uvarint(work.MOST_ELEMENTS) + bytes(4) * (work.MOST_ELEMENTS - 1) + bytes(2))


def mentioned() -> bytes:
    """Entries without content, and a user of the name by which ours would be set."""
    head = struct.pack(">hhih", ALTER_QUOTAS, 1, 1, -1) + b"\0"
    user = b"\2\5user" + uvarint(18) + b"producer_ids_rate" + b"\0\1\0"
    entries = b"\1\1\0" * (work.MOST_ELEMENTS - 2) + user
    return framed(head + uvarint(work.MOST_ELEMENTS) + entries + bytes(2))


DEAR: dict[str, tuple[Callable[[int], bytes], Any, str, int]] = {
    "decoded and refused": (lambda n: deleted([OWN] + ["a"] * 490), api_of, "NAMED_FOR_BYTE", 0),
    "decoded, partitions": (lambda n: offsets_asked(), api_of, "NAMED_FOR_BYTE", 0),
    "decoded, small": (lambda n: deleted([OWN]), api_of, "NAMED_FOR_BYTE", 0),
    "the name in another": (lambda n: deleted(["x" + OWN * 900]), api_of, "NAMED_FOR_BYTE", 0),
    "DescribeClientQuotas": (lambda n: described(), client_quotas, "QUOTAS_FOR_BYTE", 0),
    "AlterClientQuotas": (lambda n: mentioned(), client_quotas, "QUOTAS_FOR_BYTE", 0),
    "Produce without records": (lambda n: without_records("t"), produce_api, "JUDGED_FOR_PLACE", 0),
    "Produce to a gateway topic": (
        lambda n: without_records(OWN),
        api_of,
        "ANSWERED_BYTES_FOR_ONE",
        1 << 30,
    ),
}
"""Requests by their number, and the constant by which they end a turn: its module, name, and a value that ends none."""


def in_one_read(kind: str) -> bytes:
    made = DEAR[kind][0]
    one = made(0)
    return b"".join(made(n) for n in range(250_000 // len(one)))


def steps_of_read(frames: bytes) -> int:
    scene = guarded_scene()
    try:
        pair = scene.connect()
        return steps_of(lambda: pair.client.receive(frames))
    finally:
        scene.loop.close()


def guarded_scene(rate: int | None = None) -> Scene:
    codec.load()
    scene = Scene(rate=rate)
    scene.context.surroundings.gateway_topics = GatewayTopics([OWN])
    return scene


def longest_release(scene: Scene, pair: Pair) -> int:
    """Steps of the longest turn in which held requests go on, until none is left."""
    channel, longest = pair.channel, 0
    scene.time_ms = channel.connection.session.context.muted_until_ms
    channel.connection._wake_never()
    for _ in range(1_000):
        longest = max(longest, steps_of(channel.connection.wake))
        channel.connection._wake_never()
        if not channel.connection.session.held:
            return longest
    raise AssertionError("what is held does not go on")


def steps_of_held(frame: bytes, count: int) -> int:
    scene = guarded_scene()
    try:
        pair = scene.connect()
        pair.channel.connection.session.context.mute(scene.time_ms + 1_000)
        for _ in range(count):
            rest = frame
            while rest:
                rest = rest[pair.client.receive(rest) :]
                scene.turns(3)
        assert len(pair.channel.connection.session.held) == count
        return longest_release(scene, pair)
    finally:
        scene.loop.close()


@rule(
    "In one turn of the event loop each account has 10 ms of work, and one waiting account is served.",
    "memory",
)
@pytest.mark.parametrize("kind", DEAR)
def test_dear_requests_of_one_read_are_handled_in_turns(kind: str) -> None:
    assert steps_of_read(in_one_read(kind)) < MOST_STEPS


@pytest.mark.parametrize("kind", ["decoded and refused", "DescribeClientQuotas", "Produce without records"])
def test_dear_requests_that_were_held_go_on_in_turns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, module, name, endless = DEAR[kind]
    assert steps_of_held(made(0), 30) < MOST_STEPS
    monkeypatch.setattr(module, name, endless)
    assert steps_of_held(made(0), 30) > MOST_STEPS


def test_so_do_old_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, count = old_messages(8_000), 5
    assert len(frame) * count <= HELD_LIMIT_BYTES
    assert steps_of_held(frame, count) < MOST_STEPS
    monkeypatch.setattr(produce_api, "JUDGED_FOR_PLACE", 0)
    assert steps_of_held(frame, count) > MOST_STEPS


def test_refused_behind_a_mute_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each repeats in its answer all partitions of the request, though one has a batch."""

    def steps() -> int:
        scene = guarded_scene(rate=0)
        try:
            pair = scene.connect()
            frames = b"".join(sticky(n) for n in range(14))
            taken = steps_of(lambda: pair.client.receive(frames))
            scene.turns(20)
            assert not pair.channel.connection.session.held
            return taken
        finally:
            scene.loop.close()

    assert steps() < MOST_STEPS
    monkeypatch.setattr(api_of, "ANSWERED_BYTES_FOR_ONE", 1 << 30)
    monkeypatch.setattr(produce_api, "JUDGED_FOR_PLACE", 0)
    assert steps() > MOST_STEPS


# ---- a broker that takes nothing


def longest_turn_of_an_answer() -> int:
    """Of each id thousands of topics were forwarded, and the broker knows none of those in the answer."""
    talk = NotTaken()
    names = [f"made-up-{at}" for at in range(1_400)]
    walk = talk.answered({name: [1 + at % MOST_IDS_PER_REQUEST] for at, name in enumerate(names)})
    topics = [name.encode() for name in names]
    for producer_id in range(1, 1 + MOST_IDS_PER_REQUEST):
        talk.admission.sticky.record_forwarded(
            "alice",
            [(producer_id, 2, 0, topic, 0) for topic in topics]
            + [(producer_id, epoch, 0, topics[0], 0) for epoch in range(3, 3 + 5_400)],
            1,
        )
        assert talk.look(producer_id, topics[-1], 0) is Position.PASSED
    left, longest = True, 0

    def turn() -> None:
        nonlocal left
        left = walk.go_on()

    while left:
        longest = max(longest, steps_of(turn))
    looks = {talk.look(one, topic, 0) for one in range(1, 1 + MOST_IDS_PER_REQUEST) for topic in topics}
    assert looks == {Position.FIRST_SIGHT}
    return longest


def test_made_up_topics_hold_up_nobody() -> None:
    assert longest_turn_of_an_answer() < MOST_STEPS
