"""A refused request of a gateway topic is counted, logged and answered once, by the name of its API."""

import pytest

from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, TAKEN, Request
from pidgate.gateway.proxy.apis.table import APIS, NOT_OFFERED
from pidgate.protocol.versions import SPOKEN
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Quotas
from tests.support import raw
from tests.support.frames import framed, produce_request
from tests.support.talk import Talk

OWN = "__pidgate_events"
PRODUCE, FETCH, METADATA, DELETE_TOPICS, ADD_PARTITIONS_TO_TXN = 0, 1, 3, 20, 24
REFUSED = 29


def talk() -> Talk:
    client = Client("alice", "", "10.0.0.1", 1)
    return Talk(Admission(Quotas(), lambda: 1, 0), client, gateway_topics=GatewayTopics([OWN]))


def send(talk: Talk, frame: bytes) -> int:
    return talk.request(frame, 4, len(frame), 0)


def asking(api_key: int, topic: str) -> bytes:
    if api_key == PRODUCE:
        return framed(produce_request(9, [(topic, [(0, None)])]))
    asked: dict[int, tuple[int, raw.Body]] = {
        FETCH: (11, {"topics": [{"topic": topic}]}),
        DELETE_TOPICS: (1, {"topic_names": [topic], "timeout_ms": 0}),
        ADD_PARTITIONS_TO_TXN: (3, {"v3_and_below_topics": [{"name": topic, "partitions": [0]}]}),
    }
    return raw.request(api_key, *asked[api_key])


def noticed(talk: Talk) -> tuple[list[int], dict[str, int]]:
    return talk.gateway_topic_requests, dict(+talk.context.counters.gateway_topic_refused)


@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, DELETE_TOPICS, ADD_PARTITIONS_TO_TXN])
def test_it_is_answered_counted_and_logged_once(api_key: int) -> None:
    one = talk()
    assert send(one, asking(api_key, "orders")) is FORWARD
    assert noticed(one) == ([], {})
    one.answered()
    assert send(one, asking(api_key, OWN)) is TAKEN
    assert len(one.out) == 1
    assert noticed(one) == ([api_key], {SPOKEN[api_key].name: 1})
    assert one.session.is_quiet


@pytest.mark.parametrize("api_key", [FETCH, DELETE_TOPICS, ADD_PARTITIONS_TO_TXN])
def test_its_handler_says_what_has_become_of_it(api_key: int) -> None:
    one, frame = talk(), asking(api_key, OWN)
    request = Request(frame, 4, len(frame), NOT_OFFERED)
    handler = APIS[request.api_key << 16 | request.api_version]
    assert handler.handle_request(one.context, request, 0) is TAKEN


def test_without_an_answer_it_ends_the_connection_and_counts_too() -> None:
    one = talk()
    assert send(one, framed(produce_request(9, [(OWN, [(0, None)])], acks=0))) is CLOSE
    assert noticed(one) == ([PRODUCE], {"Produce": 1})


def test_a_refused_produce_has_no_throttle() -> None:
    one = talk()
    send(one, asking(PRODUCE, OWN))
    assert raw.decoded(PRODUCE, 9, one.out[0][4:])["throttle_time_ms"] == 0
    assert raw.produce_code(one.out[0][4:]) == REFUSED


def test_metadata_goes_on_without_the_topic_and_its_answer_has_the_refusal() -> None:
    one = talk()
    assert send(one, raw.request(METADATA, 1, {"topics": [{"name": "orders"}, {"name": OWN}]})) is TAKEN
    assert noticed(one) == ([METADATA], {"Metadata": 1})
    (asked,) = one.to_broker
    assert OWN.encode() not in asked
    assert b"orders" in asked
    topic = {"error_code": 0, "name": "orders", "is_internal": False, "partitions": []}
    answer = one.broker_answers(
        raw.response(METADATA, 1, {"brokers": [], "controller_id": 1, "topics": [topic]})
    )
    assert answer is not None
    topics = raw.decoded(METADATA, 1, answer[4:])["topics"]
    assert {each["name"]: each["error_code"] for each in topics} == {"orders": 0, OWN: REFUSED}
