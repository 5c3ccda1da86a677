"""Every type of event out of what one gateway process sees, and nothing that goes wrong in here gets out."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from pidgate.events.definitions import (
    ConfigEvent,
    ConnectionEvent,
    DecisionEvent,
    Event,
    IdUsageEvent,
    InitProducerIdEvent,
    ProduceErrorEvent,
    RefusalOutcomeEvent,
    TransactionalIdEvent,
)
from pidgate.events.reading import from_json
from pidgate.events.redaction import pseudonym
from pidgate.gateway.recording import recorder as recorder_module
from pidgate.gateway.recording.config_event import Provenance
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import LONGEST_USAGE_MS, Clocks, Identity, Recorder, RecorderSettings
from pidgate.protocol.headers import peek_request
from pidgate.protocol.messages import EndTxnAnswer, EndTxnRequest, InitProducerIdAnswer, InitProducerIdRequest
from pidgate.protocol.produce import ProducerBatch
from pidgate.protocol.sasl import PLAIN, SaslExchange
from pidgate.protocol.sasl import Identity as Authenticated
from pidgate.quota.decisions import Client, Decision, GaveUp, Reason
from pidgate.quota.entities import unidentified
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.frames import partition_errors, produce_request, record_batch
from tests.support.rules import rule

_E = TypeVar("_E", bound=Event)

WALL_MS = 1_700_000_000_000
QUOTAS = Quotas(
    mode=Mode.ENFORCE,
    users={"alice": UserQuota.per_window(10), "etl": UserQuota(exempt=True)},
    producer_ids=ProducerIdSettings(window_ms=60_000),
)
FRAME = produce_request(9, [("orders", [(2, record_batch(7))])])


class Told:
    """A recorder, its clock and what it told."""

    def __init__(self, quotas: Quotas = QUOTAS, **settings: Any) -> None:
        self.now_ms = 5_000
        self.opened = 0
        self.values: list[tuple[str, bytes]] = []
        self.failures: list[Exception] = []
        self.recorder = Recorder(
            lambda key, value: self.values.append((key, value)),
            Identity("gw-1", "run7"),
            Clocks(lambda: self.now_ms, lambda: WALL_MS + self.now_ms),
            RecorderSettings(**settings),
            quotas,
            cluster="test",
            applied_offsets=lambda: [4, 0, 9],
            on_failure=self.failures.append,
        )

    def connection(self, user: str = "alice", client_id: str = "etl") -> ConnectionRecorder:
        self.opened += 1
        client = Client(user, client_id, "10.0.0.1", self.opened)
        return ConnectionRecorder(self.recorder, client, SaslExchange(), "main", 3)

    @property
    def events(self) -> list[Event]:
        return [from_json(value) for _, value in self.values]

    def of(self, kind: type[_E]) -> list[_E]:
        return [event for event in self.events if isinstance(event, kind)]


def decision(admitted: bool = True, reason: Reason = Reason.FIRST_SEEN, **more: Any) -> Decision:
    fields: dict[str, Any] = {
        "user": "alice", "producer_id": 7, "epoch": 1, "transactional": False, "topic": b"orders", "partition": 2,
        "base_sequence": 0, "request_partitions": 1,
    }  # fmt: skip
    return Decision(**(fields | {"admitted": admitted, "reason": reason} | more))


def decide(connection: ConnectionRecorder, *decisions: Decision, frame: bytes = FRAME) -> None:
    connection.decided(decisions, frame, peek_request(frame, 0, len(frame)), 4_990)


def batch(producer_id: int = 7, partition: int = 0, topic: bytes = b"orders") -> ProducerBatch:
    return producer_id, 1, 0, topic, partition


def test_a_decision_says_everything() -> None:
    told = Told()
    connection = told.connection()
    connection.software = ("apache-kafka-java", "3.7.0")
    decide(
        connection,
        decision(
            tokens_before=60_000, tokens_after=0, would_refuse=True, queue_position=3, throttle_time_ms=100
        ),
    )
    opened, found = told.events
    assert isinstance(opened, ConnectionEvent)
    assert found == DecisionEvent(
        cluster="test", gateway_id="gw-1", incarnation="run7", seq=2, wall_time_ms=WALL_MS + 5_000,
        decision_time_ms=4_990, connection_id=1, listener="main", user="alice", client_id="etl",
        software_name="apache-kafka-java", software_version="3.7.0", address="10.0.0.1",
        producer_id=7, epoch=1, transactional=False, topic="orders", partition=2, base_sequence=0,
        request_partitions=1, decision="admit", reason="first_seen", would_refuse=True, tokens_before=60_000,
        tokens_after=0, token_units=60_000_000, throttle_time_ms=100, queue_position=3,
        quota_version=0, applied_offsets=[4, 0, 9],
    )  # fmt: skip
    assert [key for key, _ in told.values] == ["alice", "alice"]


def test_a_topic_id_is_told_by_its_name_if_that_is_known() -> None:
    told = Told()
    topic = b"\0" + bytes(range(16))
    decide(told.connection(), decision(topic=topic))
    told.recorder.topic_name = {topic: b"orders"}.__getitem__
    decide(told.connection(), decision(topic=topic))
    assert [event.topic for event in told.of(DecisionEvent)] == ["AAECAwQFBgcICQoLDA0ODw", "orders"]


def test_a_transactional_id_is_never_told_but_by_its_hash() -> None:
    told = Told()
    frame = produce_request(
        9, [("orders", [(0, record_batch(7, transactional=True))])], transactional_id="payments-7"
    )
    decide(told.connection(), decision(transactional=True), decision(transactional=False), frame=frame)
    first, second = told.of(DecisionEvent)
    assert first.transactional_id_hash is not None
    assert first.transactional_id_hash.startswith("h:")
    assert second.transactional_id_hash is None
    assert not any(b"payments" in value for _, value in told.values)


def test_a_refused_id_that_is_admitted_has_an_outcome() -> None:
    told = Told()
    connection = told.connection()
    for _ in range(3):
        decide(connection, decision(False, Reason.QUEUE, throttle_time_ms=100))
    decide(connection, decision(reason=Reason.QUEUE, waited_ms=400))
    (outcome,) = told.of(RefusalOutcomeEvent)
    assert (outcome.producer_id, outcome.attempts, outcome.waited_ms, outcome.outcome) == (
        7,
        3,
        400,
        "admitted",
    )
    assert (outcome.user, outcome.client_id, outcome.address) == ("alice", "etl", "10.0.0.1")
    decide(connection, decision(reason=Reason.REFRESH))
    assert len(told.of(RefusalOutcomeEvent)) == 1


def test_a_hold_is_no_attempt() -> None:
    told = Told()
    connection = told.connection()
    decide(connection, decision(False, Reason.HELD))
    decide(connection, decision(False, Reason.QUEUE, throttle_time_ms=100))
    decide(connection, decision(reason=Reason.QUEUE, waited_ms=400))
    assert [event.decision for event in told.of(DecisionEvent)] == ["hold", "refuse", "admit"]
    (outcome,) = told.of(RefusalOutcomeEvent)
    assert outcome.attempts == 1


def test_an_id_that_gave_up_is_told_with_who_it_was() -> None:
    told = Told()
    decide(told.connection(), decision(False))
    told.recorder.gave_up([GaveUp("alice", 7, 30_000, 4), GaveUp("bob", 8, 100, 2)])
    told.recorder.tick()
    known, unknown = told.of(RefusalOutcomeEvent)
    assert (known.attempts, known.waited_ms, known.outcome, known.client_id) == (4, 30_000, "gave_up", "etl")
    assert (unknown.user, unknown.attempts, unknown.client_id) == ("bob", 2, "")


# Usage


def test_usage_is_told_when_the_connection_closes() -> None:
    told = Told()
    connection = told.connection()
    connection.forwarded([batch(7, 0)], [10], 500, 6_000)
    connection.forwarded([batch(7, 1)], [20], 700, 9_000)
    told.now_ms = 10_000
    connection.closed("client")
    (found,) = told.of(IdUsageEvent)
    assert (found.producer_id, found.epoch, found.requests, found.batches) == (7, 1, 2, 2)
    assert (found.records, found.bytes, found.partitions, found.connections) == (30, 1_200, 2, 1)
    assert (found.first_ms, found.last_ms) == (WALL_MS + 6_000, WALL_MS + 9_000)
    assert (found.user, found.client_id, found.connection_id) == ("alice", "etl", 1)
    assert [event.type for event in told.events] == ["connection", "id_usage", "connection"]


def test_usage_of_several_connections_is_one_event() -> None:
    told = Told()
    first, second = told.connection(), told.connection()
    for connection in (first, second):
        connection.forwarded([batch()], [1], 100, 6_000)
    first.closed("client")
    assert told.of(IdUsageEvent) == []
    second.closed("client")
    (found,) = told.of(IdUsageEvent)
    assert (found.requests, found.connections, found.connection_id) == (2, 2, None)


def test_usage_of_a_live_id_is_told_when_its_slice_ends() -> None:
    told = Told()
    connection = told.connection()
    connection.forwarded([batch()], [1], 100, told.now_ms)
    told.recorder.tick()
    assert told.of(IdUsageEvent) == []
    told.now_ms += LONGEST_USAGE_MS
    told.recorder.tick()
    connection.forwarded([batch()], [2], 100, told.now_ms)
    connection.closed("client")
    assert [event.records for event in told.of(IdUsageEvent)] == [1, 2]


def test_several_ids_in_one_request() -> None:
    told = Told()
    connection = told.connection()
    connection.forwarded([batch(7, 0), batch(8, 1), batch(7, 2)], [1, 2, 4], 900, 6_000)
    connection.closed("client")
    found = {event.producer_id: event for event in told.of(IdUsageEvent)}
    assert [(found[one].requests, found[one].batches, found[one].records) for one in (7, 8)] == [
        (1, 2, 5),
        (1, 1, 2),
    ]
    assert (found[7].bytes, found[8].bytes) == (900, 0)


def test_what_a_user_did_before_it_became_another_stays_with_it() -> None:
    told = Told()
    connection = told.connection("alice")
    connection.forwarded([batch()], [1], 100, 6_000)
    connection._client.identify("bob")
    connection.identified()
    connection.forwarded([batch()], [2], 100, 6_000)
    connection.closed("client")
    assert [(event.user, event.records) for event in told.of(IdUsageEvent)] == [("alice", 1), ("bob", 2)]


def test_at_drain_all_is_told_in_portions() -> None:
    told = Told()
    connection = told.connection()
    for producer_id in range(25):
        connection.forwarded([batch(producer_id)], [1], 100, 6_000)
    portions = 1
    while told.recorder.flush(10):
        portions += 1
    assert portions == 3
    assert [event.producer_id for event in told.of(IdUsageEvent)] == list(range(25))


def test_a_connection_with_many_ids_does_not_hold_everything_up_when_it_closes() -> None:
    told = Told()
    connection = told.connection()
    for producer_id in range(200):
        connection.forwarded([batch(producer_id)], [1], 100, 6_000)
    connection.closed("client")
    assert len(told.of(IdUsageEvent)) == 10
    told.recorder.tick()
    assert len(told.of(IdUsageEvent)) == 200


def test_a_connection_with_many_errors_does_not_hold_everything_up_when_it_closes() -> None:
    """Nor does a user whose ids give up all at once. Each is told of in the end, and its room is free then."""
    told = Told()
    connection = told.connection()
    for producer_id in range(1_500):
        connection.produce_answered(producer_id, [(b"orders", 0, 29)])
    assert told.recorder.error_counts == 1_500
    connection.closed("client")
    assert len(told.of(ProduceErrorEvent)) == 10
    told.recorder.gave_up([GaveUp("alice", producer_id, 5_000, 1) for producer_id in range(700)])
    counts = []
    for _ in range(4):
        told.recorder.tick()
        counts.append((len(told.of(ProduceErrorEvent)), len(told.of(RefusalOutcomeEvent))))
    assert counts == [(1_010, 0), (1_500, 510), (1_500, 700), (1_500, 700)]
    assert told.recorder.error_counts == 0
    assert {event.client_id for event in told.of(ProduceErrorEvent)} == {connection.about()["client_id"]}


# Answers


def produce_answer(*codes: tuple[int, int]) -> bytes:
    """Version 7: partition and error code, all of topic orders."""
    partitions = b"".join(
        index.to_bytes(4, "big") + code.to_bytes(2, "big") + bytes(24) for index, code in codes
    )
    head = (7).to_bytes(4, "big") + b"\0\0\0\1" + b"\0\6orders" + len(codes).to_bytes(4, "big")
    return head + partitions + bytes(4)


def test_error_codes_of_a_live_connection_are_told_when_the_slice_ends() -> None:
    told = Told()
    connection = told.connection()
    answer = produce_answer((0, 45))
    connection.produce_answered(7, partition_errors(answer, 0, len(answer), 7))
    told.now_ms += LONGEST_USAGE_MS
    told.recorder.tick()
    told.recorder.tick()
    assert [event.count for event in told.of(ProduceErrorEvent)] == [1]


def test_producer_ids_given_and_errors() -> None:
    told = Told()
    connection = told.connection()
    connection.producer_id_given(InitProducerIdRequest(None, -1, -1), InitProducerIdAnswer(0, 4711, 0), 5_000)
    connection.producer_id_given(InitProducerIdRequest("pay", 4, 2), InitProducerIdAnswer(51, -1, -1), 5_000)
    given, failed = told.of(InitProducerIdEvent)
    assert (given.asked_producer_id, given.answered_producer_id, given.answered_epoch, given.error) == (
        -1,
        4711,
        0,
        0,
    )
    assert (given.node_id, given.transactional, given.count) == (3, False, 1)
    assert (failed.asked_producer_id, failed.asked_epoch, failed.error, failed.transactional) == (
        4,
        2,
        51,
        True,
    )


def test_a_new_id_out_of_a_transaction_is_told_and_its_inheritance_is_a_decision() -> None:
    told = Told()
    connection = told.connection()
    asked = EndTxnRequest("pay", 4, 32_767, True)
    connection.transaction_ended(asked, EndTxnAnswer(0, 4, 32_767), False, 5_000)
    assert told.events == []
    connection.transaction_ended(asked, EndTxnAnswer(0, 5, 0), True, 5_000)
    (given,), (inherited,) = told.of(InitProducerIdEvent), told.of(DecisionEvent)
    assert (given.asked_producer_id, given.answered_producer_id, given.transactional) == (4, 5, True)
    assert (inherited.producer_id, inherited.reason, inherited.decision) == (5, "inherited", "admit")
    connection.transaction_ended(asked, EndTxnAnswer(0, 6, 0), False, 5_000)
    assert len(told.of(DecisionEvent)) == 1


def test_an_admitted_transactional_id_is_told_by_its_hash() -> None:
    told = Told()
    decision = Decision("alice", -1, -1, True, b"", -1, -1, 0, True, Reason.OBSERVE, would_refuse=True)
    told.connection().transactional_id_admitted(pseudonym("transactional_id", "pay"), (decision,), 5_000)
    (event,) = told.of(TransactionalIdEvent)
    assert event.transactional_id_hash == pseudonym("transactional_id", "pay")
    assert (event.reason, event.would_refuse, event.tokens_after) == ("observe", True, None)


# Connections


def test_a_connection_is_told_when_it_is_known_whose_it_is_with_the_time_it_opened_at() -> None:
    told = Told()
    connection = told.connection()
    connection._sasl.identity = Authenticated("alice", PLAIN)
    told.now_ms += 40
    connection.introduced()
    connection.introduced()
    connection.bytes_in, connection.bytes_out, connection.requests = 100, 2_000, 3
    told.now_ms += 1_460
    connection.closed("idle")
    opened, closed = told.of(ConnectionEvent)
    assert (opened.phase, opened.wall_time_ms, opened.decision_time_ms) == ("open", WALL_MS + 5_000, 5_000)
    assert (opened.user, opened.node_id, opened.principal_mechanism) == ("alice", 3, "PLAIN")
    assert (closed.phase, closed.close_reason, closed.seconds) == ("close", "idle", 1.5)
    assert (closed.bytes_in, closed.bytes_out, closed.requests) == (100, 2_000, 3)
    assert not told.recorder.in_slice


def test_a_crash_loop_is_told_in_sums() -> None:
    told = Told()
    for _ in range(1_000):
        connection = told.connection()
        connection.producer_id_given(
            InitProducerIdRequest(None, -1, -1), InitProducerIdAnswer(0, 1, 0), told.now_ms
        )
        connection.closed("reset")
    told.now_ms += 1_000
    told.recorder.tick()
    assert len(told.values) == 3 * 11
    assert sum(event.count for event in told.of(InitProducerIdEvent)) == 1_000
    assert sum(event.count for event in told.of(ConnectionEvent) if event.phase == "close") == 1_000


# Of the gateway


def test_quotas_are_told_with_their_provenance_and_a_version_that_grows() -> None:
    told = Told()
    told.recorder.quotas_set(QUOTAS, 5_000, {"alice": Provenance(owner="team-a", note="batch")})
    of_names = UserQuota(transactional_ids_rate_milli=3_000, producer_states_rate_milli=4_000)
    told.recorder.quotas_set(Quotas(mode=Mode.OBSERVE, default=of_names, users={"etl": of_names}), 6_000)
    decide(told.connection(), decision())
    first, second = told.of(ConfigEvent)
    assert (first.quota_version, second.quota_version) == (1, 2)
    assert (first.decision_time_ms, second.decision_time_ms) == (5_000, 6_000)
    assert (first.mode, first.window_ms, first.burst, second.mode) == ("enforce", 60_000, 1.0, "observe")
    alice, etl = first.quotas
    assert (alice.user, alice.rate_milli, alice.owner, alice.note) == ("alice", 10_000, "team-a", "batch")
    assert (etl.user, etl.rate_milli, etl.exempt, etl.source) == ("etl", None, True, "file")
    assert second.default_transactional_ids_rate_milli == 3_000
    assert second.quotas[0].transactional_ids_rate_milli == 3_000
    assert second.default_producer_states_rate_milli == 4_000
    assert second.quotas[0].producer_states_rate_milli == 4_000
    assert told.of(DecisionEvent)[0].quota_version == 2
    assert told.values[0][0] == "gw-1"


# Promises


def test_numbers_have_no_gaps_and_keys_are_users() -> None:
    told = Told()
    told.recorder.quotas_set(QUOTAS, 5_000)
    for user in ("alice", unidentified("GSSAPI"), "bob"):
        connection = told.connection(user)
        decide(connection, decision(user=user))
        connection.closed("client")
    assert [event.seq for event in told.events] == list(range(1, len(told.values) + 1))
    assert {key for key, _ in told.values} == {"gw-1", "alice", "\0GSSAPI", "bob"}


def test_redacted_names_stand_nowhere() -> None:
    told = Told(redact=("user", "client_id", "address"))
    told.recorder.quotas_set(QUOTAS, 5_000, {"alice": Provenance(owner="team-a")})
    connection = told.connection("alice", "loader")
    decide(connection, decision(False))
    connection.forwarded([batch()], [1], 100, 6_000)
    connection.closed("client")
    told.recorder.gave_up([GaveUp("alice", 7, 1, 1)])
    everything = b"".join(key.encode() + value for key, value in told.values)
    assert [word for word in (b"alice", b"loader", b"10.0.0.1", b"team-a") if word in everything] == []
    assert (
        len(
            {event.user for event in told.of(DecisionEvent)} | {event.user for event in told.of(IdUsageEvent)}
        )
        == 1
    )


def broken(*_: object) -> Any:
    raise RuntimeError("broken")


CALLS: list[Callable[[ConnectionRecorder], None]] = [
    lambda one: decide(one, decision()),
    lambda one: one.forwarded([batch()], [], 100, 6_000),
    lambda one: one.forwarded([batch(), batch(8)], [1], 100, 6_000),
    lambda one: one.produce_answered(None, cast(Any, None)),
    lambda one: one.producer_id_given(InitProducerIdRequest(None, -1, -1), InitProducerIdAnswer(0, 1, 0), 0),
    lambda one: one.introduced(),
    lambda one: one.closed("client"),
]


@pytest.mark.parametrize("call", CALLS)
def test_nothing_that_goes_wrong_gets_out(call: Callable[[ConnectionRecorder], None]) -> None:
    told = Told()
    connection = told.connection()
    told.recorder._sink = broken
    call(connection)
    assert told.recorder.failures >= 1
    assert len(told.failures) == 1


@rule("Publishing an event never blocks a request; a dropped event leaves a gap in `seq`.", "fleet")
def test_a_lost_event_leaves_a_gap_and_one_that_was_never_made_does_not() -> None:
    told = Told()
    told.recorder.lifecycle("alive")
    sink, told.recorder._sink = told.recorder._sink, broken
    told.recorder.lifecycle("alive")
    told.recorder._sink = sink
    told.recorder.lifecycle("alive", restored_ids=None)
    told.recorder.lifecycle("alive")
    assert [event.seq for event in told.events] == [1, 3]


def test_error_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MOST_ERROR_COUNTS", 3)
    told = Told()
    connection = told.connection()
    for producer_id in range(5):
        answer = produce_answer((0, 45))
        connection.produce_answered(producer_id, partition_errors(answer, 0, len(answer), 7))
    assert told.recorder.uncounted_errors == 2
    connection.closed("client")
    assert len(told.of(ProduceErrorEvent)) == 3
    assert told.recorder.error_counts == 0
