"""Scripts of frames in and out of one connection: order, mute, read-ahead, closing, and who is asking."""

from typing import Any
from uuid import UUID

import pytest

from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.gateway_topics import LOOKED_INTO_BYTES, GatewayTopics
from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, TAKEN, Api
from pidgate.gateway.proxy.apis.authentication import SaslAuthenticateApi, SaslHandshakeApi
from pidgate.gateway.proxy.apis.produce import MOST_BATCHES_NOTED, ProduceApi
from pidgate.gateway.proxy.apis.table import APIS
from pidgate.gateway.proxy.apis.topics import MetadataApi
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES
from pidgate.gateway.proxy.read_ahead import HELD_LIMIT_BYTES
from pidgate.gateway.proxy.session import HELD_OVERHEAD_BYTES
from pidgate.protocol.errors import MalformedFrame
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.rules import rule
from tests.support.scene import frame_of
from tests.support.talk import Talk, whole

METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 17, 18, 36
FETCH, DELETE_TOPICS, ADD_PARTITIONS_TO_TXN = 1, 20, 24
NOT_ENOUGH_REPLICAS, UNSUPPORTED_VERSION = 19, 35
OWN = "__pidgate_events"


def produce(
    producer_id: int,
    *,
    correlation_id: int = 1,
    sequence: int = 0,
    partition: int = 0,
    acks: int = -1,
    padding: int = 0,
) -> bytes:
    """A framed Produce v9 of one batch."""
    batch = record_batch(producer_id, 0, sequence, records=bytes(padding))
    return framed(
        produce_request(9, [("orders", [(partition, batch)])], acks=acks, correlation_id=correlation_id)
    )


def metadata(correlation_id: int) -> bytes:
    return raw.request(METADATA, 1, {"topics": []}, correlation_id=correlation_id)


def answer_to_produce(version: int, answer: bytes) -> dict[str, Any]:
    """The one partition of a framed Produce answer, with its throttle_time_ms."""
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    fields = raw.decoded(0, version, answer[4:])
    (topic,) = fields["responses"]
    (partition,) = topic["partition_responses"]
    return {**partition, "throttle_time_ms": fields["throttle_time_ms"]}


class Script:
    """One conversation; rate is the number of new producer ids that the user may bring in an hour."""

    def __init__(self, rate: int = 0, user: str = "alice", **rates: int) -> None:
        quotas = Quotas(
            mode=Mode.ENFORCE,
            default=UserQuota.per_window(rate),
            users={name: UserQuota.per_window(its_rate) for name, its_rate in rates.items()},
        )
        self.admission = Admission(quotas, lambda: 1, 0)
        self.client = Client(user, "", "10.0.0.1", 1)
        self.talk = Talk(self.admission, self.client)
        self.now_ms = 0

    def send(self, frame: bytes) -> int:
        """The step for a framed request that lies in the middle of a larger buffer."""
        buf = b"before" + frame + b"after"
        return self.talk.request(buf, 10, 6 + len(frame), self.now_ms)

    def broker_answers(self, correlation_id: int, **fields: object) -> type[Api]:
        """The answer to a request passes; to one of a login with these fields."""
        request = self.talk.expect(correlation_id)
        if isinstance(request.api, SaslHandshakeApi | SaslAuthenticateApi):
            body = {"mechanisms": [], **fields}
            self.talk.broker_answers(
                raw.response(request.api_key, request.api_version, body, correlation_id=correlation_id)
            )
        else:
            self.talk.answered()
        return type(request.api)

    def sent_by_us(self) -> list[int]:
        """Correlation ids of our own answers whose turn has come."""
        out = [int.from_bytes(answer[4:8], "big") for answer in self.talk.out]
        self.talk.out.clear()
        return out


@rule("Responses leave in the order of the requests.", "order")
def test_answers_of_ours_wait_for_everything_in_flight() -> None:
    script = Script(rate=0)
    assert script.send(metadata(1)) is FORWARD
    assert script.send(metadata(2)) is FORWARD
    assert script.send(produce(7, correlation_id=3)) is TAKEN
    assert script.sent_by_us() == []
    assert script.broker_answers(1) is MetadataApi
    assert script.sent_by_us() == []
    script.broker_answers(2)
    assert script.sent_by_us() == [3]
    assert script.talk.session.is_quiet


def test_a_refusal_is_not_enough_replicas_with_a_throttle_time_and_mutes() -> None:
    script = Script(rate=0)
    assert script.send(produce(7)) is TAKEN
    answer = answer_to_produce(9, script.talk.out[0])
    assert answer["error_code"] == NOT_ENOUGH_REPLICAS
    assert answer["throttle_time_ms"] == script.talk.muted_until_ms > 0
    assert "alice" in answer["error_message"]
    assert [refusal.producer_id for refusal in script.talk.refused] == [7]


def test_a_frame_with_a_buffer_of_its_own_is_held_and_goes_on_without_a_copy() -> None:
    script = Script(rate=0)
    script.send(produce(7))
    large = bytearray(raw.request(METADATA, 1, {"topics": [{"name": "t" * 200}] * 2_000}, correlation_id=2))
    assert len(large) > READ_BUFFER_BYTES
    assert script.talk.request(large, 4, len(large), 0) is TAKEN
    frames, _ = script.talk.release(script.talk.muted_until_ms)
    assert frames[0] is large


@rule("No request passes a mute; all of them go on in order when it ends.", "mutes")
def test_nothing_passes_a_mute_and_all_of_it_goes_on_in_order() -> None:
    script = Script(rate=0)
    script.send(produce(7))
    held = [metadata(2), metadata(3), produce(-1, correlation_id=4)]
    assert [script.send(frame) for frame in held] == [TAKEN] * 3
    assert script.talk.session.held_bytes == sum(len(frame) + HELD_OVERHEAD_BYTES for frame in held)
    assert script.talk.release(script.talk.muted_until_ms - 1) == ([], False)
    assert script.talk.release(script.talk.muted_until_ms) == (held, False)
    assert script.talk.session.held_bytes == 0
    assert [script.broker_answers(number) for number in (2, 3, 4)] == [
        MetadataApi,
        MetadataApi,
        ProduceApi,
    ]


def test_a_decision_a_throttle_and_a_held_request_are_timed() -> None:
    script = Script(rate=0)
    counters = script.talk.context.counters
    ticks = iter((1.0, 1.25))
    script.talk.at.clock_s = ticks.__next__
    script.send(produce(7))
    script.send(metadata(2))
    until_ms = script.talk.muted_until_ms
    script.talk.release(until_ms)
    assert counters.decision_times.sum_s == 0.25
    assert counters.throttle_times.sum_s == counters.held_times.sum_s == until_ms / 1_000
    times = (counters.decision_times, counters.throttle_times, counters.held_times)
    assert [sum(one.counts) for one in times] == [1, 1, 1]


def test_going_on_stops_at_the_next_refusal() -> None:
    script = Script(rate=0)
    script.send(produce(7))
    script.send(metadata(2))
    script.send(produce(8, correlation_id=3))
    script.send(metadata(4))
    until_ms = script.talk.muted_until_ms
    assert script.talk.release(until_ms) == ([metadata(2)], False)
    assert script.talk.muted_until_ms > until_ms
    assert [request.buf for request in script.talk.held] == [metadata(4)]
    script.sent_by_us()
    script.broker_answers(2)
    assert script.sent_by_us() == [3]


@rule("A pipeline behind its refused first batch costs one mute.", "mutes")
def test_a_pipeline_behind_its_refused_first_batch_costs_one_mute() -> None:
    script = Script(rate=0)
    for number in range(5):
        assert script.send(produce(7, correlation_id=number, sequence=number)) is TAKEN
        until_ms = script.talk.muted_until_ms
    assert script.sent_by_us() == [0, 1, 2, 3, 4]
    assert not script.talk.held
    assert script.talk.muted_until_ms == until_ms


@rule("A request with acks=0 has no response, and its refusal closes the connection.", "order")
def test_acks_0_takes_no_place_in_flight_and_its_refusal_closes() -> None:
    admitted = Script(rate=5)
    assert admitted.send(produce(7, acks=0)) is FORWARD
    assert admitted.talk.session.is_quiet
    refused = Script(rate=0)
    assert refused.send(produce(7, acks=0)) is CLOSE
    assert refused.talk.close_cause == "acks0_refused"
    assert refused.sent_by_us() == []


def test_an_answer_must_be_the_next_one() -> None:
    script = Script()
    with pytest.raises(MalformedFrame, match="not the next request"):
        script.talk.expect(1)
    script.send(metadata(1))
    script.send(metadata(2))
    with pytest.raises(MalformedFrame, match="answered 2"):
        script.talk.expect(2)


def test_what_was_never_offered_ends_the_connection() -> None:
    for request in (
        bytes.fromhex("0003 0063 00000001 ffff"),
        bytes.fromhex("0003 ffff 00000001 ffff"),
        b"\0\3\0",
    ):
        script = Script()
        assert script.send(framed(request)) is CLOSE
        assert script.talk.close_cause == "protocol"


def test_a_newer_api_versions_is_answered_here_in_its_turn() -> None:
    script = Script()
    script.send(metadata(1))
    assert script.send(framed(bytes.fromhex("0012 0063 00000002 ffff"))) is TAKEN
    assert script.sent_by_us() == []
    script.broker_answers(1)
    assert script.sent_by_us() == [2]


def test_who_is_gone_is_not_judged() -> None:
    script = Script(rate=0)
    script.send(produce(7))
    script.send(metadata(2))
    assert script.talk.session.held_bytes == len(metadata(2)) + HELD_OVERHEAD_BYTES
    script.talk.session.drop_held()
    assert not script.talk.session.held_bytes
    assert script.talk.release(1_000_000) == ([], False)


@rule("Read-ahead behind a mute is bounded by the user's memory.", "mutes")
def test_read_ahead_is_bounded() -> None:
    script = Script(rate=0)
    script.send(produce(7))
    script.send(metadata(2))
    assert script.talk.session.held_bytes < HELD_LIMIT_BYTES
    script.send(produce(8, correlation_id=3, padding=HELD_LIMIT_BYTES))
    assert script.talk.session.held_bytes >= HELD_LIMIT_BYTES
    frames, _ = script.talk.release(script.talk.muted_until_ms)
    assert frames == [metadata(2)]
    assert script.talk.session.held_bytes < HELD_LIMIT_BYTES


# ---- identity


def authenticate(correlation_id: int, user: str = "mallory") -> bytes:
    token = f"\0{user}\0secret".encode()
    return raw.request(SASL_AUTHENTICATE, 2, {"auth_bytes": token}, correlation_id=correlation_id)


def handshake(correlation_id: int, mechanism: str = "PLAIN") -> bytes:
    return raw.request(SASL_HANDSHAKE, 1, {"mechanism": mechanism}, correlation_id=correlation_id)


def confirm(script: Script, correlation_id: int, error_code: int = 0) -> None:
    """The broker answers SaslAuthenticate."""
    script.broker_answers(correlation_id, error_code=error_code, auth_bytes=b"")


@rule("Requests behind an unanswered login wait for it.", "identity")
def test_a_produce_waits_until_the_broker_has_said_who_it_is() -> None:
    script = Script(user="ANONYMOUS", rate=100, mallory=0)
    assert script.send(handshake(1)) is FORWARD
    assert script.send(authenticate(2)) is FORWARD
    assert script.send(produce(7, correlation_id=3)) is TAKEN
    assert script.send(metadata(4)) is TAKEN
    assert script.talk.session.awaits_answer
    assert script.talk.release(0) == ([], False)
    script.broker_answers(1)
    assert script.talk.session.awaits_answer
    confirm(script, 2)
    assert not script.talk.session.awaits_answer
    frames, _ = script.talk.release(0)
    assert frames == []
    assert [refusal.user for refusal in script.talk.refused] == ["mallory"]
    assert script.talk.release(script.talk.muted_until_ms)[0] == [metadata(4)]


def test_whoever_is_not_let_in_stays_who_he_was() -> None:
    script = Script(user="ANONYMOUS", rate=0, alice=100)
    script.send(handshake(1))
    script.send(authenticate(2, "alice"))
    script.broker_answers(1)
    confirm(script, 2, error_code=58)
    assert script.client.user == "ANONYMOUS"
    assert script.send(produce(7, correlation_id=3)) is TAKEN
    assert script.talk.refused[0].user == "ANONYMOUS"


def test_while_somebody_authenticates_anew_other_requests_wait() -> None:
    """The broker expects nothing but SASL then (KIP-368)."""
    script = Script(rate=100)
    script.send(handshake(1))
    assert script.send(metadata(2)) is TAKEN
    assert script.send(produce(7, correlation_id=3)) is TAKEN
    assert script.talk.release(0)[0] == []
    script.broker_answers(1)
    assert script.talk.release(0)[0] == [metadata(2), produce(7, correlation_id=3)]


def test_every_api_but_versions_and_sasl_waits_for_the_login() -> None:
    at_once = {api_version >> 16 for api_version, api in APIS.items() if not api.needs_identity}
    assert at_once == {SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS}


def test_no_secret_is_kept() -> None:
    script = Script(user="ANONYMOUS")
    script.send(handshake(1))
    script.send(authenticate(2))
    assert "secret" not in repr(script.talk.context.login.sasl)
    assert all(
        "secret" not in repr(getattr(script.talk.context.login.sasl, name))
        for name in script.talk.context.login.sasl.__slots__
    )
    assert "secret" not in repr([script.talk.expect(1)])


def test_topic_ids_are_refused_by_version_13() -> None:
    script = Script(rate=0)
    request = produce_request(13, [(UUID(int=5), [(0, record_batch(9))])], correlation_id=6)
    assert script.send(framed(request)) is TAKEN
    assert answer_to_produce(13, script.talk.out[0])["error_code"] == NOT_ENOUGH_REPLICAS


# A listener with authentication


def before_login(required: bool | None) -> tuple[Script, Authentication]:
    script, authentication = Script(user="ANONYMOUS", rate=100, mallory=0), Authentication(required)
    script.talk.require_login(authentication)
    return script, authentication


@rule("Only ApiVersions and SASL pass before a login that is required or may be.", "identity")
@pytest.mark.parametrize("frame", [metadata(1), produce(7, correlation_id=1)])
def test_where_a_login_is_required_nothing_passes_before_it(frame: bytes) -> None:
    script, _ = before_login(True)
    assert script.send(frame) is CLOSE
    assert script.talk.close_cause == "unauthenticated"
    assert "before a login" in script.talk.close_reason
    assert list(script.admission.user_snapshots(0)) == []


@pytest.mark.parametrize("required", [True, None])
def test_versions_and_sasl_pass_and_after_the_login_everything_does(required: bool | None) -> None:
    script, _ = before_login(required)
    assert script.send(handshake(1)) is TAKEN
    assert script.sent_by_us() == [1]
    assert script.send(authenticate(2)) is FORWARD
    assert script.send(produce(7, correlation_id=3)) is TAKEN
    confirm(script, 2)
    assert script.talk.release(0) == ([], False)  # mallory is blocked
    assert [refusal.user for refusal in script.talk.refused] == ["mallory"]


def test_what_does_not_wait_for_a_login_that_fails_ends_the_connection() -> None:
    script, _ = before_login(True)
    script.send(handshake(1))
    script.send(authenticate(2))
    assert script.send(produce(7, correlation_id=3)) is TAKEN
    confirm(script, 2, error_code=58)
    assert not script.talk.session.awaits_answer
    assert script.talk.release(0) == ([], True)
    assert list(script.admission.user_snapshots(0)) == []


@rule("Only ApiVersions and SASL pass before a login that is required or may be.", "identity")
def test_until_it_is_known_requests_wait() -> None:
    script, authentication = before_login(None)
    assert script.send(metadata(1)) is TAKEN
    assert script.talk.session.awaits_answer
    assert script.talk.release(0) == ([], False)
    authentication.learn_requirement(34, [])
    script.talk.authentication_learnt()
    assert script.talk.release(0) == ([metadata(1)], False)
    assert script.send(metadata(2)) is FORWARD


def test_whoever_waited_and_should_have_logged_in_is_closed() -> None:
    script, authentication = before_login(None)
    assert script.send(metadata(1)) is TAKEN
    authentication.learn_requirement(0, ["PLAIN"])
    script.talk.authentication_learnt()
    assert script.talk.release(0) == ([], True)


def nobody_acts_before_a_login() -> bool:
    """The rule, for a request at once, one that waited to learn it, and one behind a login that fails."""
    at_once, _ = before_login(True)
    ended = [at_once.send(metadata(1)) is CLOSE]
    waited, authentication = before_login(None)
    waited.send(metadata(1))
    authentication.learn_requirement(0, ["PLAIN"])
    waited.talk.authentication_learnt()
    ended.append(waited.talk.release(0) == ([], True))
    refused, _ = before_login(True)
    if refused.send(handshake(1)) is FORWARD:
        refused.broker_answers(1)
    for frame in (authenticate(2), produce(7, correlation_id=3)):
        refused.send(frame)
    confirm(refused, 2, error_code=58)
    ended.append(refused.talk.release(0) == ([], True))
    judged = [list(script.admission.user_snapshots(0)) for script in (at_once, waited, refused)]
    return ended == [True] * 3 and judged == [[]] * 3


def test_nobody_acts_before_a_login_that_is_required() -> None:
    assert nobody_acts_before_a_login()


def what_is_behind_a_login_is_of_who_logs_in() -> bool:
    """The rule: what does not wait for its own login is not charged to ANONYMOUS, and goes on in order."""
    script = Script(user="ANONYMOUS", rate=100, mallory=0)
    script.send(handshake(1))
    script.broker_answers(1)
    script.send(authenticate(2))
    steps = [script.send(frame) for frame in (produce(7, correlation_id=3), metadata(4))]
    confirm(script, 2)
    script.talk.release(0)
    return steps == [TAKEN, TAKEN] and [refusal.user for refusal in script.talk.refused] == ["mallory"]


def test_what_is_behind_a_login_is_of_who_logs_in() -> None:
    assert what_is_behind_a_login_is_of_who_logs_in()


# ---- turns, and what ends them


def test_the_session_wakes_at_the_end_of_its_mute() -> None:
    script = Script(rate=0)
    script.send(produce(7))
    assert script.talk.wakes_ms == [script.talk.muted_until_ms]
    script.send(produce(8, correlation_id=2))
    script.talk.wakes_ms.clear()
    script.talk.release(script.talk.muted_until_ms - 1)
    assert script.talk.wakes_ms == [script.talk.muted_until_ms], "woken too early, it asks again"


TOO_LONG = [OWN, "t" * LOOKED_INTO_BYTES]
"""Topics of a request that is not looked into, as one of them is the gateway's: it ends the connection."""


@pytest.mark.parametrize(
    "frame",
    [
        framed(bytes.fromhex("0003 0063 00000001 ffff")),
        raw.request(DELETE_TOPICS, 1, {"topic_names": TOO_LONG, "timeout_ms": 0}),
        raw.request(FETCH, 11, {"topics": [{"topic": name} for name in TOO_LONG]}),
        raw.request(ADD_PARTITIONS_TO_TXN, 3, {"v3_and_below_topics": [{"name": name} for name in TOO_LONG]}),
    ],
    ids=["never offered", "DeleteTopics", "Fetch", "AddPartitionsToTxn"],
)
def test_behind_a_request_that_ends_the_connection_nothing_goes_on(frame: bytes) -> None:
    quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(0))
    client = Client("alice", "", "10.0.0.1", 1)
    talk = Talk(Admission(quotas, lambda: 1, 0), client, gateway_topics=GatewayTopics([OWN]))
    for each in (produce(7), frame, metadata(2)):
        talk.request(each, 4, len(each), 0)
    assert len(talk.held) == 2
    assert talk.release(talk.muted_until_ms) == ([], True)


def test_a_broken_request_is_counted_once() -> None:
    script = Script()
    assert script.send(framed(b"\0\3\0")) is CLOSE
    assert script.talk.context.counters.frames_malformed == 1
    assert "less than 8 bytes" in script.talk.close_reason, "what follows it in the buffer is not read"


def test_every_produce_is_counted_however_it_was_decided() -> None:
    admitted, refused = Script(rate=5), Script(rate=0)
    for number in range(3):
        assert admitted.send(produce(7, correlation_id=number, sequence=number)) is FORWARD
        assert refused.send(produce(7, correlation_id=number, sequence=number)) is TAKEN
    for script in (admitted, refused):
        assert script.talk.context.counters.requests[0] == 3


def test_a_frame_that_fills_the_shared_buffer_is_copied_out_of_it() -> None:
    """Other connections read into that buffer in the next turn."""
    script = Script(rate=0)
    script.send(produce(7))
    frame = frame_of(READ_BUFFER_BYTES, correlation_id=2)
    shared = bytearray(frame)
    assert script.talk.request(shared, 4, len(shared), 0) is TAKEN
    shared[:] = bytes(len(shared))
    assert script.talk.release(script.talk.muted_until_ms) == ([frame], False)


def test_a_large_produce_may_be_streamed_from_the_very_end_of_a_mute() -> None:
    script = Script(rate=5)
    script.send(produce(7))
    script.talk.context.mute(500)
    frame = produce(7, correlation_id=2, sequence=1, padding=10_000)
    passes = [script.talk.session.may_stream(frame[4:2_000], len(frame) - 4, at_ms) for at_ms in (499, 500)]
    assert passes == [False, True]


def test_a_handshake_of_version_0_is_answered_and_of_one_too_new_ends_the_connection() -> None:
    """Version 0 goes on with tokens that have no Kafka header."""
    script = Script()
    assert script.send(framed(bytes.fromhex("0011 0000 00000005 ffff 0005") + b"PLAIN")) is TAKEN
    assert script.talk.out[0][8:10] == UNSUPPORTED_VERSION.to_bytes(2, "big")
    assert script.send(framed(bytes.fromhex("0011 0063 00000006 ffff 0005") + b"PLAIN")) is CLOSE


def test_a_usual_produce_in_flight_keeps_its_producer_id_and_nothing_else() -> None:
    """A gateway has tens of thousands of them."""
    talk = Talk(Admission(Quotas(), lambda: 1, 0), Client("alice", "", "10.0.0.1", 1))
    one: list[tuple[int, bytes | None]] = [(0, record_batch(7))]
    many: list[tuple[int, bytes | None]] = [(at, record_batch(7)) for at in range(MOST_BATCHES_NOTED + 1)]
    for batches in (one, one, many):
        frame = framed(produce_request(9, [("orders", batches)], correlation_id=1))
        talk.request(frame, 4, len(frame), 0)
        assert talk.expect(1).note == 7
        talk.answered()


@pytest.mark.parametrize("version", [9, 12])
def test_an_answer_that_cannot_be_read_passes_unless_it_may_hold_addresses(version: int) -> None:
    """A client judges what its broker says; an address would lead it past the gateway."""
    script = Script(rate=5)
    script.send(framed(produce_request(version, [("orders", [(0, record_batch(7))])], correlation_id=1)))
    broken = framed((1).to_bytes(4, "big") + b"\0\x02" + b"\xff" * 20)
    if version == 9:
        assert script.talk.broker_answers(broken) is None
    else:
        with pytest.raises(MalformedFrame):
            script.talk.broker_answers(broken)


def test_an_answer_without_errors_or_addresses_is_not_walked() -> None:
    script = Script(rate=5)
    partition: dict[str, Any] = {
        **{"index": 0, "error_code": 0, "base_offset": 0, "log_append_time_ms": -1},
        **{"log_start_offset": 0, "record_errors": [], "error_message": None},
    }
    body = {
        "responses": [{"name": "orders", "partition_responses": [partition]}],
        "throttle_time_ms": 0,
    }
    for version in (9, 12):
        request = framed(produce_request(version, [("orders", [(0, record_batch(7))])], correlation_id=1))
        script.send(request)
        asked = script.talk.expect(1)
        answer = whole(raw.response(0, version, body, correlation_id=1))
        assert asked.api.handle_response(script.talk.context, asked, answer) is None
        script.talk.answered()
