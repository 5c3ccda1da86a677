"""A request's head is parsed once at most, whatever becomes of the request, and in one place."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.proxy.apis import api as apis
from pidgate.gateway.proxy.apis.produce import PRODUCE_API
from pidgate.gateway.proxy.apis.responses import Buffer
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.gateway.recording.recorder import Clocks, Identity, Recorder, RecorderSettings
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.versions import SPOKEN
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota
from pidgate.quota.decisions import Client
from pidgate.quota.settings import (
    ByteQuotas,
    ByteRates,
    Mode,
    ProducerIdSettings,
    Quotas,
    QuotasHolder,
    UserQuota,
)
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.import_graph import FOLDERS, ROOT, sources
from tests.support.meant_node import api_versions, meant
from tests.support.talk import Talk
from tests.support.topic_fields import named_in_each_field

OWN = "__pidgate_events"
PRODUCE, API_VERSIONS, ALTER_QUOTAS = 0, 18, 49
PARSER = "peek_request"
PARSED_IN = "pidgate/gateway/proxy/apis/api.py"

RATE = {"key": "producer_ids_rate", "value": 5.0, "remove": False}
ALTERATION = {
    "entries": [{"entity": [{"entity_type": "user", "entity_name": "bob"}], "ops": [RATE]}],
    "validate_only": False,
}


def produce(version: int, *topics: str) -> bytes:
    batch = record_batch(7, transactional=True)
    return framed(produce_request(version, [(topic, [(0, batch)]) for topic in topics], transactional_id="t"))


def cases() -> Iterator[Any]:
    """One request of each API, those that name a gateway topic in each of their fields, and what is refused."""
    for api_key, spoken in SPOKEN.items():
        if api_key != PRODUCE:
            newest = spoken.max_version
            frame = (
                api_versions(newest, meant("a-cluster", 7))
                if api_key == API_VERSIONS
                else raw.request(api_key, newest)
            )
            yield pytest.param(frame, id=spoken.name)
    for api_key, version, given in named_in_each_field(OWN):
        if version not in (SPOKEN[api_key].min_version, SPOKEN[api_key].max_version):
            continue
        label = f"{SPOKEN[api_key].name}-{version}-{next(iter(given))}"
        yield pytest.param(raw.request(api_key, version, given), id=label)
    for version in range(3, 13):
        yield pytest.param(produce(version, "orders"), id=f"Produce-{version}")
        yield pytest.param(produce(version, OWN), id=f"Produce-{version}-to a gateway topic")
    yield pytest.param(raw.request(ALTER_QUOTAS, 1, ALTERATION), id="AlterClientQuotas-ours")


CASES = list(cases())


class Script:
    """A recorded connection of a user who may bring no new id, with rates of bytes."""

    def __init__(self) -> None:
        ids = ProducerIdSettings(transactional=Mode.ENFORCE)
        rates = ByteQuotas(rates={("alice", None): ByteRates(1, 1)})
        quotas = Quotas(Mode.ENFORCE, ids, default=UserQuota.per_window(0), bytes=rates)
        client = Client("alice", "", "10.0.0.1", 1)
        clocks = Clocks(lambda: 0, lambda: 0)
        recorder = Recorder(
            lambda _key, _value: None, Identity("gw", "run"), clocks, RecorderSettings(), quotas
        )
        self.talk = Talk(
            Admission(quotas, lambda: 1, 0),
            client,
            gateway_topics=GatewayTopics([OWN]),
            byte_quota=ByteQuota(QuotasHolder(quotas)),
        )
        self.talk.context.recorder = ConnectionRecorder(
            recorder, client, self.talk.context.login.sasl, "main", 1
        )

    def send(self, frame: bytes) -> None:
        with contextlib.suppress(KafkaProtocolError):
            self.talk.request(frame, 4, len(frame), 1_000)


@pytest.fixture(name="parsed")
def count_parses(monkeypatch: pytest.MonkeyPatch) -> list[RequestHead]:
    """Heads that were parsed in this test."""
    found: list[RequestHead] = []

    def counted(buf: Buffer, start: int, end: int) -> RequestHead:
        found.append(peek_request(buf, start, end))
        return found[-1]

    monkeypatch.setattr(apis, "peek_request", counted)
    return found


@pytest.mark.parametrize("frame", CASES)
def test_a_head_is_parsed_once_at_most(frame: bytes, parsed: list[RequestHead]) -> None:
    Script().send(frame)
    assert len(parsed) <= 1


def test_a_refusal_needs_it_several_times(parsed: list[RequestHead]) -> None:
    """For the client id, the walk, the event's transactional id, and the answer."""
    scene = Script()
    scene.send(produce(9, "orders"))
    assert len(scene.talk.refused) == len(scene.talk.out) == 1
    assert len(parsed) == 1


@pytest.mark.parametrize("frame", CASES)
def test_what_was_held_is_not_parsed_again(frame: bytes, parsed: list[RequestHead]) -> None:
    scene = Script()
    scene.talk.context.mute(5_000)
    scene.send(frame)
    with contextlib.suppress(KafkaProtocolError):
        scene.talk.release(5_000)
    assert len(parsed) <= 1


def test_a_head_moves_with_its_frame() -> None:
    frame = produce(9, "orders")
    buf = b"before" + frame + b"behind"
    request = apis.Request(buf, 10, 6 + len(frame), PRODUCE_API)
    before = request.head
    request.copy_frame()
    assert request.head == before.moved(-6) == peek_request(frame, 4, len(frame))
    assert bytes(request.buf) == frame


# ---- one parser, called in one place ----------------------------------------------------------------------


def uses(tree: ast.Module) -> int:
    """Return how often a module imports or calls the parser."""
    return sum(
        any(name.name == PARSER for name in node.names)
        if isinstance(node, ast.ImportFrom)
        else isinstance(node, ast.Attribute) and node.attr == PARSER
        for node in ast.walk(tree)
    )


def test_one_module_parses_heads() -> None:
    texts = {path: (ROOT / path).read_text("utf-8") for path in sources(*FOLDERS)}
    found = [path for path, text in texts.items() if PARSER in text and uses(ast.parse(text))]
    assert found == [PARSED_IN]


@pytest.mark.parametrize(
    "text",
    ["from pidgate.protocol.headers import is_flexible, peek_request", "headers.peek_request(buf, 0, 9)"],
)
def test_a_second_place_would_be_noticed(text: str) -> None:
    assert uses(ast.parse(text)) == 1
