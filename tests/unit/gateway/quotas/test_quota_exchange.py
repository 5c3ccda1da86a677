"""An AlterClientQuotas with operations of ours: what the broker is asked, what is changed, what the client hears."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.gateway.quotas.administration import Kept
from pidgate.gateway.quotas.kafka_api import (
    CHANGES_AT_ONCE,
    QuotaExchange,
    described,
)
from pidgate.protocol import client_quotas, codec
from pidgate.protocol.client_quotas import read_filter
from pidgate.protocol.errors import FrameTooLarge, MalformedFrame
from pidgate.protocol.headers import peek_request
from pidgate.protocol.work import MOST_ELEMENTS, MOST_SEARCHED_BYTES, Walk
from pidgate.quota.changes import Action, Change, Setting, Target
from pidgate.quota.entities import unidentified
from pidgate.quota.settings import Quotas, UserQuota
from tests.support import raw
from tests.support.bounds import examples
from tests.support.client_quotas import (
    ALTER,
    ANY,
    DESCRIBE,
    EXACT,
    KEY,
    EntityWords,
    Operations,
    alter,
    altered,
    describe,
    key_of,
    operations_in,
    outcomes_in,
    shown_in,
)
from tests.support.frames import unframed
from tests.support.rules import rule

INVALID, POLICY, NOT_AUTHORISED, TIMED_OUT, UNKNOWN_ERROR = 42, 44, 31, 7, -1
ALICE, BOB, CAROL = {"user": "alice"}, {"user": "bob"}, {"user": "carol"}
DEFAULT_USER = {"user": None}
CLIENT = {"client-id": "app"}
OF_NAMES = "transactional_ids_rate"

Entries = Sequence[tuple[EntityWords, Operations]]
Verdict = Callable[[frozenset[tuple[str, str | None]]], int]

versions = pytest.mark.parametrize("version", [0, 1])


def begun(entries: Entries, *, keeps_bytes: bool = False, **more: Any) -> QuotaExchange:
    frame = alter(entries, **more)
    head = peek_request(frame, 4, len(frame))
    exchange = QuotaExchange.begin(frame, head, "root", keeps_bytes=keeps_bytes)
    assert exchange is not None
    return exchange


class Played:
    """A broker, an administration and the owner of an exchange, who write down what they were asked."""

    def __init__(
        self,
        validated: dict[str, int] | None = None,
        forwarded: dict[str, int] | None = None,
        not_allowed: dict[str | None, str] | None = None,
        *,
        throttles_ms: Sequence[int] = (0, 0),
    ) -> None:
        self._codes = (validated or {}, forwarded or {})
        self._not_allowed = not_allowed or {}
        self._throttles_ms = throttles_ms
        self.log: list[str] = []
        self.asked: list[tuple[bool, dict[Any, dict[str, float | None]]]] = []
        self.checked: list[Change] = []
        self.made: list[Change] = []

    def to_the_end(self, exchange: QuotaExchange, version: int = 1) -> list[tuple[Any, int]]:
        while not exchange.is_over:
            frame = exchange.next_frame()
            if frame is not None:
                answer = self._answer(frame, version)
                exchange.answered(answer, 4, len(answer))
                continue
            assert exchange.changes
            self.log.append("check" if exchange.only_check else "change")
            (self.checked if exchange.only_check else self.made).extend(exchange.changes)
            problems = [self._not_allowed.get(change.target.user) for change in exchange.changes]
            exchange.changed(
                problems if exchange.only_check else [None] * len(exchange.changes),
                None if exchange.only_check else Kept.MEMORY,
            )
        assert exchange.next_frame() is None
        assert exchange.changes == []
        return outcomes_in(unframed(exchange.answer()), version=version)

    def _answer(self, frame: bytes, version: int) -> bytes:
        head = peek_request(frame, 4, len(frame))
        assert (head.api_key, head.api_version, head.correlation_id) == (ALTER, version, raw.CORRELATION_ID)
        assert head.client_id == "raw"
        assert KEY.encode() not in frame
        validate_only = codec.decode_request(frame, peek_request(frame, 4, len(frame))).validate_only
        asked = operations_in(frame)
        self.log.append("validate" if validate_only else "forward")
        self.asked.append((validate_only, dict(asked)))
        codes = self._codes[0 if validate_only else 1]
        outcomes = [
            (list(entity), codes.get(str(next(iter(entity))[1]), 0), None) for entity, _ in reversed(asked)
        ]
        throttle_ms = self._throttles_ms[0 if validate_only else 1]
        return altered(outcomes, version=version, throttle_time_ms=throttle_ms)


def rate(value: float | None, **others: float | None) -> dict[str, float | None]:
    return {KEY: value, **others}


@versions
def test_without_ours_the_frame_is_not_for_us(version: int) -> None:
    for entries in ([], [(ALICE, {"producer_byte_rate": 5.0})], [({"user": KEY}, {"x": None})]):
        frame = alter(entries, version=version)
        assert QuotaExchange.begin(frame, peek_request(frame, 4, len(frame)), "root") is None
    frame = alter([(ALICE, {"x": 1.0})], version=version, client_id=KEY)
    for buf in (frame, bytearray(frame), memoryview(frame)):
        assert QuotaExchange.begin(buf, peek_request(buf, 4, len(frame)), "root") is None


@versions
def test_byte_rates_that_the_gateway_keeps_are_removed_at_the_broker(version: int) -> None:
    """One keeper: what a broker kept from before would hold beside it. Those of client ids are the broker's."""
    both: EntityWords = {"user": "alice", "client-id": "app"}
    entries: Entries = [
        (ALICE, {"producer_byte_rate": 5.0, "consumer_byte_rate": None, "x": 1.0}),
        (DEFAULT_USER, {"producer_byte_rate": 0.5}),
        (CLIENT, {"producer_byte_rate": 7.0}),
        (both, {"producer_byte_rate": 8.0}),
    ]
    exchange = begun(entries, version=version, keeps_bytes=True)
    played = Played()
    played.to_the_end(exchange, version)
    assert played.asked[1] == (
        False,
        {
            key_of(ALICE): {"producer_byte_rate": None, "consumer_byte_rate": None, "x": 1.0},
            key_of(DEFAULT_USER): {"producer_byte_rate": None},
            key_of(CLIENT): {"producer_byte_rate": 7.0},
            key_of(both): {"producer_byte_rate": 8.0},
        },
    )
    assert [(one.target.setting, one.target.user, one.value) for one in played.made] == [
        (Setting.PRODUCER_BYTE_RATE, "alice", 5_000),
        (Setting.CONSUMER_BYTE_RATE, "alice", None),
        (Setting.PRODUCER_BYTE_RATE, None, 500),
    ]


def test_what_has_no_ours_in_it_is_not_even_read() -> None:
    nothing = b"\x00\x31\x00\x01" + b"\x00" * 30
    assert QuotaExchange.begin(nothing, peek_request(nothing, 0, len(nothing)), "root") is None
    mentioned = nothing + KEY.encode()
    with pytest.raises(MalformedFrame):
        QuotaExchange.begin(mentioned, peek_request(mentioned, 0, len(mentioned)), "root")


@versions
def test_other_keys_go_to_the_broker_and_ours_are_made_last(version: int) -> None:
    exchange = begun(
        [
            (ALICE, rate(100.0, producer_byte_rate=5.0, consumer_byte_rate=None)),
            (DEFAULT_USER, rate(0.0004)),
            (BOB, rate(None)),
            (CLIENT, {"producer_byte_rate": 7.0}),
        ],
        version=version,
    )
    played = Played(throttles_ms=(30, 20))
    outcomes = played.to_the_end(exchange, version)
    assert outcomes == [(key_of(entity), 0) for entity in (ALICE, DEFAULT_USER, BOB, CLIENT)]
    assert played.log == ["validate", "check", "forward", "change"]
    others = {key_of(ALICE): {"producer_byte_rate": 5.0, "consumer_byte_rate": None}}
    client = {key_of(CLIENT): {"producer_byte_rate": 7.0}}
    assert played.asked == [
        (True, {**others, key_of(DEFAULT_USER): {}, key_of(BOB): {}, **client}),
        (False, {**others, **client}),
    ]
    said = {"set_by": "User:root"}
    assert played.made == [
        Change(target=Target(Setting.PRODUCER_IDS_RATE, "alice"), action=Action.SET, value=100_000, **said),  # type: ignore[arg-type]
        Change(target=Target(Setting.PRODUCER_IDS_RATE, None), action=Action.SET, value=1, **said),  # type: ignore[arg-type]
        Change(target=Target(Setting.PRODUCER_IDS_RATE, "bob"), action=Action.REMOVE, **said),  # type: ignore[arg-type]
    ]
    assert played.checked == played.made
    assert exchange.kept is Kept.MEMORY
    answer = unframed(exchange.answer())
    assert raw.decoded(ALTER, version, answer)["throttle_time_ms"] == 30
    assert answer[:4] == raw.CORRELATION_ID.to_bytes(4, "big")


def test_both_keys_of_a_user_are_set_together_or_not_at_all() -> None:
    entries: Entries = [
        (ALICE, {KEY: 5.0, OF_NAMES: 2.0, "producer_byte_rate": 1.0}),
        (BOB, {KEY: 5.0, OF_NAMES: 0.0}),
        (DEFAULT_USER, {OF_NAMES: None}),
    ]
    played = Played()
    assert played.to_the_end(begun(entries)) == [
        (key_of(ALICE), 0),
        (key_of(BOB), INVALID),
        (key_of(DEFAULT_USER), 0),
    ]
    assert [(change.target.setting, change.target.user, change.value) for change in played.made] == [
        (KEY, "alice", 5_000),
        (OF_NAMES, "alice", 2_000),
        (OF_NAMES, None, None),
    ]


@versions
def test_with_ours_alone_nothing_is_forwarded_for_real(version: int) -> None:
    played = Played()
    assert played.to_the_end(begun([(ALICE, rate(3.0))], version=version), version) == [(key_of(ALICE), 0)]
    assert played.log == ["validate", "check", "change"]


@versions
def test_the_clients_validate_only_changes_nothing(version: int) -> None:
    played = Played(not_allowed={"bob": "the file says so"})
    entries: Entries = [(ALICE, rate(3.0, producer_byte_rate=1.0)), (BOB, rate(4.0)), (CAROL, rate(-1.0))]
    exchange = begun(entries, version=version, validate_only=True)
    assert played.to_the_end(exchange, version) == [
        (key_of(ALICE), 0),
        (key_of(BOB), POLICY),
        (key_of(CAROL), INVALID),
    ]
    assert played.log == ["validate", "check"]
    assert played.made == []


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1.1e12, 1e308],
)
def test_a_rate_is_a_finite_number_above_0(value: float) -> None:
    played = Played()
    exchange = begun([(ALICE, rate(value, producer_byte_rate=1.0)), (BOB, {"producer_byte_rate": 2.0})])
    assert played.to_the_end(exchange) == [(key_of(ALICE), INVALID), (key_of(BOB), 0)]
    assert played.asked == [
        (True, {key_of(BOB): {"producer_byte_rate": 2.0}}),
        (False, {key_of(BOB): {"producer_byte_rate": 2.0}}),
    ]
    assert played.made == []


def test_what_is_removed_needs_no_value() -> None:
    frame = raw.request(
        ALTER,
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "alice"}],
                    "ops": [{"key": KEY, "value": math.nan, "remove": True}],
                }
            ],
            "validate_only": False,
        },
    )
    exchange = QuotaExchange.begin(frame, peek_request(frame, 4, len(frame)), unidentified("GSSAPI"))
    assert exchange is not None
    played = Played()
    assert played.to_the_end(exchange) == [(key_of(ALICE), 0)]
    (change,) = played.made
    assert (change.action, change.value, change.set_by) == (Action.REMOVE, None, "(unidentified GSSAPI)")


@pytest.mark.parametrize(
    "entity",
    [
        CLIENT,
        {"client-id": None},
        {"ip": "127.0.0.1"},
        {"user": "alice", "client-id": "app"},
        {"user": None, "client-id": None},
        {"user": "alice", "ip": None},
        {"group": "alice"},
        {"User": "alice"},
        {"user": ""},
        {},
        [("user", "alice"), ("user", "alice")],
    ],
)
@pytest.mark.parametrize("value", [5.0, None])
def test_ours_are_for_users_alone(entity: EntityWords, value: float | None) -> None:
    played = Played()
    exchange = begun([(entity, rate(value, producer_byte_rate=1.0))])
    (outcome,) = raw.decoded(ALTER, 1, unframed(exchange.answer()))["entries"]
    assert outcome["error_code"] == INVALID
    assert outcome["error_message"]
    assert played.to_the_end(exchange)[0][1] == INVALID
    assert (played.asked, played.made) == ([], [])


def test_an_entity_that_is_given_twice_fails_and_is_answered_once() -> None:
    played = Played()
    both = {"user": "alice", "client-id": "app"}
    turned = {"client-id": "app", "user": "alice"}
    entries: Entries = [
        (ALICE, {"producer_byte_rate": 1.0}),
        (BOB, rate(1.0)),
        (both, {"x": 1.0}),
        (ALICE, rate(5.0)),
        (turned, {"x": 2.0}),
    ]
    assert played.to_the_end(begun(entries)) == [
        (key_of(ALICE), INVALID),
        (key_of(BOB), 0),
        (key_of(both), INVALID),
    ]
    assert played.asked == [(True, {key_of(BOB): {}})]
    assert [change.target.user for change in played.made] == ["bob"]


def test_what_the_broker_fails_is_not_applied() -> None:
    played = Played(validated={"alice": INVALID})
    entries: Entries = [(ALICE, rate(1.0, nonsense=1.0)), (BOB, rate(1.0, producer_byte_rate=1.0))]
    assert played.to_the_end(begun(entries)) == [(key_of(ALICE), INVALID), (key_of(BOB), 0)]
    assert played.asked[1:] == [(False, {key_of(BOB): {"producer_byte_rate": 1.0}})]
    assert [change.target.user for change in played.made] == ["bob"]


def test_who_may_not_do_it_changes_nothing() -> None:
    played = Played(validated={"alice": NOT_AUTHORISED, "bob": NOT_AUTHORISED})
    entries: Entries = [(ALICE, rate(1.0)), (BOB, rate(1.0, producer_byte_rate=1.0))]
    assert played.to_the_end(begun(entries)) == [
        (key_of(ALICE), NOT_AUTHORISED),
        (key_of(BOB), NOT_AUTHORISED),
    ]
    assert played.log == ["validate"]


def test_what_the_broker_fails_only_when_it_is_done_is_not_applied() -> None:
    played = Played(forwarded={"alice": UNKNOWN_ERROR})
    entries: Entries = [(ALICE, rate(1.0, producer_byte_rate=1.0)), (BOB, rate(1.0))]
    assert played.to_the_end(begun(entries)) == [(key_of(ALICE), UNKNOWN_ERROR), (key_of(BOB), 0)]
    assert [change.target.user for change in played.made] == ["bob"]


def test_what_the_broker_is_silent_about_is_not_applied() -> None:
    exchange = begun([(ALICE, rate(1.0)), (BOB, rate(1.0))])
    assert exchange.next_frame() is not None
    answer = altered([(BOB, 0, None)])
    exchange.answered(answer, 4, len(answer))
    assert [change.target.user for change in exchange.changes] == ["bob"]
    exchange.changed([None])
    exchange.changed([None], Kept.TOPIC)
    assert outcomes_in(unframed(exchange.answer())) == [(key_of(ALICE), UNKNOWN_ERROR), (key_of(BOB), 0)]


def test_what_is_not_allowed_is_not_half_done_at_the_broker() -> None:
    played = Played(not_allowed={"alice": "The file says so: change it there."})
    entries: Entries = [(ALICE, rate(1.0, producer_byte_rate=1.0)), (BOB, rate(1.0))]
    exchange = begun(entries)
    assert played.to_the_end(exchange) == [(key_of(ALICE), POLICY), (key_of(BOB), 0)]
    assert played.log == ["validate", "check", "change"]
    refused = raw.decoded(ALTER, 1, unframed(exchange.answer()))["entries"][0]
    assert refused["error_message"] == "The file says so: change it there."


@pytest.mark.parametrize("checks_before", [0, 1])
def test_when_nobody_knows_what_came_of_it_the_client_hears_that(checks_before: int) -> None:
    exchange = begun([(ALICE, rate(1.0, producer_byte_rate=1.0)), (CLIENT, {"x": 1.0})])
    exchange.next_frame()
    answer = altered([(ALICE, 0, None), (CLIENT, 0, None)])
    exchange.answered(answer, 4, len(answer))
    if checks_before:
        exchange.changed([None])
        exchange.next_frame()
        exchange.answered(answer, 4, len(answer))
    exchange.not_made("the process that holds the quotas is silent")
    if not checks_before:
        frame = exchange.next_frame()
        assert frame is not None
        assert operations_in(frame) == [(key_of(CLIENT), {"x": 1.0})]
        answer = altered([(CLIENT, 0, None)])
        exchange.answered(answer, 4, len(answer))
    assert outcomes_in(unframed(exchange.answer())) == [(key_of(ALICE), TIMED_OUT), (key_of(CLIENT), 0)]


def test_out_of_turn_is_our_own_mistake() -> None:
    exchange = begun([(ALICE, rate(1.0))])
    answer = altered([(ALICE, 0, None)])
    with pytest.raises(RuntimeError):
        exchange.answer()
    with pytest.raises(RuntimeError):
        exchange.answered(answer, 4, len(answer))
    exchange.next_frame()
    exchange.answered(answer, 4, len(answer))
    with pytest.raises(RuntimeError):
        exchange.answered(answer, 4, len(answer))
    with pytest.raises(ValueError, match="argument"):
        exchange.changed([])


def test_as_many_changes_work_as_may_be_in_one_request() -> None:
    few = [({"user": f"user-{n:05d}"}, rate(float(n + 1))) for n in range(MOST_ELEMENTS // 3)]
    frame = alter(few)
    assert len(frame) < client_quotas.MAX_REQUEST_BYTES
    exchange = QuotaExchange.begin(frame, peek_request(frame, 4, len(frame)), "root")
    assert exchange is not None
    exchange.next_frame()
    answer = altered([(entity, 0, None) for entity, _ in few])
    exchange.answered(answer, 4, len(answer))
    for _ in range(2):
        asked = []
        checking = exchange.only_check
        while exchange.changes and exchange.only_check is checking:
            assert len(exchange.changes) <= CHANGES_AT_ONCE
            asked += exchange.changes
            exchange.changed([None] * len(exchange.changes))
        assert [change.target.user for change in asked] == [entity["user"] for entity, _ in few]
    assert exchange.is_over


@rule("The gateway compares every count with a bound before building objects.", "memory")
@pytest.mark.parametrize(("users", "name"), [(MOST_ELEMENTS // 3 + 1, "x"), (10, "x" * 30_000)])
def test_more_than_that_is_not_even_read_unless_it_is_the_brokers_alone(users: int, name: str) -> None:
    entities = [{"user": f"{n:05d}{name}"} for n in range(users)]
    frame = alter([(entity, rate(1.0)) for entity in entities])
    with pytest.raises(FrameTooLarge):
        QuotaExchange.begin(frame, peek_request(frame, 4, len(frame)), "root")
    frame = alter([(entity, {"producer_byte_rate": 1.0}) for entity in entities])
    assert QuotaExchange.begin(frame, peek_request(frame, 4, len(frame)), "root") is None


def test_a_request_has_a_length_that_can_be_searched() -> None:
    frame = alter([]) + bytes(MOST_SEARCHED_BYTES)
    with pytest.raises(FrameTooLarge):
        QuotaExchange.begin(frame, peek_request(frame, 4, len(frame)), "root")


def test_when_nobody_answers_no_more_is_asked() -> None:
    users = [{"user": f"user-{n:05d}"} for n in range(3 * CHANGES_AT_ONCE)]
    exchange = begun([(entity, rate(1.0)) for entity in users])
    exchange.next_frame()
    answer = altered([(entity, 0, None) for entity in users])
    exchange.answered(answer, 4, len(answer))
    while exchange.only_check:
        exchange.changed([None] * len(exchange.changes))
    exchange.changed([None] * len(exchange.changes))
    exchange.not_made("silence")
    assert exchange.is_over
    codes = [code for _, code in outcomes_in(unframed(exchange.answer()))]
    assert codes == [0] * CHANGES_AT_ONCE + [TIMED_OUT] * 2 * CHANGES_AT_ONCE


ENTITY = st.sampled_from((ALICE, BOB, CAROL, DEFAULT_USER, CLIENT, {"user": "alice", "client-id": "app"}))
OPERATIONS = st.dictionaries(
    st.sampled_from((KEY, OF_NAMES, "producer_byte_rate", "nonsense")),
    st.none() | st.sampled_from((5.0, -1.0)),
)


@settings(max_examples=examples(300))
@given(
    entries=st.lists(st.tuples(ENTITY, OPERATIONS), max_size=6),
    validated=st.dictionaries(st.sampled_from(("alice", "bob", "None", "app")), st.just(NOT_AUTHORISED)),
    forwarded=st.dictionaries(st.sampled_from(("alice", "bob", "None", "app")), st.just(UNKNOWN_ERROR)),
    not_allowed=st.dictionaries(st.sampled_from(("alice", "bob", None)), st.just("no")),
    validate_only=st.booleans(),
)
def test_nothing_is_changed_that_is_answered_with_an_error_and_all_else_is(
    entries: list[tuple[dict[str, str | None], dict[str, float | None]]],
    validated: dict[str, int],
    forwarded: dict[str, int],
    not_allowed: dict[str | None, str],
    validate_only: bool,
) -> None:
    frame = alter(entries, validate_only=validate_only)
    exchange = QuotaExchange.begin(frame, peek_request(frame, 4, len(frame)), "root")
    if exchange is None:
        assert not any({KEY, OF_NAMES} & operations.keys() for _, operations in entries)
        return
    played = Played(validated, forwarded, not_allowed)
    outcomes = played.to_the_end(exchange)
    first_of_each = list(dict.fromkeys(key_of(entity) for entity, _ in entries))
    assert [entity for entity, _ in outcomes] == first_of_each
    fine = {entity for entity, code in outcomes if code == 0}
    made = {
        (key_of({"user": change.target.user}), str(change.target.setting)): change.value
        for change in played.made
    }
    ours = {
        (key_of(entity), key): None if operations[key] is None else 5_000
        for entity, operations in entries
        for key in (KEY, OF_NAMES)
        if key in operations and key_of(entity) in fine
    }
    assert made == ({} if validate_only else ours)
    really = [asked for validated_only, asked in played.asked if not validated_only]
    done = {entity: operations for asked in really for entity, operations in asked.items()}
    for entity, operations in entries:
        others = {key: value for key, value in operations.items() if key not in (KEY, OF_NAMES)}
        if key_of(entity) in fine and others and not validate_only:
            assert done[key_of(entity)] == others
    # What the broker did for real and the client hears an error about can only be what the broker itself failed.
    assert {entity for entity in done if entity not in fine} <= {
        entity for entity in done if forwarded.get(str(next(iter(entity))[1]))
    }


# DescribeClientQuotas

QUOTAS = Quotas(
    default=UserQuota(100_500),
    users={
        "alice": UserQuota(5_000, transactional_ids_rate_milli=7_500),
        "bob": UserQuota(None, exempt=True),
        "carol": UserQuota(0),
    },
)


def seen(
    components: list[tuple[str, int, str | None]],
    broker: dict[str, Any],
    version: int,
    *,
    strict: bool = False,
) -> bytes | None:
    asked = describe(components, version=version, strict=strict)
    answer = raw.response(DESCRIBE, version, broker)
    told = described(
        answer, 4, len(answer), version, read_filter(asked, peek_request(asked, 4, len(asked))), QUOTAS
    )
    return told.finish() if isinstance(told, Walk) else told


def answer_with(*entries: tuple[Mapping[str, str | None], Mapping[str, float]]) -> dict[str, Any]:
    return {
        "throttle_time_ms": 11,
        "error_code": 0,
        "error_message": None,
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                "values": [{"key": key, "value": value} for key, value in values.items()],
            }
            for entity, values in entries
        ],
    }


@versions
def test_all_rates_are_shown_merged_with_what_the_broker_says(version: int) -> None:
    both: dict[str, str | None] = {"user": "alice", "client-id": "app"}
    broker = answer_with((ALICE, {"x": 1.0}), (BOB, {"x": 2.0}), (both, {"x": 3.0}), (DEFAULT_USER, {}))
    answer = seen([], broker, version)
    assert answer is not None
    assert shown_in(unframed(answer), version=version) == {
        key_of(ALICE): {"x": 1.0, KEY: 5.0, OF_NAMES: 7.5},
        key_of(BOB): {"x": 2.0},
        key_of(both): {"x": 3.0},
        key_of(DEFAULT_USER): {KEY: 100.5},
        key_of(CAROL): {KEY: 0.0},
    }
    assert raw.decoded(DESCRIBE, version, unframed(answer))["throttle_time_ms"] == 11


@versions
@pytest.mark.parametrize(
    "components",
    [
        [("user", EXACT, "bob")],
        [("user", EXACT, "nobody")],
        [("client-id", ANY, None)],
        [("user", ANY, None), ("client-id", ANY, None)],
        [("group", ANY, None)],
    ],
)
def test_what_shows_none_of_ours_stays_as_it_came(
    version: int, components: list[tuple[str, int, str | None]]
) -> None:
    assert seen(components, answer_with((ALICE, {"x": 1.0})), version) is None


@versions
def test_nothing_is_shown_to_who_may_not_ask(version: int) -> None:
    refused = {
        "throttle_time_ms": 0,
        "error_code": NOT_AUTHORISED,
        "error_message": "no",
        "entries": None,
    }
    assert seen([], refused, version) is None


def test_an_answer_that_is_too_long_is_no_answer_without_ours() -> None:
    answer = b"\x00\x00\x00\x4d" + bytes(client_quotas.MAX_ANSWER_BYTES)
    told = described(answer, 0, len(answer), 1, client_quotas.UserFilter(None), QUOTAS)
    assert isinstance(told, bytes)
    found = raw.decoded(DESCRIBE, 1, unframed(told))
    assert (found["error_code"], found["entries"]) == (INVALID, None)
    assert "one user" in found["error_message"]
