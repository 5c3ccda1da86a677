"""A gateway topic leaves no trace in a list, and a refusal where it was asked for; all else stays."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.frames import uvarint
from pidgate.protocol.gateway_topics import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_TOPIC_PARTITIONS,
    GatewayTopicSet,
    cut_metadata_request,
    filtering,
    with_refusals,
)
from pidgate.protocol.headers import peek_request
from pidgate.protocol.work import BYTES_PER_STEP, at_once
from tests.support import raw
from tests.support.bounds import examples
from tests.support.frames import entities, entity_class, request_frame, response_frame, unframed

METADATA = 3
OWN = "__pidgate_events"
LONG = "x" * 47
"""Its compact length is the character 0: a topic called 0 and then this holds what looks like this."""
LONGEST = "y" * 249
OWN_ID = UUID("7a35d4e2-9c1b-4f08-b6a7-0c9d8e7f6a5b")
REFUSED = 29
VERSIONS = [(METADATA, version) for version in range(14)] + [(DESCRIBE_TOPIC_PARTITIONS, 0)]
ALL_VERSIONS = pytest.mark.parametrize(("api_key", "version"), VERSIONS)


def gateway_topics(name: str = OWN) -> GatewayTopicSet:
    topics = GatewayTopicSet([name])
    topics.learn_id(OWN_ID.bytes)
    return topics


def filter_response(
    api_key: int, version: int, buf: bytes, start: int, end: int, own: GatewayTopicSet
) -> bytes | None:
    return at_once(filtering(api_key, version, buf, start, end, own))


def filtered(entity: Any, api_key: int, version: int, own: GatewayTopicSet) -> bytes:
    """What is made of the answer, which lies in the middle of a buffer."""
    frame = response_frame(entity)
    inside = b"before" + frame + b"after"
    answer = filter_response(api_key, version, inside, 6, 6 + len(frame), own)
    return frame if answer is None else unframed(answer)


def lookalikes(name: str) -> st.SearchStrategy[str]:
    """Topics that hold the name, or what stands before it in a frame."""
    edge = st.text("0123xyz._-", max_size=3)
    return (
        st.tuples(edge, edge).map(lambda edges: edges[0] + name + edges[1]).filter(lambda text: text != name)
    )


def topic_entries(api_key: int, version: int) -> st.SearchStrategy[Any]:
    answer = entity_class(api_key, version)
    (cls,) = (cls for cls in vars(__import__(answer.__module__, fromlist=["x"])).values() if is_topic(cls))
    return entities(cls)


def is_topic(cls: object) -> bool:
    return getattr(cls, "__name__", "") in {"MetadataResponseTopic", "DescribeTopicPartitionsResponseTopic"}


@ALL_VERSIONS
@pytest.mark.parametrize("name", [OWN, LONG, LONGEST])
@settings(max_examples=examples(25))
@given(data=st.data())
def test_a_gateway_topic_leaves_a_list_without_a_trace(
    api_key: int, version: int, name: str, data: st.DataObject
) -> None:
    answer = data.draw(entities(entity_class(api_key, version)))
    topic = topic_entries(api_key, version)
    others = [
        replace(data.draw(topic), name=other, error_code=ErrorCode.none)
        for other in data.draw(st.lists(lookalikes(name), max_size=4))
    ]
    mine = replace(data.draw(topic), name=name, error_code=ErrorCode.none)
    at = data.draw(st.integers(0, len(others)))
    own = GatewayTopicSet([name])
    with_it = replace(answer, topics=(*others[:at], mine, *others[at:]))
    without = response_frame(replace(answer, topics=tuple(others)))
    assert filtered(with_it, api_key, version, own) == without
    own_id = getattr(mine, "topic_id", None)
    assert list(own.ids) == ([own_id.bytes] if own_id else [])
    assert filtered(replace(answer, topics=tuple(others)), api_key, version, own) == without


@pytest.mark.parametrize("version", range(14))
@settings(max_examples=examples(25))
@given(data=st.data())
def test_what_was_cut_out_of_a_request_is_answered_as_not_authorised(
    version: int, data: st.DataObject
) -> None:
    answer = data.draw(entities(entity_class(METADATA, version)))
    frame = metadata_request(version, ["a" + OWN, OWN], [OWN_ID] if version >= 12 else [])
    cut = cut_metadata_request(frame, peek_request(frame, 0, len(frame)), gateway_topics())
    assert cut is not None
    inside = b"before" + response_frame(answer) + b"after"
    with_it = unframed(with_refusals(inside, 6, len(inside) - 5, version, cut.refusals))
    read = raw.decoded(METADATA, version, with_it)
    refused = read["topics"][: len(cut.refusals)]
    assert [(topic["error_code"], topic["name"], topic["partitions"]) for topic in refused] == [
        (REFUSED, name, []) for name in ((OWN, None) if version >= 12 else (OWN,))
    ]
    if version >= 12:
        assert [topic["topic_id"] for topic in refused] == [None, str(OWN_ID)]
    # Nothing else has changed: without them it is the answer that came.
    del read["topics"][: len(cut.refusals)]
    assert read == raw.decoded(METADATA, version, response_frame(answer))
    length = len(with_it) - sum(map(len, cut.refusals))
    assert abs(length - len(response_frame(answer))) <= 1  # the count may take a byte more


@ALL_VERSIONS
@settings(max_examples=examples(25))
@given(data=st.data())
def test_an_answer_about_others_stays(api_key: int, version: int, data: st.DataObject) -> None:
    frame = response_frame(data.draw(entities(entity_class(api_key, version))))
    assert filter_response(api_key, version, frame, 0, len(frame), gateway_topics()) is None


@pytest.mark.parametrize("version", [0, 1])
@settings(max_examples=examples(50))
@given(data=st.data())
def test_a_broker_that_resolves_a_pattern_assigns_it_to_nobody(version: int, data: st.DataObject) -> None:
    cls = entity_class(CONSUMER_GROUP_HEARTBEAT, version)
    answer = data.draw(entities(cls).filter(lambda found: found.assignment is not None))
    partitions = answer.assignment.topic_partitions
    own = gateway_topics()
    without = response_frame(answer)
    assert filtered(answer, CONSUMER_GROUP_HEARTBEAT, version, own) == without
    module = __import__(cls.__module__, fromlist=["x"])
    mine = module.TopicPartitions(topic_id=OWN_ID, partitions=(0, 5))
    at = data.draw(st.integers(0, len(partitions)))
    assigned = replace(answer.assignment, topic_partitions=(*partitions[:at], mine, *partitions[at:]))
    assert filtered(replace(answer, assignment=assigned), CONSUMER_GROUP_HEARTBEAT, version, own) == without


@settings(max_examples=examples(30))
@given(data=st.data())
def test_no_cut_of_an_answer_does_more_than_end_its_connection(data: st.DataObject) -> None:
    answer = data.draw(entities(entity_class(METADATA, 12), 2))
    mine = replace(data.draw(topic_entries(METADATA, 12)), name=OWN)
    frame = response_frame(replace(answer, topics=(mine,)))
    for end in range(len(frame)):
        try:
            filter_response(METADATA, 12, frame, 0, end, gateway_topics())
        except MalformedFrame:
            continue


def metadata_request(version: int, names: list[str] | None, ids: list[UUID] | None = None) -> bytes:
    """A request with every flag raised; None: for all topics."""
    cls = entity_class(METADATA, version, EntityType.request)
    flags = {
        name: True
        for name, since in (("allow_auto_topic_creation", 4), ("include_topic_authorized_operations", 8))
        if version >= since
    }
    if 8 <= version <= 10:
        flags["include_cluster_authorized_operations"] = True
    topic = __import__(cls.__module__, fromlist=["x"]).MetadataRequestTopic
    no_id = {"topic_id": None} if version >= 10 else {}
    by_name = None if names is None else [topic(**no_id, name=name) for name in names]
    by_id = [topic(topic_id=topic_id, name=None) for topic_id in ids or []]
    return request_frame(cls(topics=None if by_name is None else (*by_name, *by_id), **flags), client_id=OWN)


@pytest.mark.parametrize("version", range(14))
def test_a_topic_is_cut_out_of_a_question_and_nothing_else_in_it(version: int) -> None:
    ids = [UUID(int=1), OWN_ID] if version >= 12 else []
    asked = metadata_request(version, ["a" + OWN, OWN, OWN + "b"], ids)
    inside = b"xx" + asked + b"y"
    cut = cut_metadata_request(inside, peek_request(inside, 2, 2 + len(asked)), gateway_topics())
    assert cut is not None
    assert unframed(cut.request) == metadata_request(version, ["a" + OWN, OWN + "b"], ids[:1])
    assert len(cut.refusals) == (2 if ids else 1)
    assert not cut.is_empty
    others = metadata_request(version, ["a" + OWN])
    assert cut_metadata_request(others, peek_request(others, 0, len(others)), gateway_topics()) is None
    alone = metadata_request(version, [OWN])
    cut = cut_metadata_request(alone, peek_request(alone, 0, len(alone)), gateway_topics())
    assert cut is not None
    assert cut.is_empty
    assert unframed(cut.request) == metadata_request(version, [])


@pytest.mark.parametrize("version", range(1, 14))
def test_a_question_for_all_topics_stays(version: int) -> None:
    frame = metadata_request(version, None)
    assert cut_metadata_request(frame, peek_request(frame, 0, len(frame)), gateway_topics()) is None


@pytest.mark.parametrize(
    ("held", "flexible", "is_held"),
    [
        (b"\x00\x10" + OWN.encode(), False, True),
        (b"\x11" + OWN.encode(), True, True),
        (b"\x91\x00" + OWN.encode(), True, True),
        (b"\x91\x80\x80\x00" + OWN.encode(), True, True),
        (b"\x91\x80\x80\x80\x00" + OWN.encode(), True, True),
        (b"\x00\x11" + OWN.encode() + b"2", False, False),
        (b"\x12" + OWN.encode() + b"2", True, False),
        (b"\x00\x13us." + OWN.encode(), False, False),
        (b"\x14us." + OWN.encode(), True, False),
        (b"\x91\x80\x80\x80\x80\x00" + OWN.encode(), True, False),
        (OWN.encode(), True, False),
        (b"\x10" + OWN.encode(), False, False),
        (b"\x11" + OWN.encode()[:-1], True, False),
        (b"..." + OWN_ID.bytes, True, True),
        (b"\x12" + OWN.encode() + b"2" + b"\x11" + OWN.encode(), True, True),
    ],
)
def test_a_string_is_told_from_a_part_of_one_in_every_form_of_its_length(
    held: bytes, flexible: bool, is_held: bool
) -> None:
    own = gateway_topics()
    # What lies before the frame is not the frame's, whatever it would make of its first bytes.
    buf = (b"\x11" if flexible else b"\x00") + held + b"\x00"
    assert own.is_named_in(buf, 1, 1 + len(held), flexible=flexible) is is_held
    assert any(needle in held for needle in own.needles) or not is_held


def test_ids_are_kept_up_to_a_bound_and_the_set_of_produced_topics_is_one() -> None:
    own = GatewayTopicSet([OWN])
    produced = own.produced
    ids = [index.to_bytes(16, "big") for index in range(1, 101)]
    for topic_id in ids:
        own.learn_id(topic_id)
        own.learn_id(topic_id)
    own.learn_id(bytes(16))  # no topic
    assert list(own.ids) == ids[-64:]
    assert own.produced is produced == {OWN.encode(), *(b"\x00" + topic_id for topic_id in ids[-64:])}


def test_a_name_said_ten_thousand_times_is_not_looked_at_ten_thousand_times() -> None:
    own = gateway_topics()
    often = (b"us." + OWN.encode()) * 10_000
    assert own.is_named_in(often, 0, len(often), flexible=True)
    assert not own.is_named_in(often, 0, 900 * (3 + len(OWN)), flexible=True)


def test_an_array_shorter_than_its_entries_is_malformed() -> None:
    """Found by fuzzing: a count below the entries that follow it became a length below zero."""
    entry = b"\0\0" + uvarint(len(OWN) + 1) + OWN.encode() + b"\0\x01" + b"\x80\0\0\0" + b"\0"
    head = bytes(4) + b"\0" + bytes(4) + b"\x01\0" + bytes(4)  # no brokers, no cluster id
    whole = head + b"\x03" + entry * 2 + b"\x80\0\0\0\0"
    left = filter_response(METADATA, 9, whole, 0, len(whole), gateway_topics())
    assert left is not None
    assert unframed(left) == head + b"\x01" + b"\x80\0\0\0\0"
    short = head + b"\x02" + whole[len(head) + 1 :]
    with pytest.raises(MalformedFrame):
        filter_response(METADATA, 9, short, 0, len(short), gateway_topics())


@pytest.mark.parametrize("at", [*range(BYTES_PER_STEP - 20, BYTES_PER_STEP + 3), 3 * BYTES_PER_STEP - 1])
def test_a_name_is_found_wherever_a_step_of_the_search_ends(at: int) -> None:
    head = bytes(9) + b"\1\0" + bytes(4) + b"\3"  # no brokers, two topics
    before_name = b"\0\0" + uvarint(len(OWN) + 1)
    other = bytes(at - len(head) - len(before_name))  # nobody reads it
    entry = before_name + OWN.encode() + OWN_ID.bytes + b"\1\1" + bytes(5)
    frame = head + other + entry + b"\0"
    assert frame.index(OWN.encode()) == at
    assert filter_response(METADATA, 12, frame, 0, len(frame), gateway_topics()) is not None
