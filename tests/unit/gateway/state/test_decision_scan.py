"""Decisions read by their layout: the same as the careful reader says, for whatever stands in them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.events.definitions import SCHEMA_VERSION, DecisionEvent, LifecycleEvent
from pidgate.events.reading import EventUnreadable, fields_of
from pidgate.events.writing import to_json
from pidgate.gateway.state.decision_scan import scan, type_of
from pidgate.quota.decisions import Reason
from tests.unit.events.recorded import recorded


def decision(**changes: Any) -> DecisionEvent:
    given: dict[str, Any] = dict(
        cluster="c", gateway_id="gw", incarnation="run7", seq=7, wall_time_ms=1_763_000_000_000,
        decision_time_ms=5, connection_id=3, listener="public", user="alice", client_id="app", address="10.0.0.1",
        producer_id=4711, epoch=0, transactional=False, topic="orders", partition=2, base_sequence=0,
        request_partitions=1, decision="admit", reason="first_seen", tokens_before=10, tokens_after=-5,
        token_units=3_600_000_000, quota_version=1, applied_offsets=[1, 2, 3],
    )  # fmt: skip
    return DecisionEvent(**(given | changes))


def as_read_with_care(value: bytes) -> tuple[Any, ...]:
    found = fields_of(value)
    return (
        found["incarnation"].encode(),
        found["seq"],
        found["user"],
        found["client_id"],
        found["producer_id"],
        found["transactional"],
        found["decision"] == "admit",
        Reason(found["reason"]),
        found["tokens_after"],
        found["token_units"],
    )


@given(
    user=st.text(max_size=12),
    client_id=st.text(max_size=40) | st.sampled_from(['","user":"mallory', '\\","producer_id":1,"x":"']),
    topic=st.text(max_size=12),
    hashed=st.none() | st.text(max_size=8),
    tokens=st.none() | st.integers(-(2**60), 2**60),
    units=st.none() | st.integers(1, 2**50),
    refused=st.booleans(),
    reason=st.sampled_from(list(Reason)),
)
def test_whatever_clients_call_themselves_the_fields_are_those_that_were_written(
    user: str,
    client_id: str,
    topic: str,
    hashed: str | None,
    tokens: int | None,
    units: int | None,
    refused: bool,
    reason: Reason,
) -> None:
    value = to_json(
        decision(
            user=user,
            client_id=client_id,
            topic=topic,
            transactional_id_hash=hashed,
            tokens_after=tokens,
            token_units=units,
            decision="refuse" if refused else "admit",
            reason=reason.value,
        )
    )
    assert scan(value) == as_read_with_care(value)


def test_every_decision_of_a_recorded_history_is_read_alike_and_most_of_them_fast() -> None:
    values = [value for value in recorded() if type_of(value) == "decision"]
    assert len(values) > 20
    assert [scan(value) for value in values] == [as_read_with_care(value) for value in values]


def test_other_types_are_told_by_their_first_bytes() -> None:
    value = to_json(
        LifecycleEvent(
            cluster="", gateway_id="gw", incarnation="r", seq=1, wall_time_ms=1, decision_time_ms=1,
            phase="alive", mode="observe", window_ms=1, remember_ms=1,
        )
    )  # fmt: skip
    assert scan(value) is None
    assert type_of(value) == "lifecycle"
    # Cut short, and never noticed: nobody looks further.
    assert scan(value[:60]) is None


def test_a_newer_version_with_more_fields_and_reasons_is_read() -> None:
    value = to_json(decision()).replace(
        b'"schema_version":%d' % SCHEMA_VERSION, b'"schema_version":%d' % (SCHEMA_VERSION + 1)
    )
    value = value.replace(b'"reason":"first_seen"', b'"reason":"by_lot","lot":[1,{"a":2}]')
    found = scan(value)
    assert found is not None
    # Let in for a reason unknown here: known from now on, and nothing charged.
    assert (found[2], *found[4:8]) == ("alice", 4711, False, True, Reason.REFRESH)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"schema_version":1}',
        b'{"schema_version":1,"type":7}',
        b'{"schema_version":1,"type":"decision",',
        b'{"schema_version":1,"type":"decision"}',
        b'{"schema_version":0,"type":"decision"}',
        to_json(decision()).replace(b'"producer_id":4711', b'"producer_id":"4711x"'),
        to_json(decision()).replace(b'"seq":7', b'"seq":'),
        to_json(decision()).replace(b'"user":"alice"', b'"user":null'),
        to_json(decision()).replace(b'"tokens_after":-5', b'"tokens_after":many'),
    ],
)
def test_what_cannot_be_read_says_so(value: bytes) -> None:
    with pytest.raises(EventUnreadable, match=r"."):
        scan(value)
