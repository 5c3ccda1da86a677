"""Client quotas: what is read and written is what two other codecs write and read, and filters are Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from pidgate.protocol.client_quotas import (
    MAX_ANSWER_BYTES,
    GatewayFilter,
    Outcome,
    UserFilter,
    adding_user_values,
    alter_answer,
    alter_request,
    describe_refused,
    own_request,
    read_alter,
    read_alter_answer,
    read_described,
    read_filter,
)
from pidgate.protocol.errors import FrameTooLarge, KafkaProtocolError, UnsupportedVersion
from pidgate.protocol.headers import peek_request
from tests.support import raw
from tests.support.bounds import examples
from tests.support.client_quotas import ALTER, ANY, DEFAULT, DESCRIBE, EXACT, KEY, alter, describe
from tests.support.frames import (
    entities,
    entity_class,
    read_response,
    request_frame,
    response_frame,
    unframed,
)

VERSIONS = (0, 1)

versions = pytest.mark.parametrize("version", VERSIONS)


@versions
@settings(max_examples=examples(60))
@given(data=st.data())
def test_what_is_kept_of_a_request_comes_out_as_it_came(version: int, data: st.DataObject) -> None:
    request = data.draw(entities(entity_class(ALTER, version, EntityType.request)))
    frame = request_frame(request, correlation_id=12, client_id=data.draw(st.none() | st.text(max_size=5)))
    padded = b"before" + frame + b"behind"
    read = read_alter(padded, peek_request(padded, 6, 6 + len(frame)))
    everything = [(entry, entry.operations) for entry in read.entries]
    assert unframed(alter_request(read, everything, validate_only=read.validate_only)) == frame
    kept = data.draw(st.sets(st.integers(0, 5)))
    cut = replace(
        request,
        entries=tuple(
            replace(entry, ops=entry.ops[:1]) for n, entry in enumerate(request.entries) if n in kept
        ),
        validate_only=True,
    )
    parts = [(entry, entry.operations[:1]) for n, entry in enumerate(read.entries) if n in kept]
    assert unframed(alter_request(read, parts, validate_only=True)) == _with_head_of(frame, cut)
    for entry, original in zip(read.entries, request.entries, strict=True):
        assert dict(entry.entity) == {part.entity_type: part.entity_name for part in original.entity}
        assert entry.components == len(original.entity)
        assert [operation[:3] for operation in entry.operations] == [
            (op.key, op.value, op.remove) for op in original.ops
        ]


def _with_head_of(frame: bytes, request: Any) -> bytes:
    read = read_alter(frame, peek_request(frame, 0, len(frame)))
    own = request_frame(request)
    return read.head + own[len(read_alter(own, peek_request(own, 0, len(own))).head) :]


@versions
@settings(max_examples=examples(60))
@given(data=st.data())
def test_answers_are_read_as_the_codec_wrote_them(version: int, data: st.DataObject) -> None:
    answer = data.draw(entities(entity_class(ALTER, version)))
    frame = response_frame(answer)
    read = read_alter_answer(b"x" + frame, 1, 1 + len(frame), version)
    assert read.throttle_time_ms == answer.throttle_time // timedelta(milliseconds=1)
    assert {frozenset(entity): outcome for entity, outcome in read.outcomes.items()} == {
        frozenset({part.entity_type: part.entity_name for part in entry.entity}.items()): Outcome(
            entry.error_code.value, entry.error_message
        )
        for entry in answer.entries
    }


@versions
@settings(max_examples=examples(60))
@given(data=st.data())
def test_answers_are_written_as_the_codec_reads_them(version: int, data: st.DataObject) -> None:
    request = data.draw(entities(entity_class(ALTER, version, EntityType.request)))
    frame = request_frame(request, correlation_id=-3)
    read = read_alter(frame, peek_request(frame, 0, len(frame)))
    outcomes = [
        (
            entry,
            Outcome(data.draw(st.sampled_from(ErrorCode)).value, data.draw(st.none() | st.text(max_size=9))),
        )
        for entry in read.entries
    ]
    written = unframed(alter_answer(read, 1234, outcomes))
    assert written[:4] == (-3).to_bytes(4, "big", signed=True)
    found = read_response(entity_class(ALTER, version), written)
    assert found.throttle_time.total_seconds() == 1.234
    assert [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            entry.error_code,
            entry.error_message,
        )
        for entry in found.entries
    ] == [
        (
            [(part.entity_type, part.entity_name) for part in asked.entity],
            ErrorCode(outcome.error_code),
            outcome.error_message,
        )
        for asked, (_, outcome) in zip(request.entries, outcomes, strict=True)
    ]


NAMES = st.sampled_from(("alice", "bob", "ÜÖ", "x" * 200, "")) | st.none()
ENTITIES = st.sampled_from(
    (
        ("user",),
        ("user",),
        ("client-id",),
        ("user", "client-id"),
        ("client-id", "user"),
        ("ip",),
        (),
    )
)


@versions
@settings(max_examples=examples(150))
@given(data=st.data())
def test_values_are_added_to_the_entity_they_belong_to(version: int, data: st.DataObject) -> None:
    cls = entity_class(DESCRIBE, version)
    module = import_module(cls.__module__)
    shown = data.draw(
        st.dictionaries(
            ENTITIES.flatmap(lambda types: st.tuples(*(st.tuples(st.just(kind), NAMES) for kind in types))),
            st.dictionaries(
                st.sampled_from(("producer_byte_rate", "k" * 150)), st.floats(0, 1e9), max_size=2
            ),
            max_size=6,
        )
    )
    answer = replace(
        data.draw(entities(cls)),
        error_code=ErrorCode.none,
        entries=tuple(
            module.EntryData(
                entity=tuple(module.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
                values=tuple(module.ValueData(key=key, value=value) for key, value in values.items()),
            )
            for entity, values in shown.items()
        ),
    )
    rates = st.dictionaries(st.sampled_from([KEY, "transactional_ids_rate"]), st.floats(0, 1e6), min_size=1)
    values: dict[str | None, dict[str, float]] = data.draw(st.dictionaries(NAMES, rates))
    frame = response_frame(answer)
    added = adding_user_values(b"xx" + frame, 2, 2 + len(frame), version, values).finish()
    assert added is not None
    found = read_response(cls, unframed(added))
    expected = {entity: dict(keys) for entity, keys in shown.items()}
    for user, added_values in values.items():
        expected.setdefault((("user", user),), {}).update(added_values)
    assert {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in found.entries
    } == expected
    assert len(found.entries) == len(expected)
    assert replace(found, entries=answer.entries) == answer


# Filters. The model is ClientQuotasImage.describe, over entities and not over indices.

EVERY = [
    {**user, **client, **ip}
    for user in ({}, {"user": None}, {"user": "alice"}, {"user": "bob"})
    for client in ({}, {"client-id": None}, {"client-id": "alice"})
    for ip in ({}, {"ip": "127.0.0.1"})
    if user or client or ip
]
COMPONENTS = st.lists(
    st.tuples(
        st.sampled_from(("user", "user", "client-id", "ip", "group", "")),
        st.sampled_from((EXACT, DEFAULT, ANY, 3)),
        st.none() | st.sampled_from(("alice", "bob", "")),
    ),
    max_size=3,
)


class Refused(Exception):
    pass


def kafka_shows(
    components: list[tuple[str, int, str | None]], strict: bool, all_entities: list[dict[str, str | None]]
) -> list[dict[str, str | None]]:
    exact: dict[str, str | None] = {}
    kinds: set[str] = set()
    for kind, match_type, match in components:
        known = kind in ("user", "client-id", "ip") and kind not in exact and kind not in kinds
        given_rightly = (match is not None) == (match_type == EXACT)
        if not known or match_type not in (EXACT, DEFAULT, ANY) or not given_rightly:
            raise Refused
        if match_type == ANY:
            kinds.add(kind)
        else:
            exact[kind] = match
    if "ip" in exact.keys() | kinds and (
        "user" in exact.keys() | kinds or "client-id" in exact.keys() | kinds
    ):
        raise Refused
    if not exact and not kinds and strict:
        return []
    return [
        entity
        for entity in all_entities
        if exact.items() <= entity.items()
        and kinds <= entity.keys()
        and (not strict or len(entity) == len(exact) + len(kinds))
    ]


@versions
@settings(max_examples=examples(400))
@given(components=COMPONENTS, strict=st.booleans())
def test_filters_match_the_users_that_they_match_in_kafka(
    version: int, components: list[tuple[str, int, str | None]], strict: bool
) -> None:
    frame = describe(components, version=version, strict=strict)
    found = read_filter(frame, peek_request(frame, 4, len(frame)))
    try:
        expected = kafka_shows(components, strict, EVERY)
    except Refused:
        assert found is None
        return
    users = [entity["user"] for entity in expected if entity.keys() == {"user"}]
    everyone: list[str | None] = [None, "alice", "bob"]
    assert [user for user in everyone if isinstance(found, UserFilter) and found.matches(user)] == users


@versions
@pytest.mark.parametrize(
    ("components", "is_own"),
    [
        ([("pidgate", EXACT, "my")], True),
        ([("pidgate", EXACT, "alice")], False),
        ([("pidgate", ANY, None)], False),
        ([("pidgate", EXACT, "my"), ("user", EXACT, "alice")], False),
        ([("user", EXACT, "alice"), ("pidgate", EXACT, "my")], False),
    ],
)
def test_a_question_to_the_gateway_is_about_the_connections_own_user_alone(
    version: int, components: list[tuple[str, int, str | None]], is_own: bool
) -> None:
    frame = describe(components, version=version)
    assert read_filter(frame, peek_request(frame, 4, len(frame))) == GatewayFilter(is_own)


def test_the_commands_question_and_its_answer_are_understood() -> None:
    frame = own_request(7, "pidgate")
    head = peek_request(frame, 4, len(frame))
    assert read_filter(frame, head) == GatewayFilter(True)
    answer = describe_refused((7).to_bytes(4, "big"), 0, head.api_version, 0, "{}")
    assert read_described(answer[4:]) == (0, "{}")
    assert raw.decoded(DESCRIBE, head.api_version, answer[4:])["entries"] == []


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, UserFilter(None)),
        ([], True, None),
        ([("user", ANY, None)], True, UserFilter(None)),
        ([("user", DEFAULT, None)], True, UserFilter(frozenset((None,)))),
        ([("user", EXACT, "alice")], False, UserFilter(frozenset(("alice",)))),
        ([("user", EXACT, None)], False, None),
        ([("user", ANY, "alice")], False, None),
        ([("user", EXACT, "alice"), ("client-id", ANY, None)], False, None),
        ([("client-id", ANY, None)], False, None),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], False, None),
    ],
)
def test_filters(
    components: list[tuple[str, int, str | None]], strict: bool, expected: UserFilter | None
) -> None:
    for version in VERSIONS:
        frame = describe(components, version=version, strict=strict)
        assert read_filter(frame, peek_request(frame, 4, len(frame))) == expected


# What peers do wrong


def _read(what: str, frame: bytes, version: int) -> Any:
    if what == "alter":
        return read_alter(frame, peek_request(frame, 0, len(frame)))
    if what == "describe":
        return read_filter(frame, peek_request(frame, 0, len(frame)))
    if what == "altered":
        return read_alter_answer(frame, 0, len(frame), version)
    return adding_user_values(frame, 0, len(frame), version, {"alice": {KEY: 1.0}}).finish()


def _frame(what: str, version: int) -> bytes:
    operations: Mapping[str, float | None] = {KEY: 5.0, "producer_byte_rate": None}
    if what == "alter":
        return unframed(alter([({"user": "alice"}, operations), ({"ip": None}, {})], version=version))
    if what == "describe":
        return unframed(describe([("user", EXACT, "alice"), ("ip", ANY, None)], version=version))
    cls = entity_class(ALTER if what == "altered" else DESCRIBE, version)
    module = import_module(cls.__module__)
    entity = (module.EntityData(entity_type="user", entity_name="alice"),)
    if what == "altered":
        entry = module.EntryData(error_code=ErrorCode.none, error_message="oh", entity=entity)
        return response_frame(cls(throttle_time=timedelta(0), entries=(entry,)))
    entry = module.EntryData(entity=entity, values=(module.ValueData(key="k", value=1.0),))
    return response_frame(
        cls(throttle_time=timedelta(0), error_code=ErrorCode.none, error_message=None, entries=(entry,))
    )


@versions
@pytest.mark.parametrize("what", ["alter", "describe", "altered", "described"])
def test_a_frame_that_was_cut_or_has_more_is_refused(what: str, version: int) -> None:
    frame = _frame(what, version)
    _read(what, frame, version)
    for length in range(len(frame)):
        with pytest.raises(KafkaProtocolError):
            _read(what, frame[:length], version)
    with pytest.raises(KafkaProtocolError):
        _read(what, frame + b"\x00", version)


def test_other_requests_are_not_read() -> None:
    frame = unframed(alter([], version=1))
    with pytest.raises(UnsupportedVersion):
        read_filter(frame, peek_request(frame, 0, len(frame)))
    frame = unframed(describe())
    with pytest.raises(UnsupportedVersion):
        read_alter(frame, peek_request(frame, 0, len(frame)))


def test_what_is_too_long_is_not_read() -> None:
    frame = bytes(MAX_ANSWER_BYTES + 1)
    with pytest.raises(FrameTooLarge):
        read_alter_answer(frame, 0, len(frame), 1)
