"""InitProducerId through one connection: refused with 14 and a mute, held while somebody is asked, told and counted."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import structlog

from pidgate.events.definitions import InitProducerIdEvent
from pidgate.events.reading import from_json
from pidgate.gateway.logs import Event
from pidgate.gateway.metrics.counters import INIT_REFUSED, Counters
from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, TAKEN
from pidgate.gateway.proxy.apis.producer_ids import InitProducerIdApi
from pidgate.gateway.proxy.refusal_log import RefusalLog
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings
from pidgate.names import LONGEST_NAME
from pidgate.protocol.messages import InitProducerIdRequest
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.rules import rule
from tests.support.talk import Talk

METADATA, SASL_HANDSHAKE, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 3, 17, 22, 36
COORDINATOR_LOAD_IN_PROGRESS = 14
VERSIONS = range(6)
LONGEST_MS = 10_000


def quotas(rate: int = 0, *, refuse: bool = True, mode: Mode = Mode.ENFORCE, **rates: int) -> Quotas:
    return Quotas(
        mode,
        ProducerIdSettings(refuse_init=refuse),
        default=UserQuota.per_window(rate),
        users={name: UserQuota.per_window(its_rate) for name, its_rate in rates.items()},
    )


def init(
    correlation_id: int = 1, version: int = 4, transactional_id: str | None = None, producer_id: int = -1
) -> bytes:
    body = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 60_000,
        "producer_id": producer_id,
        "producer_epoch": 0 if producer_id >= 0 else -1,
    }
    return raw.request(INIT_PRODUCER_ID, version, body, correlation_id=correlation_id)


def produce(producer_id: int, correlation_id: int) -> bytes:
    batch = record_batch(producer_id, 0, 0)
    return framed(produce_request(9, [("orders", [(0, batch)])], correlation_id=correlation_id))


def metadata(correlation_id: int) -> bytes:
    return raw.request(METADATA, 1, {"topics": []}, correlation_id=correlation_id)


class Script:
    """One connection of alice, or of whom it will turn out to be."""

    def __init__(self, its_quotas: Quotas | None = None, *, user: str = "alice") -> None:
        self.quotas = its_quotas or quotas()
        self.admission = Admission(self.quotas, lambda: 1, 0)
        self.client = Client(user, "", "10.0.0.1", 1)
        self.counters = Counters()
        self.talk = Talk(self.admission, self.client, counters=self.counters)
        self.now_ms = 0

    def send(self, frame: bytes) -> int:
        buf = b"before" + frame + b"after"
        return self.talk.request(buf, 10, 6 + len(frame), self.now_ms)

    def answers(self, version: int = 4) -> list[dict[str, Any]]:
        """Our answers to InitProducerId whose turn has come."""
        out = [raw.decoded(INIT_PRODUCER_ID, version, answer[4:]) for answer in self.talk.out]
        self.talk.out.clear()
        return out


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("producer_id", [-1, 4_711])
def test_the_answer_says_try_again_later_in_every_version(version: int, producer_id: int) -> None:
    """A request that names an id gets a new one from the broker, too, and so is refused."""
    script = Script()
    assert script.send(init(77, version, producer_id=producer_id)) is TAKEN
    assert script.talk.out[0][4:8] == (77).to_bytes(4, "big")
    (answer,) = script.answers(version)
    assert answer == {
        "throttle_time_ms": LONGEST_MS,
        "error_code": COORDINATOR_LOAD_IN_PROGRESS,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    assert script.talk.muted_until_ms == LONGEST_MS
    assert +script.counters.requests_refused == {INIT_REFUSED: 1}
    assert script.counters.requests[INIT_PRODUCER_ID] == 1
    assert script.talk.session.is_quiet


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["tx", ""])
def test_a_transactional_producer_always_passes(version: int, name: str) -> None:
    script = Script()
    assert script.send(init(5, version, name)) is FORWARD
    assert isinstance(script.talk.expect(5).api, InitProducerIdApi)
    assert script.talk.muted_until_ms == 0


@pytest.mark.parametrize(
    "its_quotas",
    [quotas(refuse=False), quotas(mode=Mode.OBSERVE), quotas(rate=5)],
    ids=["off", "observe", "ok"],
)
def test_who_may_have_one_is_answered_by_the_broker(its_quotas: Quotas) -> None:
    script = Script(its_quotas)
    assert script.send(init(5)) is FORWARD
    request = script.talk.expect(5)
    assert request.note == (None, -1, -1), "what the events tell of the request"
    assert not script.talk.refused


def test_it_is_held_behind_the_mute_and_refused_again_after_it() -> None:
    """A client that asks on without waiting costs one refusal for each throttle."""
    script = Script()
    assert [script.send(init(number)) for number in range(5)] == [TAKEN] * 5
    assert script.send(metadata(9)) is TAKEN
    assert len(script.answers()) == 1
    for number in range(1, 5):
        until_ms = script.talk.muted_until_ms
        assert script.talk.release(until_ms - 1) == ([], False)
        assert script.talk.release(until_ms) == ([], False)
        assert len(script.answers()) == 1
        assert script.talk.muted_until_ms == (number + 1) * LONGEST_MS
    assert script.talk.release(script.talk.muted_until_ms) == ([metadata(9)], False)


def test_the_answer_waits_for_what_is_in_flight() -> None:
    script = Script()
    script.send(metadata(1))
    script.send(init(2))
    assert script.answers() == []
    assert script.talk.muted_until_ms == LONGEST_MS
    script.talk.expect(1)
    script.talk.answered()
    assert len(script.answers()) == 1


def test_with_tokens_back_it_passes() -> None:
    script = Script(quotas(rate=1))
    for producer_id in (1, 2):
        assert script.send(produce(producer_id, producer_id)) is FORWARD
        script.talk.answered()
    assert script.send(init(3)) is TAKEN
    assert script.send(init(4)) is TAKEN
    assert script.talk.release(3_599_999) == ([], False)
    assert [answer["throttle_time_ms"] for answer in script.answers()] == [LONGEST_MS, 100]
    script.now_ms = 3_600_099
    assert script.send(init(5)) is FORWARD


def handshake(correlation_id: int) -> bytes:
    return raw.request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, correlation_id=correlation_id)


def authenticate(correlation_id: int, user: str) -> bytes:
    token = f"\0{user}\0secret".encode()
    return raw.request(SASL_AUTHENTICATE, 2, {"auth_bytes": token}, correlation_id=correlation_id)


def test_a_client_that_does_not_wait_for_its_authentication_does_not_get_around_it() -> None:
    script = Script(quotas(rate=100, mallory=0), user="ANONYMOUS")
    script.send(handshake(1))
    script.send(authenticate(2, "mallory"))
    assert script.send(init(3)) is TAKEN
    assert script.send(metadata(4)) is TAKEN
    assert script.talk.session.awaits_answer
    assert script.talk.release(0) == ([], False)
    script.talk.broker_answers(raw.response(17, 1, {"error_code": 0, "mechanisms": []}, correlation_id=1))
    assert script.talk.release(0) == ([], False)
    script.talk.broker_answers(raw.response(36, 2, {"error_code": 0, "auth_bytes": b""}, correlation_id=2))
    assert script.talk.release(0) == ([], False)
    assert [refusal.user for refusal in script.talk.refused] == ["mallory"]
    assert script.talk.release(script.talk.muted_until_ms) == ([metadata(4)], False)


# ---- when the quota's code raises an error -----------------------------------------------------------------


class Broken(ProducerIdQuota):
    """A state with a bug."""

    def decide(self, *_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("a bug")


@rule(
    "Requests forwarded undecided have a ceiling of ten times the user's rate, for each kind of id.",
    "failures",
)
@pytest.mark.parametrize("rate", [5, 0])
def test_where_the_quota_fails_it_passes_below_the_ceiling(rate: int) -> None:
    script = Script(quotas(rate=rate))
    script.admission.state = Broken(script.quotas, lambda: 1, 0)
    assert script.send(init(1)) is (FORWARD if rate else TAKEN)
    assert [(answer["error_code"], answer["throttle_time_ms"]) for answer in script.answers()] == (
        [] if rate else [(COORDINATOR_LOAD_IN_PROGRESS, 1_000)]
    )


def test_who_is_only_observed_goes_on_and_is_counted() -> None:
    script = Script(quotas(rate=0, mode=Mode.OBSERVE))
    assert script.send(init(1)) is FORWARD
    (alice,) = script.admission.user_snapshots(0)
    assert (alice.inits_refused, alice.inits_would_refuse) == (0, 1)


# ---- what is told ------------------------------------------------------------------------------------------


def test_the_event_says_that_no_broker_answered() -> None:
    values: list[bytes] = []
    script = Script()
    recorder = Recorder(
        lambda _key, value: values.append(value),
        Identity("gw", "run"),
        Clocks(lambda: 0, lambda: 0),
        RecorderSettings(),
        script.quotas,
    )
    script.talk.context.recorder = ConnectionRecorder(
        recorder, script.client, script.talk.context.login.sasl, "main", 7
    )
    script.send(init(1, producer_id=4_711))
    (event,) = [event for event in map(from_json, values) if isinstance(event, InitProducerIdEvent)]
    assert (event.error, event.node_id, event.transactional) == (COORDINATOR_LOAD_IN_PROGRESS, None, False)
    assert (event.asked_producer_id, event.asked_epoch) == (4_711, 0)
    assert (event.answered_producer_id, event.answered_epoch) == (-1, -1)


def test_the_log_says_so_once_a_second() -> None:
    refusal_log = RefusalLog()
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            script = Script()
            script.send(init())
            refusal_log.note(script.talk.refused[0], lambda: {"client_id": "app"}, 0)
        refusal_log.note(script.talk.refused[0], lambda: {"client_id": "app"}, 1_000)
    assert [(line["event"], line["suppressed_count"]) for line in lines] == [
        (Event.INIT_PRODUCER_ID_REFUSED, 0),
        (Event.INIT_PRODUCER_ID_REFUSED, 2),
    ]
    assert lines[0]["throttle_time_ms"] == LONGEST_MS


# Transactional ids


def limited_names(rate: int, mode: Mode = Mode.ENFORCE) -> Quotas:
    user = UserQuota(transactional_ids_rate_milli=1_000 * rate)
    return Quotas(mode, ProducerIdSettings(), users={"alice": user})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fresh_transactional_id_at_each_start_is_refused(version: int) -> None:
    script = Script(limited_names(2))
    for number in range(3):
        assert script.send(init(number, version, f"app-{number}")) is FORWARD
    assert script.send(init(3, version, "app-0")) is FORWARD
    assert script.send(init(4, version)) is FORWARD, "without one it is another quota's to say"
    assert script.send(init(5, version, "app-5")) is TAKEN
    assert script.talk.expect(0) is not None


@pytest.mark.parametrize("mode", Mode)
def test_an_unlimited_or_observed_user_goes_on(mode: Mode) -> None:
    script = Script(
        limited_names(0, Mode.OBSERVE) if mode is Mode.OBSERVE else quotas(rate=100, refuse=False)
    )
    for number in range(20):
        assert script.send(init(number, transactional_id=f"app-{number}")) is FORWARD


def test_an_empty_transactional_id_is_the_brokers_to_refuse() -> None:
    assert Script(limited_names(0)).send(init(transactional_id="")) is FORWARD


@rule("Tokens, names and client ids are kept to a bounded length.", "memory")
def test_what_is_kept_of_a_long_name_is_bounded_and_two_names_stay_two() -> None:
    script = Script(limited_names(1))
    for number in range(2):
        frame = init(number, transactional_id="n" * 30_000 + str(number))
        assert script.send(frame) is FORWARD
        note = getattr(script.talk.context.in_flight._in_order[-1], "note", None)
        assert isinstance(note, InitProducerIdRequest)
        assert len(note.transactional_id or "") == LONGEST_NAME
    assert script.send(init(2, transactional_id="n" * 30_000 + "2")) is TAKEN
    assert script.send(init(3, transactional_id="n" * 30_000 + "0")) is TAKEN, "known, and behind the mute"


def test_a_long_client_id_is_bounded_where_it_enters() -> None:
    script = Script(quotas(rate=100))
    frame = raw.request(METADATA, 1, {"topics": []}, correlation_id=1, client_id="c" * 30_000)
    script.send(frame)
    assert len(script.client.client_id) == LONGEST_NAME
    script.client.identify("u" * 10_000)
    assert len(script.client.user) == LONGEST_NAME


def test_a_string_that_kafka_refuses_is_refused() -> None:
    script = Script()
    assert script.send(init(1, 4, "n" * 32_768)) is CLOSE
    assert "a string of 32768 bytes" in script.talk.close_reason
