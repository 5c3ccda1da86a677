"""Frames of real brokers and clients, as they went over the wire (without size prefix, in hex).

golden_frames.json: ApiVersions answers of Kafka 3.9.1 and 4.3.1 (to requests v0, v3, v4, and v9, which they do
not know), and all frames up to the end of SASL of three clients that log in as alice at Kafka 4.3.1 ("c" from the
client, "b" from the broker): librdkafka 2.16.0, kafka-python 3.0.12, aiokafka 0.14.0.
"""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from pidgate.protocol import messages
from pidgate.protocol.headers import peek_request
from pidgate.protocol.sasl import Identity, SaslExchange
from pidgate.protocol.versions import NOT_OFFERED, SPOKEN, WITHHELD_VERSIONS, cap_range
from tests.support.api_versions import api_versions_answer

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden_frames.json").read_text("utf-8"))
SHOWN_BY_BROKERS = [
    (kafka, int(version), bytes.fromhex(frame))
    for kafka, answers in GOLDEN["api_versions"].items()
    for version, frame in answers.items()
    if version != "9"
]


@pytest.mark.parametrize(("kafka", "version", "frame"), SHOWN_BY_BROKERS)
def test_every_range_that_a_broker_shows_is_accounted_for(kafka: str, version: int, frame: bytes) -> None:
    answer = api_versions_answer(frame, 0, len(frame), version)
    assert answer.error_code == 0
    for api_key, (low, high) in answer.ranges.items():
        assert (api_key in SPOKEN) != (api_key in NOT_OFFERED)
        offered = cap_range(api_key, low, high) or (0, -1)
        for missing in set(range(low, high + 1)) - set(range(offered[0], offered[1] + 1)):
            assert api_key in NOT_OFFERED or (api_key, missing) in WITHHELD_VERSIONS, kafka


@pytest.mark.parametrize(("kafka", "version", "frame"), SHOWN_BY_BROKERS)
def test_the_cut_answer_is_offered_as_a_whole(kafka: str, version: int, frame: bytes) -> None:
    before = api_versions_answer(frame, 0, len(frame), version).ranges
    cut = messages.cap_api_versions(frame, 0, len(frame), version)
    after = api_versions_answer(cut, 4, len(cut), version).ranges
    assert after == {key: cap_range(key, *both) for key, both in before.items() if cap_range(key, *both)}
    # What is cut in Kafka 4.3.1 and 3.9.1 today; everything else passes as the broker offers it.
    changed = {key for key in before if after.get(key) != before[key]}
    always = {24, 27}
    assert changed == (always | {83, 84, 85, 86, 87} if kafka == "4.3.1" else always)


@pytest.mark.parametrize("kafka", GOLDEN["api_versions"])
def test_brokers_answer_an_unknown_version_as_we_do(kafka: str) -> None:
    theirs = bytes.fromhex(GOLDEN["api_versions"][kafka]["9"])
    ours = messages.too_new_api_versions(7)[4:]
    # The last two bytes are the newest version that is known: v5 came with Kafka 4.4.
    assert ours[:-2] == theirs[:-2]
    assert ours[-2:] == b"\x00\x05"
    assert theirs[-2:] == b"\x00\x04"


@pytest.mark.parametrize("login", GOLDEN["sasl"])
def test_real_clients_are_recognised_at_the_brokers_last_word(login: str) -> None:
    client, mechanism = login.split()
    exchange, sent = SaslExchange(), []
    confirmed: list[Identity | None] = []
    for side, text in GOLDEN["sasl"][login]:
        frame = bytes.fromhex(text)
        if side == "c":
            whole = (frame, peek_request(frame, 0, len(frame)))
            sent.append(struct.unpack_from(">hh", frame))
            if sent[-1][0] == messages.SASL_HANDSHAKE:
                exchange.begin_exchange(messages.sasl_mechanism(*whole))
            elif sent[-1][0] == messages.SASL_AUTHENTICATE:
                exchange.record_client_token(messages.sasl_token(*whole))
            elif sent[-1][1] >= 3:
                software = messages.client_software(*whole)
                assert software is not None
                assert client in software[0] + software[1].replace("rdkafka", "librdkafka")
        else:
            api_key, api_version = sent.pop(0)
            if api_key == messages.SASL_HANDSHAKE:
                assert messages.sasl_handshake_answer(frame, 0, len(frame), api_version).error_code == 0
            elif api_key == messages.SASL_AUTHENTICATE:
                answer = messages.sasl_answer(frame, 0, len(frame), api_version)
                confirmed.append(exchange.record_broker_answer(*answer))
    identity = Identity("alice", mechanism)
    assert confirmed == ([identity] if mechanism == "PLAIN" else [None, identity])
    assert exchange.identity == identity
