"""What a conversation tells the recorder: what was forwarded, and nothing that was held or refused."""

from typing import Any

import pytest

from pidgate.events.definitions import (
    ConnectionEvent,
    DecisionEvent,
    Event,
    IdUsageEvent,
    InitProducerIdEvent,
    ProduceErrorEvent,
)
from pidgate.events.reading import from_json
from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, TAKEN
from pidgate.gateway.proxy.apis.produce import MOST_BATCHES_NOTED
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings
from pidgate.names import LONGEST_NAME
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.entities import BY_CERTIFICATE
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.frames import framed, partition_errors, produce_request, record_batch
from tests.support.raw import decoded, request, response
from tests.support.talk import Talk

QUOTAS = Quotas(
    mode=Mode.ENFORCE,
    default=UserQuota.per_window(1),
    producer_ids=ProducerIdSettings(window_ms=10_000, max_throttle_ms=1_000),
)
METADATA, API_VERSIONS = 3, 18
SASL_HANDSHAKE, SASL_AUTHENTICATE, INIT_PRODUCER_ID, END_TXN = 17, 36, 22, 26


class Scene:
    """One connection's conversation with a recorder; a rate of 1 lets ids 1 and 2 in."""

    def __init__(self, quotas: Quotas = QUOTAS) -> None:
        self.values: list[bytes] = []
        self.recorder = Recorder(
            lambda _key, value: self.values.append(value),
            Identity("gw", "run"),
            Clocks(lambda: 0, lambda: 0),
            RecorderSettings(),
            quotas,
        )
        client = Client("alice", "", "10.0.0.1", 1)
        self.conversation = Talk(Admission(quotas, lambda: 1, 0), client)
        self.told = ConnectionRecorder(self.recorder, client, self.conversation.context.login.sasl, "main", 1)
        self.conversation.context.recorder = self.told

    def send(self, frame: bytes, now_ms: int = 0) -> Any:
        whole = bytearray(framed(frame))
        return self.conversation.request(whole, 4, len(whole), now_ms)

    def produce(
        self, *producer_ids: int, now_ms: int = 0, sequence: int = 0, acks: int = -1, count: int = 5
    ) -> Any:
        partitions: list[tuple[int, bytes | None]] = [
            (index, record_batch(producer_id, base_sequence=sequence, count=count))
            for index, producer_id in enumerate(producer_ids)
        ]
        return self.send(produce_request(9, [("orders", partitions)], acks=acks, client_id="etl"), now_ms)

    def events(self, kind: type[Event]) -> list[Any]:
        return [event for event in map(from_json, self.values) if isinstance(event, kind)]

    def usage(self) -> dict[int, tuple[int, int]]:
        """Requests and records by id."""
        self.told.closed("client")
        return {event.producer_id: (event.requests, event.records) for event in self.events(IdUsageEvent)}


def test_what_is_forwarded_counts() -> None:
    scene = Scene()
    assert scene.produce(1) is FORWARD
    assert scene.produce(1, sequence=5, count=7) is FORWARD
    assert scene.produce(1, sequence=12, acks=0) is FORWARD
    assert scene.usage() == {1: (3, 17)}
    assert [event.requests for event in scene.events(ConnectionEvent) if event.phase == "close"] == [3]


def test_what_is_refused_is_decided_and_does_not_count() -> None:
    scene = Scene()
    # The second one goes into debt, the third is refused, and the fourth is held behind the mute.
    for producer_id in (1, 2, 3, 4):
        scene.produce(producer_id)
    refused = [event for event in scene.events(DecisionEvent) if event.decision == "refuse"]
    assert [event.producer_id for event in refused] == [3]
    assert len(scene.conversation.held) == 1
    assert scene.usage() == {1: (1, 5), 2: (1, 5)}


def test_what_was_held_counts_once_when_it_goes_on() -> None:
    scene = Scene()
    for producer_id in (1, 2, 3):
        scene.produce(producer_id)
    assert scene.produce(4) is TAKEN
    assert scene.send(request(METADATA, 12, {"topics": None})[4:]) is TAKEN
    forwarded, _ = scene.conversation.release(100_000)
    assert len(forwarded) == 2
    assert scene.told.requests == 5
    assert scene.usage() == {1: (1, 5), 2: (1, 5), 4: (1, 5)}


def test_a_refusal_without_an_answer_is_decided_too() -> None:
    scene = Scene(Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(0)))
    assert scene.produce(1, acks=0) is CLOSE
    assert [(event.decision, event.reason) for event in scene.events(DecisionEvent)] == [
        ("refuse", "blocked")
    ]
    assert scene.usage() == {}


def test_the_software_is_known_by_the_time_the_connection_is_told() -> None:
    scene = Scene()
    scene.send(request(API_VERSIONS, 3)[4:])
    assert scene.values == []
    scene.send(request(METADATA, 12, {"topics": None})[4:])
    (opened,) = scene.events(ConnectionEvent)
    assert (opened.phase, opened.software_name, opened.software_version) == ("open", "raw", "1")
    assert opened.client_id == "raw"


def software_kept(scene: Scene) -> tuple[str, str]:
    """What a connection keeps of a software whose names are as long as Kafka lets them be."""
    names = {"client_software_name": "a" * 32_767, "client_software_version": "1" * 32_767}
    assert scene.send(request(API_VERSIONS, 3, names)[4:]) is FORWARD
    return scene.told.software


def test_of_a_software_no_more_is_kept_than_of_other_names() -> None:
    """It comes before any login, and stays for as long as the connection does."""
    assert [len(name) for name in software_kept(Scene())] == [LONGEST_NAME, LONGEST_NAME]


@pytest.mark.parametrize("batches", [1, 2, MOST_BATCHES_NOTED, MOST_BATCHES_NOTED + 1])
def test_an_error_is_of_the_id_that_wrote_to_the_partition(batches: int) -> None:
    scene = Scene(Quotas())
    ids = [7] * (batches - 1) + [8]
    scene.produce(*ids)
    asked = scene.conversation.expect(7).note
    entry = b"\0\6orders" + (1).to_bytes(4, "big") + (batches - 1).to_bytes(4, "big") + b"\0\x2d" + bytes(24)
    answer = (7).to_bytes(4, "big") + (1).to_bytes(4, "big") + entry + bytes(4)
    scene.told.produce_answered(asked, partition_errors(answer, 0, len(answer), 7))
    scene.told.closed("client")
    # Of a request with very many batches it is not kept which id wrote where: real clients send no more than one.
    expected = 8 if batches <= MOST_BATCHES_NOTED else 7
    assert [(event.producer_id, event.code) for event in scene.events(ProduceErrorEvent)] == [(expected, 45)]


def test_the_bytes_of_all_requests_of_an_id_count_wherever_they_lie_in_the_buffer() -> None:
    scene, sent = Scene(), 0
    for number in range(3):
        batch: list[tuple[int, bytes | None]] = [(0, record_batch(1, base_sequence=5 * number, count=5))]
        frame = framed(produce_request(9, [("orders", batch)], client_id="etl"))
        buf = bytes(1_000) + frame
        assert scene.conversation.request(buf, 1_004, len(buf), 0) is FORWARD
        sent += len(frame) - 4
    scene.told.closed("client")
    assert [(event.requests, event.bytes) for event in scene.events(IdUsageEvent)] == [(3, sent)]


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_streamed_request_counts_as_any_other(acks: int) -> None:
    scene = Scene(Quotas())
    scene.produce(1, acks=acks)
    partitions: list[tuple[int, bytes | None]] = [
        (0, record_batch(1, base_sequence=5, count=5, records=bytes(100_000)))
    ]
    frame = framed(produce_request(9, [("orders", partitions)], acks=acks, client_id="etl"))
    session = scene.conversation.session
    assert session.may_stream(frame[4:1_000], len(frame) - 4, 0)
    session.has_streamed(len(frame) - 4, 0)
    assert scene.conversation.context.counters.requests[0] == 2
    assert len(scene.conversation.context.in_flight) == (2 if acks else 0)
    assert scene.usage() == {1: (2, 10)}
    assert [event.requests for event in scene.events(ConnectionEvent) if event.phase == "close"] == [2]


def test_what_was_used_before_a_login_stays_with_the_user_of_then() -> None:
    scene = Scene(Quotas())
    scene.produce(1)
    scene.conversation.answered()
    scene.send(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})[4:])
    scene.conversation.broker_answers(response(SASL_HANDSHAKE, 1, {"error_code": 0, "mechanisms": []}))
    scene.send(request(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0carol\0secret"})[4:])
    accepted = {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": 0}
    scene.conversation.broker_answers(response(SASL_AUTHENTICATE, 2, accepted))
    scene.produce(1, sequence=5)
    scene.told.closed("client")
    assert [event.requests for event in scene.events(IdUsageEvent)] == [1, 1]


def test_a_user_by_certificate_is_told_as_such() -> None:
    scene = Scene(Quotas())
    scene.conversation.certified("bob", is_login=True)
    scene.produce(1)
    (opened,) = scene.events(ConnectionEvent)
    assert (opened.user, opened.principal_mechanism) == ("bob", BY_CERTIFICATE)


@pytest.mark.parametrize(("error_code", "producer_id"), [(0, 4_711), (0, 0), (0, -1), (53, -1)])
def test_a_new_id_is_known_and_told_from_the_broker_s_answer(error_code: int, producer_id: int) -> None:
    scene = Scene(Quotas())
    body = {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1}
    scene.send(request(INIT_PRODUCER_ID, 4, body)[4:])
    answer = {"error_code": error_code, "producer_id": producer_id, "producer_epoch": 3}
    assert scene.conversation.broker_answers(response(INIT_PRODUCER_ID, 4, answer), now_ms=5) is None
    (event,) = scene.events(InitProducerIdEvent)
    assert (event.error, event.answered_producer_id, event.answered_epoch) == (error_code, producer_id, 3)
    owner = scene.conversation.context.admission.owners.owner(producer_id)
    assert (owner is not None and owner.user) == (error_code == 0 and producer_id >= 0 and "alice")


@pytest.mark.parametrize(
    ("error_code", "new_id", "inherits"),
    [(0, 4_712, True), (0, 4_711, False), (0, -1, False), (53, 4_712, False)],
)
def test_an_id_given_at_the_end_of_a_transaction_inherits(
    error_code: int, new_id: int, inherits: bool
) -> None:
    """KIP-890: the broker changes the id once its epochs are used up."""
    scene = Scene(Quotas())
    batch = record_batch(4_711, transactional=True)
    scene.send(produce_request(9, [("orders", [(0, batch)])], transactional_id="tx"))
    scene.conversation.answered()
    body = {"transactional_id": "tx", "producer_id": 4_711, "producer_epoch": 0, "committed": True}
    scene.send(request(END_TXN, 5, body)[4:])
    answer = {"error_code": error_code, "producer_id": new_id, "producer_epoch": 0}
    assert scene.conversation.broker_answers(response(END_TXN, 5, answer)) is None
    given = [event.answered_producer_id for event in scene.events(InitProducerIdEvent)]
    told = [event.producer_id for event in scene.events(DecisionEvent) if event.reason == "inherited"]
    assert (given, told) == (([new_id], [new_id]) if inherits else ([], []))


def test_an_answer_with_an_error_is_told_and_shows_the_gateway_s_address_of_the_new_leader() -> None:
    scene = Scene(Quotas())
    scene.conversation.at.translate = lambda node_id, host, port: ("gateway", 19_000 + node_id)
    scene.send(produce_request(12, [("orders", [(0, record_batch(1))])], correlation_id=77))
    partition: dict[str, Any] = {
        **{"index": 0, "error_code": 6, "base_offset": -1, "log_append_time_ms": -1},
        **{"log_start_offset": -1, "record_errors": [], "error_message": None},
        "current_leader": {"leader_id": 2, "leader_epoch": 1},
    }
    body = {
        "responses": [{"name": "orders", "partition_responses": [partition]}],
        "throttle_time_ms": 0,
        "node_endpoints": [{"node_id": 2, "host": "broker-2", "port": 9092, "rack": None}],
    }
    answer = scene.conversation.broker_answers(response(0, 12, body))
    assert answer is not None
    (endpoint,) = decoded(0, 12, answer[4:])["node_endpoints"]
    assert (endpoint["host"], endpoint["port"]) == ("gateway", 19_002)
    scene.told.closed("client")
    assert [(event.producer_id, event.code) for event in scene.events(ProduceErrorEvent)] == [(1, 6)]
