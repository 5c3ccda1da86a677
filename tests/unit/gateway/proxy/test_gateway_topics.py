"""No request that names an own topic is forwarded, in any API, version, field or form; what is merely called alike is.

The fields are found in the schemas, not in the table of the code under test.
"""

from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, get_args, get_type_hints
from uuid import UUID

import pytest
from kio.schema.index import api_key_map
from kio.schema.types import TopicName
from kio.static.constants import EntityType

from pidgate.gateway.cluster.gateway_topics import LOOKED_INTO_BYTES, GatewayTopics
from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, TAKEN
from pidgate.protocol.topic_refusals import GUARDED
from pidgate.protocol.versions import SPOKEN
from pidgate.protocol.work import MOST_DECODED
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support import raw
from tests.support.frames import entity_class, framed, old_message, produce_request, record_batch
from tests.support.rules import rule
from tests.support.talk import Talk
from tests.support.topic_fields import named_in_each_field

OWN = "__pidgate_events"
OWN_ID = UUID("7a35d4e2-9c1b-4f08-b6a7-0c9d8e7f6a5b")
ELSEWHERE = frozenset({OWN + "2", "us." + OWN, OWN[:-1]})
REFUSED = 29
PRODUCE, METADATA, DESCRIBE_TOPIC_PARTITIONS = 0, 3, 75
TOPIC, BROKER, GROUP = 2, 4, 3

Given = dict[str, Any]


class Script:
    """One connection of somebody with a quota of 0: nothing of an own topic may even ask the quota."""

    def __init__(self, names: tuple[str, ...] = (OWN,), *, knows_id: bool = True) -> None:
        self.own = GatewayTopics(names)
        if knows_id:
            self.own.learn_id(OWN_ID.bytes)
        quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(0))
        self.talk = Talk(
            Admission(quotas, lambda: 1, 0), Client("alice", "", "10.0.0.1", 1), gateway_topics=self.own
        )

    def send(self, frame: bytes) -> int:
        buf = b"before" + frame + b"after"
        return self.talk.request(buf, 10, 6 + len(frame), 0)

    def answer(self) -> bytes:
        (answer,) = self.talk.out
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        return answer[4:]


# ---- which fields there are --------------------------------------------------------------------------------


def cases() -> Iterator[Any]:
    for api_key, version, given in named_in_each_field(OWN, OWN_ID):
        kind = "id" if OWN_ID in _leaves(given) else "name"
        label = f"{SPOKEN[api_key].name}-{version}-{next(iter(given))}-{kind}"
        yield pytest.param(api_key, version, given, kind, id=label)


def _leaves(given: Any) -> Iterator[Any]:
    if isinstance(given, dict):
        for inner in given.values():
            yield from _leaves(inner)
    elif isinstance(given, list):
        for inner in given:
            yield from _leaves(inner)
    else:
        yield given


CASES = list(cases())


def may_name_a_topic(api_key: int) -> bool:
    """By kio, the other codec: a field of the type TopicName, a topic's id, or a resource's name."""
    for version in range(SPOKEN[api_key].min_version, SPOKEN[api_key].max_version + 1):
        try:
            cls = entity_class(api_key, version, EntityType.request)
        except KeyError:
            continue  # a version that Kafka 4 no longer has
        module = import_module(cls.__module__)
        for struct in (found for found in vars(module).values() if is_dataclass(found)):
            for name, hint in get_type_hints(struct).items():
                kinds = {hint, *get_args(hint), *(inner for arg in get_args(hint) for inner in get_args(arg))}
                if TopicName in kinds or name in {"topic_id", "resource_name", "resource_name_filter"}:
                    return True
    return False


def test_every_api_that_may_name_a_topic_is_looked_at() -> None:
    unknown_to_kio = SPOKEN.keys() - api_key_map.keys()
    assert {key for key in SPOKEN.keys() - unknown_to_kio if may_name_a_topic(key)} == (
        GUARDED - unknown_to_kio | {PRODUCE}
    )
    assert {case.values[0] for case in CASES} == GUARDED


# ---- what becomes of them ----------------------------------------------------------------------------------


def errors_in(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in {"error_code", "partition_error_code"}:
                yield inner
            else:
                yield from errors_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from errors_in(inner)


def is_a_cursor(api_key: int, given: Given) -> bool:
    """The place from which a listing goes on: it shows nothing, and nothing is done to the topic."""
    return api_key == DESCRIBE_TOPIC_PARTITIONS and "cursor" in given


@rule("No client produces to a topic of the gateway, however the request spells it.", "protocol")
@pytest.mark.parametrize(("api_key", "version", "given", "kind"), CASES)
def test_no_request_that_names_it_is_forwarded(api_key: int, version: int, given: Given, kind: str) -> None:
    talk = Script()
    frame = raw.request(api_key, version, given)
    assert (OWN.encode() if kind == "name" else OWN_ID.bytes) in frame
    step = talk.send(frame)
    if is_a_cursor(api_key, given):
        assert step is FORWARD
        return
    if talk.talk.to_broker:
        (instead,) = talk.talk.to_broker
        assert step is TAKEN
        assert api_key == METADATA
        assert OWN.encode() not in instead
        assert OWN_ID.bytes not in instead
        asked = talk.talk.expect(raw.CORRELATION_ID)
        assert asked.api_key == api_key
        assert isinstance(asked.note, tuple)
        assert [refusal[:2] for refusal in asked.note] == [REFUSED.to_bytes(2, "big")]
    elif step is TAKEN:
        answer = raw.decoded(api_key, version, talk.answer())
        assert set(errors_in(answer)) <= {0, REFUSED}
        assert REFUSED in errors_in(answer)
    else:
        assert step is CLOSE
        # Those whose answer is made of something else than what is asked.
        assert SPOKEN[api_key].name in ("AlterReplicaLogDirs", "DescribeLogDirs")
        assert talk.talk.close_cause == "gateway_topic"
    assert talk.talk.gateway_topic_requests == [api_key]


@pytest.mark.parametrize(("api_key", "version", "given", "kind"), CASES)
def test_without_gateway_topics_it_is_a_topic_like_others(
    api_key: int, version: int, given: Given, kind: str
) -> None:
    assert Script(names=()).send(raw.request(api_key, version, given)) is FORWARD


def renamed(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: renamed(inner, name) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner, name) for inner in value]
    return name if value == OWN else value


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
@pytest.mark.parametrize(
    ("api_key", "version", "given", "kind"), [case for case in CASES if case.values[3] == "name"]
)
def test_a_topic_whose_name_only_holds_it_is_another(
    api_key: int, version: int, given: Given, kind: str, name: str
) -> None:
    talk = Script()
    assert talk.send(raw.request(api_key, version, renamed(given, name), client_id=OWN)) is FORWARD
    assert talk.talk.gateway_topic_requests == []


NOT_TOPICS: list[tuple[int, Given]] = [
    (8, {"group_id": OWN, "member_id": OWN, "group_instance_id": OWN, "topics": [{"name": "orders"}]}),
    (9, {"group_id": OWN, "groups": [{"group_id": OWN, "topics": None}], "topics": []}),
    (28, {"group_id": OWN, "transactional_id": OWN}),
    (24, {"v3_and_below_transactional_id": OWN, "transactions": [{"transactional_id": OWN}]}),
    (47, {"group_id": OWN}),
    (30, {"creations": [{"resource_type": GROUP, "resource_name": OWN, "principal": OWN}]}),
    (31, {"filters": [{"resource_type_filter": GROUP, "resource_name_filter": OWN}]}),
    (32, {"resources": [{"resource_type": BROKER, "resource_name": OWN, "configuration_keys": [OWN]}]}),
    (33, {"resources": [{"resource_type": BROKER, "resource_name": OWN}]}),
    (44, {"resources": [{"resource_type": TOPIC, "resource_name": "orders", "configs": [{"value": OWN}]}]}),
    (68, {"group_id": OWN, "member_id": OWN, "rack_id": OWN, "subscribed_topic_names": ["orders"]}),
    (78, {"group_id": OWN, "member_id": OWN}),
    (88, {"group_id": OWN, "member_id": OWN, "rack_id": OWN}),
    (91, {"group_id": OWN, "topics": [{"topic_name": "orders"}]}),
]


@pytest.mark.parametrize(
    ("api_key", "version", "given"),
    [
        pytest.param(api_key, version, given, id=f"{SPOKEN[api_key].name}-{version}")
        for api_key, given in NOT_TOPICS
        for version in range(SPOKEN[api_key].min_version, SPOKEN[api_key].max_version + 1)
    ],
)
def test_what_is_called_the_same_and_is_no_topic_passes(api_key: int, version: int, given: Given) -> None:
    frame = raw.request(api_key, version, given, client_id=OWN)
    assert OWN.encode() in frame[30:]
    assert Script().send(frame) is FORWARD


def test_the_answer_repeats_what_was_asked_topic_by_topic() -> None:
    talk = Script()
    partitions = [{"partition_index": 3, "timestamp": -2}, {"partition_index": 5, "timestamp": -1}]
    topics = [{"name": name, "partitions": partitions} for name in ("orders", OWN)]
    assert talk.send(raw.request(2, 7, {"topics": topics})) is TAKEN
    unknown = {"error_code": REFUSED, "timestamp": -1, "offset": -1, "leader_epoch": -1}
    assert raw.decoded(2, 7, talk.answer())["topics"] == [
        {"name": name, "partitions": [{"partition_index": index, **unknown} for index in (3, 5)]}
        for name in ("orders", OWN)
    ]


def test_a_length_in_more_bytes_than_it_needs_hides_nothing() -> None:
    talk = Script()
    frame = raw.request(19, 7, {"topics": [{"name": OWN, "num_partitions": 1, "replication_factor": 1}]})
    longer = frame[4:].replace(b"\x11" + OWN.encode(), b"\x91\x80\x00" + OWN.encode())
    assert len(longer) == len(frame) - 4 + 2
    assert talk.send(framed(longer)) is TAKEN


@pytest.mark.parametrize("version", [4, 12])
def test_a_request_too_large_to_be_looked_into_is_closed_for_the_name_only(version: int) -> None:
    def fetch(*names: str) -> bytes:
        topics = [{"topic": f"topic-{index:05}"} for index in range(1_000)]
        body = {"topics": [*topics, *({"topic": name} for name in names)]}
        return raw.request(1, version, body, client_id=OWN)

    assert len(fetch()) > LOOKED_INTO_BYTES
    assert Script().send(fetch(*ELSEWHERE)) is FORWARD
    talk = Script()
    assert talk.send(fetch(OWN)) is CLOSE
    assert talk.talk.close_cause == "gateway_topic"


def test_who_asks_for_thousands_of_things_with_it_gets_no_long_answer() -> None:
    talk = Script()
    assert talk.send(raw.request(20, 5, {"topic_names": [OWN, *[""] * (MOST_DECODED - 1)]})) is TAKEN
    talk = Script()
    assert talk.send(raw.request(20, 5, {"topic_names": [OWN, *[""] * MOST_DECODED]})) is CLOSE
    assert talk.talk.close_cause == "gateway_topic"


def test_an_answer_of_our_own_waits_for_its_turn() -> None:
    talk = Script()
    assert talk.send(raw.request(METADATA, 1, {"topics": []}, correlation_id=1)) is FORWARD
    assert talk.send(raw.request(20, 1, {"topic_names": [OWN]}, correlation_id=2)) is TAKEN
    assert talk.talk.out == []
    assert talk.talk.expect(1).correlation_id == 1
    talk.talk.answered()
    assert raw.decoded(20, 1, talk.answer())["responses"] == [{"name": OWN, "error_code": REFUSED}]


# ---- Produce -----------------------------------------------------------------------------------------------

RECORDS = {
    "with an id": record_batch(4711),
    "without": record_batch(-1, -1, -1),
    "old": old_message(1),
    "none": None,
}


def produce(version: int, *topics: str | UUID, records: bytes | None, acks: int = -1) -> bytes:
    return framed(produce_request(version, [(topic, [(3, records)]) for topic in topics], acks=acks))


@rule("No client produces to a topic of the gateway, however the request spells it.", "protocol")
@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("records", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_nothing_is_produced_to_it(version: int, records: bytes | None, position: int) -> None:
    topics: list[str | UUID] = [UUID(int=1), UUID(int=2)] if version >= 13 else ["orders", OWN + "2"]
    topics.insert(position, OWN_ID if version >= 13 else OWN)
    talk = Script()
    assert talk.send(produce(version, *topics, records=records)) is TAKEN
    answer = raw.decoded(PRODUCE, version, talk.answer())
    assert list(errors_in(answer)) == [REFUSED] * 3
    assert talk.talk.gateway_topic_requests == [PRODUCE]
    # Neither the quota nor a mute: it was never a question of how many ids.
    assert answer.get("throttle_time_ms", 0) == 0
    assert talk.talk.muted_until_ms == 0
    assert talk.talk.refused == []


@pytest.mark.parametrize("records", RECORDS.values(), ids=RECORDS)
def test_without_an_answer_the_connection_ends(records: bytes | None) -> None:
    talk = Script()
    assert talk.send(produce(9, OWN, records=records, acks=0)) is CLOSE
    assert talk.talk.close_cause == "gateway_topic"


def test_a_producer_that_was_at_it_before_the_id_was_known_is_refused_from_then_on() -> None:
    talk = Script(knows_id=False)
    frame = produce(13, OWN_ID, records=record_batch(-1, -1, -1))
    assert talk.send(frame) is FORWARD
    talk.own.learn_id(OWN_ID.bytes)
    assert talk.send(frame) is TAKEN


def test_a_repeated_request_is_refused_once_the_id_is_known() -> None:
    talk = Talk(
        Admission(Quotas(), lambda: 1, 0),
        Client("alice", "", "10.0.0.1", 1),
        gateway_topics=(own := GatewayTopics([OWN])),
    )
    frame = produce(13, OWN_ID, records=record_batch(4711))
    for _ in range(3):
        assert talk.request(frame, 4, len(frame), 0) is FORWARD
    own.learn_id(OWN_ID.bytes)
    assert talk.request(frame, 4, len(frame), 0) is TAKEN


def test_what_waited_behind_a_mute_is_looked_at_when_it_ends() -> None:
    talk = Script()
    assert talk.send(produce(9, "orders", records=record_batch(4711))) is TAKEN
    talk.talk.out.clear()
    talk.talk.refused.clear()
    assert talk.talk.muted_until_ms > 0
    assert talk.send(produce(9, OWN, records=record_batch(-1, -1, -1))) is TAKEN
    assert talk.send(raw.request(METADATA, 12, {"topics": [{"name": OWN}, {"name": "orders"}]})) is TAKEN
    assert talk.send(raw.request(20, 1, {"topic_names": [OWN]})) is TAKEN
    assert len(talk.talk.held) == 3
    forwarded, must_close = talk.talk.release(talk.talk.muted_until_ms)
    assert not must_close
    (metadata,) = forwarded
    assert OWN.encode() not in metadata
    assert b"orders" in metadata
    assert talk.talk.gateway_topic_requests == [PRODUCE, METADATA, 20]


def test_a_damaged_request_with_the_name_in_it_breaks_the_protocol() -> None:
    frame = raw.request(19, 7, {"topics": [{"name": OWN, "num_partitions": 1, "replication_factor": 1}]})
    script = Script()
    assert script.send(framed(frame[4:-2])) is CLOSE
    assert script.talk.close_cause == "protocol"
