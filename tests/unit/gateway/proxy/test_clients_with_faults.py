"""What a connection does for a client library that a refusal or a told throttle harms (client_faults.py)."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from pidgate.client_faults import find_faults
from pidgate.gateway.logs import MOST_LINES_A_SECOND, Event
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.actions import LogClient
from pidgate.gateway.proxy.apis.api import FORWARD, LONGEST_UNTOLD_MS, TAKEN
from pidgate.gateway.proxy.apis.produce import HEARD_WITHIN_MS, LOOK_AGAIN_MS
from pidgate.gateway.proxy.refusal_log import DAY_MS, ClientLog
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Reason
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.talk import Talk

API_VERSIONS, INIT_PRODUCER_ID, PRODUCE = 18, 22, 0
HARMED = ("confluent-kafka-python", "2.4.0-rdkafka-2.4.0")
SARAMA = ("sarama", "dev")
OTHER = ("apache-kafka-java", "4.3.1")


class Named:
    """A connection of alice, who has one id an hour, with a client that calls itself so."""

    def __init__(self, software: tuple[str, str], *, rate: int = 1, max_throttle_ms: int = 10_000) -> None:
        ids = ProducerIdSettings(max_throttle_ms=max_throttle_ms)
        quotas = Quotas(Mode.ENFORCE, ids, default=UserQuota.per_window(rate))
        self.admission = Admission(quotas, lambda: 1, 0)
        self.counters = Counters()
        self.talk = Talk(self.admission, Client("alice", "", "10.0.0.1", 1), counters=self.counters)
        self.now_ms = 0
        name, version = software
        self.send(
            raw.request(
                API_VERSIONS,
                3,
                {"client_software_name": name, "client_software_version": version},
                correlation_id=1,
            )
        )
        self.talk.answered()

    def send(self, frame: bytes) -> int:
        return self.talk.request(frame, 4, len(frame), self.now_ms)

    def init(self) -> int:
        body = {
            "transactional_id": None,
            "transaction_timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        return self.send(raw.request(INIT_PRODUCER_ID, 4, body, correlation_id=2))

    def gives(self, producer_id: int) -> None:
        """The broker's answer to InitProducerId."""
        body = {"throttle_time_ms": 0, "error_code": 0, "producer_id": producer_id, "producer_epoch": 0}
        self.talk.broker_answers(raw.response(INIT_PRODUCER_ID, 4, body, correlation_id=2), self.now_ms)

    def produce(self, producer_id: int) -> int:
        request = produce_request(9, [("t", [(0, record_batch(producer_id))])], correlation_id=3)
        return self.send(framed(request))

    def spend(self) -> None:
        """Other connections of alice bring two ids."""
        for producer_id in (91, 92):
            self.admission.judge(
                Client("alice", "", "10.0.0.2", 2),
                [(producer_id, 0, 0, b"t", 0)],
                transactional=False,
                now_ms=self.now_ms,
            )

    def later(self, milliseconds: int) -> int:
        self.now_ms += milliseconds
        return len(self.talk.release(self.now_ms)[0])

    def answers(self, api_key: int, version: int) -> list[dict[str, Any]]:
        out = [raw.decoded(api_key, version, answer[4:]) for answer in self.talk.out]
        self.talk.out.clear()
        return out


@pytest.mark.parametrize(("software", "is_forwarded"), [(HARMED, FORWARD), (OTHER, TAKEN)])
def test_an_id_pays_when_it_is_given(software: tuple[str, str], is_forwarded: int) -> None:
    client = Named(software)
    assert client.init() is FORWARD
    client.gives(4_711)
    client.spend()
    assert client.produce(4_711) is is_forwarded


def test_without_a_token_none_is_given() -> None:
    client = Named(HARMED)
    client.spend()
    assert client.init() is TAKEN
    (answer,) = client.answers(INIT_PRODUCER_ID, 4)
    assert (answer["error_code"], answer["throttle_time_ms"]) == (14, 10_000)


def test_a_first_batch_waits_for_the_event_of_the_gateway_that_gave_the_id() -> None:
    client = Named(HARMED)
    client.spend()
    assert client.produce(4_711) is TAKEN
    assert client.later(LOOK_AGAIN_MS) == 0
    client.admission.state.admitted_elsewhere("alice", 4_711, client.now_ms, Reason.FIRST_SEEN)
    assert client.later(LOOK_AGAIN_MS) == 1
    assert not client.talk.refused


def test_without_an_event_it_is_refused_like_anybodys() -> None:
    client = Named(HARMED)
    client.spend()
    assert client.produce(4_711) is TAKEN
    client.later(HEARD_WITHIN_MS - 1)
    assert not client.talk.refused
    client.later(LOOK_AGAIN_MS)
    assert [refusal.reason for refusal in client.talk.refused] == [Reason.FIRST_SEEN]


@pytest.mark.parametrize(
    ("software", "told_ms", "muted_ms"), [(SARAMA, 0, LONGEST_UNTOLD_MS), (OTHER, 20_000, 20_000)]
)
def test_a_client_that_hangs_on_a_told_throttle_is_only_muted(
    software: tuple[str, str], told_ms: int, muted_ms: int
) -> None:
    client = Named(software, max_throttle_ms=20_000)
    client.spend()
    assert client.produce(4_711) is TAKEN
    while not client.talk.refused:
        client.later(LOOK_AGAIN_MS)
    (answer,) = client.answers(PRODUCE, 9)
    assert answer["throttle_time_ms"] == told_ms
    assert client.talk.muted_until_ms == client.now_ms + muted_ms


def test_a_fault_is_counted_for_each_connection_and_logged_once_a_day() -> None:
    client = Named(HARMED)
    assert client.counters.client_faults["librdkafka_2_2"] == 1
    assert Named(OTHER).counters.client_faults.total() == 0
    client_log, said = ClientLog(), LogClient(*HARMED, find_faults(*HARMED, ""))
    with structlog.testing.capture_logs() as lines:
        for now_ms in (0, 1_000, DAY_MS - 1, DAY_MS):
            client_log.note(said, lambda: {"client_id": "app"}, now_ms)
        for number in range(2 * MOST_LINES_A_SECOND):
            claim = LogClient("librdkafka", f"2.4.{number}", said.faults)
            client_log.note(claim, lambda: {"client_id": "app"}, DAY_MS)
    assert len(lines) == 1 + MOST_LINES_A_SECOND
    assert {line["event"] for line in lines} == {Event.CLIENT_WITH_FAULT}
    assert lines[0]["version"] == HARMED[1]


def test_sarama_without_a_name_is_known_by_its_client_id() -> None:
    """As its versions before 1.43 are by default, and before that without ApiVersions."""
    for frames in ([], [raw.request(API_VERSIONS, 2, {}, client_id="sarama", correlation_id=9)]):
        client = Named(OTHER)
        client.talk = Talk(client.admission, Client("alice", "", "10.0.0.1", 3), counters=client.counters)
        for frame in frames:
            client.send(frame)
            client.talk.answered()
        client.send(raw.request(3, 1, {"topics": []}, client_id="sarama", correlation_id=10))
        client.talk.answered()
        client.spend()
        assert client.init() is TAKEN
        assert client.counters.client_faults["sarama_without_name"] == 1
