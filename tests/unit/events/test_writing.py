"""What is written is JSON, begins as promised, and comes back as the same event."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given

from pidgate.events.definitions import (
    EVENT_TYPES,
    SCHEMA_VERSION,
    ConnectionEvent,
    DecisionEvent,
    Event,
    LifecycleEvent,
)
from pidgate.events.reading import from_json
from pidgate.events.writing import key_of, prefix_of, to_json
from pidgate.quota.decisions import Reason
from tests.unit.events.made_up import a_decision, any_event


@given(any_event)
def test_every_event_comes_back_as_it_was(event: Event) -> None:
    assert from_json(to_json(event)) == event


@given(any_event)
def test_what_is_written_is_the_fields_in_the_order_of_the_definition(event: Event) -> None:
    value = to_json(event)
    expected = {"schema_version": SCHEMA_VERSION, "type": event.type} | asdict(event)
    assert list(json.loads(value).items()) == list(expected.items())
    assert value.isascii()
    assert b"\n" not in value


def test_the_prefix_is_the_one_that_is_documented() -> None:
    assert prefix_of(DecisionEvent) == b'{"schema_version":1,"type":"decision",'


def test_the_key_is_the_user_or_else_the_gateway() -> None:
    assert key_of(a_decision()) == "etl"
    assert key_of(a_decision(user="")) == "gw-1"


def test_all_reasons_of_the_quota_are_words_of_the_event() -> None:
    for reason in Reason:
        assert from_json(to_json(a_decision(reason=reason))) == a_decision(reason=str(reason))


@pytest.mark.parametrize(
    "wrong",
    [
        {"seq": None},
        {"seq": "1"},
        {"seq": 1.5},
        {"user": None},
        {"user": 3},
        {"tokens_before": "many"},
        {"transactional_id_hash": 3},
        {"applied_offsets": object()},
    ],
)
def test_what_would_not_be_read_is_not_written(wrong: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        to_json(a_decision(**wrong))


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_no_number_that_json_does_not_know_is_written(seconds: float) -> None:
    connection = ConnectionEvent(
        cluster="",
        gateway_id="gw-1",
        incarnation="a",
        seq=1,
        wall_time_ms=0,
        decision_time_ms=0,
        phase="close",
        node_id=None,
        seconds=seconds,
    )
    with pytest.raises(ValueError):
        to_json(connection)


def test_events_of_all_types_are_different_classes_with_their_word() -> None:
    assert len({kind.type for kind in EVENT_TYPES.values()}) == len(EVENT_TYPES) == 10
    assert EVENT_TYPES["lifecycle"] is LifecycleEvent
