"""What a conversation tells the recorder: what was forwarded, and nothing that was held or refused."""

from typing import Any

import pytest

from pidgate.events.definitions import ConnectionEvent, DecisionEvent, Event, IdUsageEvent, ProduceErrorEvent
from pidgate.events.reading import from_json
from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, TAKEN
from pidgate.gateway.proxy.apis.produce import MOST_BATCHES_NOTED
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings
from pidgate.names import LONGEST_NAME
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.frames import framed, partition_errors, produce_request, record_batch
from tests.support.raw import request
from tests.support.talk import Talk

QUOTAS = Quotas(
    mode=Mode.ENFORCE,
    default=UserQuota.per_window(1),
    producer_ids=ProducerIdSettings(window_ms=10_000, max_throttle_ms=1_000),
)
METADATA, API_VERSIONS = 3, 18


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
