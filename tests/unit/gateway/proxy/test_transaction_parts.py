"""AddPartitionsToTxn, AddOffsetsToTxn and TxnOffsetCommit make no producer state that the quota has not judged."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest

from pidgate.events.definitions import DecisionEvent
from pidgate.events.reading import from_json
from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, TAKEN
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.headers import peek_request
from pidgate.protocol.transaction_parts import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    TXN_OFFSET_COMMIT,
    transaction_part,
)
from pidgate.protocol.versions import SPOKEN
from pidgate.protocol.work import MOST_PARTITIONS
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.talk import Talk

WRITE_TXN_MARKERS, END_TXN = 27, 26
PARTS = [
    pytest.param(api_key, version, id=f"{SPOKEN[api_key].name} v{version}")
    for api_key in (ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT)
    for version in range(SPOKEN[api_key].max_version + 1)
]
TOPICS = {"orders": [0, 7], "sold": [3]}


def quotas(rate: int = 1, transactional: Mode = Mode.ENFORCE, mode: Mode = Mode.ENFORCE) -> Quotas:
    return Quotas(mode, ProducerIdSettings(transactional=transactional), default=UserQuota.per_window(rate))


def topic_id(name: str) -> UUID:
    return uuid5(NAMESPACE_DNS, name)


def part(
    api_key: int, version: int, producer_id: int, *, correlation_id: int = 1, topics: Any = None
) -> bytes:
    of = {"transactional_id": "tx", "producer_id": producer_id, "producer_epoch": 2}
    named = TOPICS if topics is None else topics
    if api_key == ADD_PARTITIONS_TO_TXN:
        of = {f"v3_and_below_{name}": value for name, value in of.items()}
        of["v3_and_below_topics"] = [{"name": name, "partitions": ids} for name, ids in named.items()]
    elif api_key == TXN_OFFSET_COMMIT:
        of["topics"] = [
            {
                "name": name,
                "topic_id": topic_id(name),
                "partitions": [
                    {"partition_index": one, "committed_offset": 5, "committed_metadata": "m" * one}
                    for one in ids
                ],
            }
            for name, ids in named.items()
        ]
        of |= {"generation_id": 4, "member_id": "member", "group_instance_id": None}
    if api_key != ADD_PARTITIONS_TO_TXN:
        of["group_id"] = "readers"
    return raw.request(api_key, version, of, correlation_id=correlation_id)


def produce(producer_id: int, sequence: int = 0) -> bytes:
    batch = record_batch(producer_id, 2, sequence, transactional=True)
    return framed(produce_request(9, [("orders", [(0, batch)])], transactional_id="tx", correlation_id=1))


class Script:
    """One connection of alice."""

    def __init__(self, its_quotas: Quotas) -> None:
        self.admission = Admission(its_quotas, lambda: 1, 0)
        self.values: list[bytes] = []
        self.quotas = its_quotas
        self.connect()

    def connect(self, number: int = 1) -> None:
        self.talk = Talk(self.admission, Client("alice", "", "10.0.0.1", number))
        recorder = Recorder(
            lambda _key, value: self.values.append(value),
            Identity("gw", "run"),
            Clocks(lambda: 0, lambda: 0),
            RecorderSettings(),
            self.quotas,
        )
        self.talk.context.recorder = ConnectionRecorder(
            recorder, self.talk.context.client, self.talk.context.login.sasl, "main", 7
        )

    def send(self, frame: bytes, now_ms: int = 0) -> int:
        step = self.talk.request(b"before" + frame + b"after", 10, 6 + len(frame), now_ms)
        if step is FORWARD:
            self.talk.answered()
        return step

    def decisions(self) -> list[DecisionEvent]:
        return [event for event in map(from_json, self.values) if isinstance(event, DecisionEvent)]


def errors_in(answer: object) -> list[int]:
    if isinstance(answer, list):
        return [code for one in answer for code in errors_in(one)]
    if isinstance(answer, dict):
        own = [answer["error_code"]] if "error_code" in answer else []
        own += [answer["partition_error_code"]] if "partition_error_code" in answer else []
        return own + [code for value in answer.values() for code in errors_in(value)]
    return []


def test_id_0_is_an_id_and_one_below_is_none() -> None:
    """Brokers give ids from 0 on, and refuse a request without one themselves."""
    script = Script(quotas(rate=0))
    assert script.send(part(ADD_OFFSETS_TO_TXN, 3, -1)) is FORWARD
    assert script.send(part(ADD_OFFSETS_TO_TXN, 3, 0)) is TAKEN


@pytest.mark.parametrize(("api_key", "version"), PARTS)
def test_new_ids_above_the_rate_are_sent_again_later(api_key: int, version: int) -> None:
    script = Script(quotas())
    assert [script.send(part(api_key, version, one)) for one in (1, 2)] == [FORWARD] * 2
    assert script.send(part(api_key, version, 3, correlation_id=77)) is TAKEN
    (framed,) = script.talk.out
    assert framed[4:8] == (77).to_bytes(4, "big")
    answer = raw.decoded(api_key, version, framed[4:])
    named = 1 if api_key == ADD_OFFSETS_TO_TXN else 3
    assert errors_in(answer) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * named
    assert answer["throttle_time_ms"] == 0, (
        "a throttled kafka-python may drop the request and commit without it"
    )
    assert script.talk.muted_until_ms > 0
    by_id = (api_key, version) == (TXN_OFFSET_COMMIT, 6)
    for name in TOPICS if named > 1 else ():
        assert (str(topic_id(name)) if by_id else f"'{name}'") in str(answer)
    assert script.send(part(api_key, version, 1)) is TAKEN, "behind the mute"
    script.connect(2)
    assert script.send(part(api_key, version, 1)) is FORWARD, "known, and free"


@pytest.mark.parametrize(("api_key", "version"), PARTS)
def test_what_was_judged_here_is_free_in_the_produce_and_the_other_way_round(
    api_key: int, version: int
) -> None:
    script = Script(quotas())
    assert script.send(part(api_key, version, 1)) is FORWARD
    assert script.send(produce(1)) is FORWARD
    assert script.send(produce(2)) is FORWARD
    assert script.send(part(api_key, version, 2)) is FORWARD
    assert [event.producer_id for event in script.decisions()] == [1, 2]
    assert {event.transactional_id_hash for event in script.decisions()} != {None}
    assert len({event.transactional_id_hash for event in script.decisions()}) == 1
    assert script.send(part(api_key, version, 3)) is TAKEN


def test_a_refused_one_passes_when_its_turn_has_come_and_so_do_its_records() -> None:
    script = Script(quotas())
    for one in (1, 2):
        script.send(part(TXN_OFFSET_COMMIT, 3, one))
    assert script.send(part(TXN_OFFSET_COMMIT, 3, 3)) is TAKEN
    script.connect(2)
    assert script.send(part(TXN_OFFSET_COMMIT, 3, 3), 3_600_000) is FORWARD
    assert script.send(produce(3), 3_600_000) is FORWARD
    assert script.decisions()[-1].waited_ms == 3_600_000


@pytest.mark.parametrize(
    "its_quotas", [quotas(0, Mode.OBSERVE), quotas(0, mode=Mode.OBSERVE)], ids=["transactional", "mode"]
)
def test_where_it_is_observed_it_goes_on_and_counts(its_quotas: Quotas) -> None:
    script = Script(its_quotas)
    assert script.send(part(TXN_OFFSET_COMMIT, 5, 1)) is FORWARD
    (event,) = script.decisions()
    assert (event.decision, event.would_refuse, event.transactional) == ("admit", True, True)
    assert (event.topic, event.partition) == ("__consumer_offsets", -1)


def test_it_makes_nothing_known_for_plain_use() -> None:
    its_quotas = quotas(1, Mode.OBSERVE)
    script = Script(its_quotas)
    for one in range(20):
        assert script.send(part(TXN_OFFSET_COMMIT, 3, one)) is FORWARD
    plain = [(19, 2, 0, b"orders", 0)]
    verdict = script.admission.judge(script.talk.context.client, plain, transactional=False, now_ms=0)
    assert getattr(verdict, "decisions", ()), "asked about anew"


def test_one_of_no_producer_is_the_brokers_to_refuse() -> None:
    assert Script(quotas(0)).send(part(TXN_OFFSET_COMMIT, 3, -1)) is FORWARD


def test_one_that_names_too_much_to_be_answered_ends_the_connection() -> None:
    topics = {"orders": list(range(MOST_PARTITIONS))}
    script = Script(quotas(0))
    assert script.send(part(ADD_PARTITIONS_TO_TXN, 3, 1, topics=topics)) is CLOSE
    assert script.talk.close_cause == "limit"
    assert Script(quotas(1)).send(part(ADD_PARTITIONS_TO_TXN, 3, 1, topics=topics)) is FORWARD


@pytest.mark.parametrize("name", ["", "t" * 250])
def test_no_name_that_no_topic_can_have_is_kept(name: str) -> None:
    frame = part(ADD_PARTITIONS_TO_TXN, 3, 1, topics={name: [0]})
    assert transaction_part(frame, peek_request(frame, 4, len(frame))).topic == b""
    frame = part(ADD_PARTITIONS_TO_TXN, 0, 1, topics={})
    assert transaction_part(frame, peek_request(frame, 4, len(frame))).topic == b""


@pytest.mark.parametrize(
    ("api_key", "version"), [(WRITE_TXN_MARKERS, 1), (WRITE_TXN_MARKERS, 2), (ADD_PARTITIONS_TO_TXN, 4)]
)
def test_what_is_withheld_ends_the_connection(api_key: int, version: int) -> None:
    frame = raw.request(END_TXN, 3, {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0})
    frame = frame[:4] + api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + frame[8:]
    script = Script(quotas())
    assert script.send(frame) is CLOSE
    assert script.talk.close_cause == "protocol"
