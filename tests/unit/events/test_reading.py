"""What can be read is read, and what cannot says why."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.events.definitions import SCHEMA_VERSION, ConfigEvent, Event, QuotaInForce
from pidgate.events.reading import EventUnreadable, UnknownEventType, from_json
from pidgate.events.writing import to_json
from tests.unit.events.made_up import a_decision, any_event, events_of

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def changed(event: Event, **changes: Any) -> bytes:
    return json.dumps(json.loads(to_json(event)) | changes).encode()


def without(event: Event, *names: str) -> bytes:
    left = {key: value for key, value in json.loads(to_json(event)).items() if key not in names}
    return json.dumps(left).encode()


@given(any_event, st.dictionaries(st.just("x_y"), json_values, min_size=1))
def test_fields_of_a_newer_version_are_ignored(event: Event, more: dict[str, Any]) -> None:
    assert from_json(changed(event, schema_version=SCHEMA_VERSION + 5, **more)) == event


@given(events_of(ConfigEvent))
def test_fields_that_are_not_known_are_ignored_in_records_too(event: Event) -> None:
    assert isinstance(event, ConfigEvent)
    event.quotas.append(QuotaInForce(user="etl", rate_milli=100_000))
    fields = json.loads(to_json(event))
    for quota in fields["quotas"]:
        quota["expires_wall_ms"] = 5
    assert from_json(json.dumps(fields).encode()) == event


@given(any_event, st.data())
def test_an_event_with_one_other_value_is_read_or_unreadable(event: Event, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(json.loads(to_json(event)))))
    try:
        read = from_json(changed(event, **{name: data.draw(json_values)}))
    except EventUnreadable:
        return
    # Whatever was accepted can be written again.
    assert from_json(to_json(read)) == read


@given(any_event, st.data())
def test_an_event_that_was_cut_off_is_unreadable(event: Event, data: st.DataObject) -> None:
    value = to_json(event)
    with pytest.raises(EventUnreadable):
        from_json(value[: data.draw(st.integers(0, len(value) - 1))])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object but a list"),
        (to_json(a_decision(client_id="\ud83d")), "surrogates not allowed"),
        (b"{}", "schema_version is None"),
        (b'{"schema_version":"1"}', "schema_version is '1'"),
        (b'{"schema_version":true}', "schema_version is True"),
        (b'{"schema_version":18446744073709551616}', "schema_version is 18446744073709551616"),
        (f'{{"schema_version":{SCHEMA_VERSION}}}'.encode(), "type is None"),
        (changed(a_decision(), seq="7"), "decision.seq must be a whole number of 64 bits, not '7'"),
        (changed(a_decision(), seq=1 << 63), "decision.seq must be a whole number of 64 bits, not 92233720"),
        (changed(a_decision(), seq=True), "decision.seq must be a whole number of 64 bits, not True"),
        (changed(a_decision(), user=None), "decision.user must be text, not None"),
        (changed(a_decision(), transactional=0), "decision.transactional must be true or false, not 0"),
        (changed(a_decision(), applied_offsets=3), "decision.applied_offsets must be a list, not 3"),
        (changed(a_decision(), applied_offsets=[0, None]), "decision.applied_offsets[] must be a whole"),
        (changed(a_decision(), reason="mood"), "decision.reason must be one of blocked, deadline"),
        (changed(a_decision(), user=["x" * 1_000]), "xxx..."),
        (without(a_decision(), "seq"), "decision.seq is missing"),
        (without(a_decision(), "producer_id", "epoch"), "decision.epoch is missing"),
        (to_json(a_decision()).replace(b'"seq":7', b'"seq":NaN'), "NaN is not a number of JSON"),
    ],
)
def test_the_error_says_why(value: bytes, says: str) -> None:
    with pytest.raises(EventUnreadable) as caught:
        from_json(value)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 250


@given(events_of(ConfigEvent))
def test_a_number_and_a_record_within_an_event_are_checked_too(event: Event) -> None:
    with pytest.raises(EventUnreadable, match=r"config\.burst must be a finite number, not '1'"):
        from_json(changed(event, burst="1"))
    with pytest.raises(EventUnreadable, match=r"config\.quotas\[\] must be an object, not 'alice'"):
        from_json(changed(event, quotas=["alice"]))


def test_a_type_of_a_newer_version_has_its_own_error() -> None:
    with pytest.raises(UnknownEventType, match="'forecast' is not known to schema_version"):
        from_json(changed(a_decision(), type="forecast", schema_version=SCHEMA_VERSION + 1))


def test_a_word_of_a_newer_version_is_handed_on() -> None:
    read = from_json(changed(a_decision(), reason="mood", schema_version=SCHEMA_VERSION + 1))
    assert read == a_decision(reason="mood")
