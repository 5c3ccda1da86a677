"""An own topic leaves no trace in a list and a refusal in its place where it was asked for; all else stays."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.gateway_topics import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_TOPIC_PARTITIONS,
    OwnTopicSet,
    conceal,
    disguise,
)
from tests.support.frames import entities, entity_class, request_frame, response_frame, unframed

METADATA = 3
OWN = "__pidgate_events"
LONG = "x" * 47
"""Its compact length is the character 0: a topic called 0 and then this holds what looks like this."""
LONGEST = "y" * 249
OWN_ID = UUID("7a35d4e2-9c1b-4f08-b6a7-0c9d8e7f6a5b")
REFUSED = ErrorCode.topic_authorization_failed
VERSIONS = [(METADATA, version) for version in range(14)] + [(DESCRIBE_TOPIC_PARTITIONS, 0)]
ALL_VERSIONS = pytest.mark.parametrize(("api_key", "version"), VERSIONS)


def gateway_topics(name: str = OWN) -> OwnTopicSet:
    topics = OwnTopicSet([name])
    topics.learn_id(OWN_ID.bytes)
    return topics


def concealed(
    entity: Any, api_key: int, version: int, own: OwnTopicSet, *, was_disguised: bool = False
) -> bytes:
    """What is made of the answer, which lies in the middle of a buffer."""
    frame = response_frame(entity)
    inside = b"before" + frame + b"after"
    answer = conceal(api_key, version, inside, 6, 6 + len(frame), own, was_disguised=was_disguised)
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
@settings(max_examples=25)
@given(data=st.data())
def test_an_gateway_topic_leaves_a_list_without_a_trace(
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
    own = OwnTopicSet([name])
    with_it = replace(answer, topics=(*others[:at], mine, *others[at:]))
    without = response_frame(replace(answer, topics=tuple(others)))
    assert concealed(with_it, api_key, version, own) == without
    own_id = getattr(mine, "topic_id", None)
    assert list(own.ids) == ([own_id.bytes] if own_id else [])
    assert concealed(replace(answer, topics=tuple(others)), api_key, version, own) == without


@ALL_VERSIONS
@settings(max_examples=25)
@given(data=st.data())
def test_a_disguised_name_is_answered_as_not_authorised(
    api_key: int, version: int, data: st.DataObject
) -> None:
    answer = data.draw(entities(entity_class(api_key, version)))
    entry = data.draw(topic_entries(api_key, version))
    disguised = replace(entry, name="!" + OWN[1:], error_code=ErrorCode.invalid_topic_exception)
    shown = replace(entry, name=OWN, error_code=REFUSED)
    assert concealed(
        replace(answer, topics=(entry, disguised, entry)),
        api_key,
        version,
        gateway_topics(),
        was_disguised=True,
    ) == response_frame(replace(answer, topics=(entry, shown, entry)))


@pytest.mark.parametrize("version", [12, 13])
@settings(max_examples=25)
@given(data=st.data())
def test_a_disguised_id_is_answered_as_not_authorised(version: int, data: st.DataObject) -> None:
    answer = data.draw(entities(entity_class(METADATA, version)))
    entry = data.draw(topic_entries(METADATA, version))
    flipped = UUID(int=OWN_ID.int ^ (2**128 - 1))
    disguised = replace(entry, name=None, topic_id=flipped, error_code=ErrorCode.unknown_topic_id)
    shown = replace(entry, name=None, topic_id=OWN_ID, error_code=REFUSED)
    assert concealed(
        replace(answer, topics=(disguised, entry)), METADATA, version, gateway_topics(), was_disguised=True
    ) == response_frame(replace(answer, topics=(shown, entry)))


@ALL_VERSIONS
@pytest.mark.parametrize("was_disguised", [False, True])
@settings(max_examples=25)
@given(data=st.data())
def test_an_answer_about_others_stays(
    api_key: int, version: int, was_disguised: bool, data: st.DataObject
) -> None:
    frame = response_frame(data.draw(entities(entity_class(api_key, version))))
    assert (
        conceal(api_key, version, frame, 0, len(frame), gateway_topics(), was_disguised=was_disguised) is None
    )


@pytest.mark.parametrize("version", [0, 1])
@settings(max_examples=50)
@given(data=st.data())
def test_a_broker_that_resolves_a_pattern_assigns_it_to_nobody(version: int, data: st.DataObject) -> None:
    cls = entity_class(CONSUMER_GROUP_HEARTBEAT, version)
    answer = data.draw(entities(cls).filter(lambda found: found.assignment is not None))
    partitions = answer.assignment.topic_partitions
    own = gateway_topics()
    without = response_frame(answer)
    assert concealed(answer, CONSUMER_GROUP_HEARTBEAT, version, own) == without
    module = __import__(cls.__module__, fromlist=["x"])
    mine = module.TopicPartitions(topic_id=OWN_ID, partitions=(0, 5))
    at = data.draw(st.integers(0, len(partitions)))
    assigned = replace(answer.assignment, topic_partitions=(*partitions[:at], mine, *partitions[at:]))
    assert concealed(replace(answer, assignment=assigned), CONSUMER_GROUP_HEARTBEAT, version, own) == without


@settings(max_examples=30)
@given(data=st.data())
def test_no_cut_of_an_answer_does_more_than_end_its_connection(data: st.DataObject) -> None:
    answer = data.draw(entities(entity_class(METADATA, 12), 2))
    mine = replace(data.draw(topic_entries(METADATA, 12)), name=OWN)
    frame = response_frame(replace(answer, topics=(mine,)))
    for end in range(len(frame)):
        try:
            conceal(METADATA, 12, frame, 0, end, gateway_topics(), was_disguised=False)
        except MalformedFrame:
            continue


def metadata_topics(version: int, names: list[str], ids: list[UUID]) -> tuple[Any, ...]:
    module = __import__(entity_class(METADATA, version, EntityType.request).__module__, fromlist=["x"])
    topic = module.MetadataRequestTopic
    by_name = [topic(**({"topic_id": None} if version >= 10 else {}), name=name) for name in names]
    return (*by_name, *(topic(topic_id=topic_id, name=None) for topic_id in ids))


@pytest.mark.parametrize("version", range(14))
def test_a_question_is_disguised_and_nothing_else_in_it(version: int) -> None:
    cls = entity_class(METADATA, version, EntityType.request)
    flags = {
        name: True
        for name, since in (("allow_auto_topic_creation", 4), ("include_topic_authorized_operations", 8))
        if version >= since
    }
    if 8 <= version <= 10:
        flags["include_cluster_authorized_operations"] = True
    ids, flipped = ([OWN_ID], [UUID(int=OWN_ID.int ^ (2**128 - 1))]) if version >= 12 else ([], [])
    asked = metadata_topics(version, ["a" + OWN, OWN, OWN + "b"], ids)
    sent = metadata_topics(version, ["a" + OWN, "!" + OWN[1:], OWN + "b"], flipped)
    frame = request_frame(cls(topics=asked, **flags), client_id=OWN)
    instead = disguise(b"xx" + frame + b"y", 2, 2 + len(frame), gateway_topics())
    assert instead is not None
    assert unframed(instead) == request_frame(cls(topics=sent, **flags), client_id=OWN)
    others = request_frame(cls(topics=asked[:1], **flags), client_id=OWN)
    assert disguise(others, 0, len(others), gateway_topics()) is None


@pytest.mark.parametrize("version", range(1, 14))
def test_a_question_for_all_topics_stays(version: int) -> None:
    if version in (8, 9, 10):
        more: dict[str, bool] = {"include_cluster_authorized_operations": False}
    else:
        more = {}
    if version >= 4:
        more["allow_auto_topic_creation"] = True
    if version >= 8:
        more["include_topic_authorized_operations"] = False
    frame = request_frame(entity_class(METADATA, version, EntityType.request)(topics=None, **more))
    assert disguise(frame, 0, len(frame), gateway_topics()) is None


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
    assert own.is_held(buf, 1, 1 + len(held), flexible=flexible) is is_held
    assert any(needle in held for needle in own.needles) or not is_held


def test_ids_are_kept_up_to_a_bound_and_the_set_of_produced_topics_is_one() -> None:
    own = OwnTopicSet([OWN])
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
    assert own.is_held(often, 0, len(often), flexible=True)
    assert not own.is_held(often, 0, 900 * (3 + len(OWN)), flexible=True)
