"""The hand-read messages against an independent codec, the ApiVersions cut, the guard around the codec."""

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.protocol import codec, messages
from pidgate.protocol.errors import FrameTooLarge, KafkaProtocolError, MalformedFrame, UnsupportedVersion
from pidgate.protocol.frames import framed, uvarint
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.versions import SPOKEN, cap_range, speaks
from tests.support.api_versions import api_versions_answer
from tests.support.rules import rule

NAMES = st.text(max_size=40)
IDS = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
ERRORS = st.integers(-1, 130)


def made(api_key: int, kind: Literal["request", "response"], version: int, **fields: Any) -> bytes:
    """A framed message as kafka-python writes it."""
    message = codec.message_class(api_key, kind)(version=version, **fields)
    if kind == "request":
        return codec.encode_request(77, "client", message)
    return codec.encode_response(77, message)


def inside(frame: bytes) -> tuple[bytes, int, int]:
    """The frame as callers hold it: somewhere in a larger buffer, without its size prefix."""
    return b"before" + frame[4:] + b"after", 6, 6 + len(frame) - 4


def request_inside(frame: bytes) -> tuple[bytes, RequestHead]:
    buf, start, end = inside(frame)
    return buf, peek_request(buf, start, end)


# Producer ids


@given(st.integers(0, 5), st.none() | NAMES, IDS, EPOCHS)
def test_init_producer_id_request(version: int, name: str | None, producer_id: int, epoch: int) -> None:
    frame = made(
        22,
        "request",
        version,
        transactional_id=name,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    wanted = (name, producer_id, epoch) if version >= 3 else (name, -1, -1)
    assert messages.init_producer_id_request(*request_inside(frame)) == wanted


@given(st.integers(0, 5), ERRORS, IDS, EPOCHS)
def test_init_producer_id_answer(version: int, error_code: int, producer_id: int, epoch: int) -> None:
    frame = made(
        22,
        "response",
        version,
        throttle_time_ms=9,
        error_code=error_code,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    answer = messages.init_producer_id_answer(*inside(frame), version)
    assert answer == (error_code, producer_id, epoch)


@given(st.integers(0, 5), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_init_producer_id_refused(version: int, correlation_id: int, throttle_time_ms: int) -> None:
    message = codec.message_class(22, "response")(
        version=version,
        throttle_time_ms=throttle_time_ms,
        error_code=14,
        producer_id=-1,
        producer_epoch=-1,
    )
    wanted = codec.encode_response(correlation_id, message)
    assert messages.init_producer_id_refused(correlation_id, version, throttle_time_ms) == wanted


@pytest.mark.parametrize("version", [-1, 6])
def test_another_version_of_init_producer_id_is_not_answered(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        messages.init_producer_id_refused(1, version, 100)


@given(st.integers(0, 5), NAMES, IDS, EPOCHS, st.booleans())
def test_end_txn_request(version: int, name: str, producer_id: int, epoch: int, committed: bool) -> None:
    frame = made(
        26,
        "request",
        version,
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=committed,
    )
    assert messages.end_txn_request(*request_inside(frame)) == (name, producer_id, epoch, committed)


@given(st.integers(0, 5), ERRORS, IDS, EPOCHS)
def test_end_txn_answer(version: int, error_code: int, producer_id: int, epoch: int) -> None:
    fields = {"producer_id": producer_id, "producer_epoch": epoch} if version >= 5 else {}
    frame = made(26, "response", version, throttle_time_ms=0, error_code=error_code, **fields)
    wanted = (error_code, producer_id, epoch) if version >= 5 else (error_code, -1, -1)
    assert messages.end_txn_answer(*inside(frame), version) == wanted


# SASL


@pytest.mark.parametrize("version", [0, 1])
def test_sasl_handshake_refused(version: int) -> None:
    frame = messages.sasl_handshake_refused(77, version)
    assert frame == made(17, "response", version, error_code=35, mechanisms=[])


def test_a_handshake_of_unknown_layout_is_not_answered() -> None:
    with pytest.raises(UnsupportedVersion):
        messages.sasl_handshake_refused(77, 2)


@given(st.integers(0, 2), st.binary(max_size=300))
def test_sasl_token(version: int, token: bytes) -> None:
    assert messages.sasl_token(*request_inside(made(36, "request", version, auth_bytes=token))) == token


@given(st.integers(0, 2), ERRORS, st.none() | NAMES, st.binary(max_size=300))
def test_sasl_answer(version: int, error_code: int, text: str | None, token: bytes) -> None:
    fields = {"session_lifetime_ms": 3_600_000} if version >= 1 else {}
    frame = made(
        36, "response", version, error_code=error_code, error_message=text, auth_bytes=token, **fields
    )
    assert messages.sasl_answer(*inside(frame), version) == (error_code, token)


# ApiVersions

RANGES = st.dictionaries(
    st.integers(0, 120), st.tuples(st.integers(0, 12), st.integers(0, 20)).map(sorted), max_size=110
)


def api_versions(version: int, ranges: dict[int, list[int]], error_code: int = 0) -> bytes:
    cls = codec.message_class(18, "response")
    keys = [
        cls.ApiVersion(version=version, api_key=key, min_version=low, max_version=high)
        for key, (low, high) in ranges.items()
    ]
    fields: dict[str, Any] = {"throttle_time_ms": 250} if version >= 1 else {}
    if version >= 3:
        feature = cls.SupportedFeatureKey(version=version, name="kraft.version", min_version=0, max_version=1)
        level = cls.FinalizedFeatureKey(
            version=version, name="kraft.version", max_version_level=1, min_version_level=0
        )
        fields |= {
            "supported_features": [feature],
            "finalized_features_epoch": 44,
            "finalized_features": [level],
            "zk_migration_ready": True,
        }
    return made(18, "response", version, error_code=error_code, api_keys=keys, **fields)


@given(st.integers(0, 4), RANGES)
def test_ranges_are_cut_and_all_else_is_kept(version: int, ranges: dict[int, list[int]]) -> None:
    """Cutting what the broker said gives what a broker of the cut ranges would have said, byte for byte."""
    wanted = {key: cap_range(key, *both) for key, both in ranges.items()}
    cut = {key: list(both) for key, both in wanted.items() if both is not None}
    result = messages.cap_api_versions(*inside(api_versions(version, ranges)), version)
    assert result == api_versions(version, cut)
    answer = api_versions_answer(*inside(result), version)
    assert answer == (0, {key: tuple(both) for key, both in cut.items()})


@pytest.mark.parametrize("tag_bytes", [0, 20_000])
def test_the_same_answer_to_another_request_has_the_number_of_that(tag_bytes: int) -> None:
    """Also where the answer is too large to be remembered."""
    tags = b"\x01\x63" + uvarint(tag_bytes) + bytes(tag_bytes)
    body = struct.pack(">hBhhhB", 0, 2, 0, 0, 99, 0) + bytes(4) + tags
    for correlation_id in (1, 2, 1 << 30):
        number = struct.pack(">i", correlation_id)
        frame = framed(number, body)
        cut = struct.pack(">hBhhhB", 0, 2, 0, 0, 13, 0)
        assert messages.cap_api_versions(frame, 4, len(frame), 3) == framed(number, cut, bytes(4), tags)


@rule("Unknown tagged fields survive a rewrite.", "protocol")
def test_unknown_tags_survive_the_cut() -> None:
    entry_tag = b"\x01" + uvarint(300) + b"\x03abc"
    tail = b"\x00\x00\x00\x05" + b"\x02" + b"\x01\x08" + bytes(8) + uvarint(4000) + b"\x02hi"
    head = struct.pack(">ih", 9, 0)

    def answer(*entries: bytes) -> bytes:
        return framed(head, bytes((len(entries) + 1,)), *entries, tail)

    kept = struct.pack(">hhh", 0, 0, 13) + entry_tag
    frame = answer(struct.pack(">hhh", 0, 0, 99) + entry_tag, struct.pack(">hhh", 67, 0, 0) + entry_tag)
    assert messages.cap_api_versions(frame, 4, len(frame), 3) == answer(kept)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_broker_that_does_not_know_the_version_answers_in_v0(version: int) -> None:
    frame = api_versions(0, {18: [0, 9], 67: [0, 0]}, error_code=35)
    result = messages.cap_api_versions(*inside(frame), version)
    assert result == api_versions(0, {18: [0, 5]}, error_code=35)


def test_client_software() -> None:
    fields = {"client_software_name": "librdkafka", "client_software_version": "2.16.1"}
    for version in (3, 4):
        assert messages.client_software(*request_inside(made(18, "request", version, **fields))) == tuple(
            fields.values()
        )
    assert messages.client_software(*request_inside(made(18, "request", 2))) is None


def test_own_probes_are_what_the_codec_would_write() -> None:
    fields = {"client_software_name": "pidgate", "client_software_version": "0.1.0"}
    version = messages.API_VERSIONS_PROBE_VERSION
    assert messages.api_versions_request(77, "client", "0.1.0") == made(18, "request", version, **fields)
    fields_of_metadata = {
        "topics": [],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    version = messages.METADATA_PROBE_VERSION
    assert messages.metadata_request(77, "client") == made(3, "request", version, **fields_of_metadata)
    assert speaks(3, version)


# Broken frames


def of_request(read: Callable[[bytes, RequestHead], Any]) -> Callable[[bytes, int, int], Any]:
    return lambda buf, start, end: read(buf, peek_request(buf, start, end))


READERS: dict[str, tuple[bytes, Callable[[bytes, int, int], Any]]] = {
    "init request": (
        made(22, "request", 4, transactional_id="tx", transaction_timeout_ms=1),
        of_request(messages.init_producer_id_request),
    ),
    "init request v1": (
        made(22, "request", 1, transactional_id="tx", transaction_timeout_ms=1),
        of_request(messages.init_producer_id_request),
    ),
    "init answer": (
        made(22, "response", 4, error_code=0, producer_id=5, producer_epoch=0),
        lambda buf, start, end: messages.init_producer_id_answer(buf, start, end, 4),
    ),
    "end request": (made(26, "request", 5, transactional_id="tx"), of_request(messages.end_txn_request)),
    "end answer": (
        made(26, "response", 5, error_code=0, producer_id=5, producer_epoch=0),
        lambda buf, start, end: messages.end_txn_answer(buf, start, end, 5),
    ),
    "mechanism": (made(17, "request", 1, mechanism="PLAIN"), of_request(messages.sasl_mechanism)),
    "token": (made(36, "request", 2, auth_bytes=b"\0u\0p"), of_request(messages.sasl_token)),
    "token v1": (made(36, "request", 1, auth_bytes=b"\0u\0p"), of_request(messages.sasl_token)),
    "sasl answer": (
        made(36, "response", 2, error_code=0, error_message="no", auth_bytes=b"x"),
        lambda buf, start, end: messages.sasl_answer(buf, start, end, 2),
    ),
    "cap": (
        api_versions(3, {0: [0, 13], 18: [0, 4]}),
        lambda buf, start, end: messages.cap_api_versions(buf, start, end, 3),
    ),
    "cap v1": (
        api_versions(1, {0: [0, 13], 18: [0, 4]}),
        lambda buf, start, end: messages.cap_api_versions(buf, start, end, 1),
    ),
    "software": (
        made(18, "request", 3, client_software_name="a", client_software_version="b"),
        of_request(messages.client_software),
    ),
    "codec request": (
        made(48, "request", 1, components=[], strict=True),
        of_request(codec.decode_request),
    ),
    "codec request v0": (
        made(17, "request", 1, mechanism="PLAIN"),
        of_request(codec.decode_request),
    ),
}
WHOLE_TAIL_READ = {"cap", "cap v1", "codec request", "codec request v0", "mechanism", "token v1"}


@pytest.mark.parametrize("name", READERS)
def test_every_truncation_is_noticed_or_harmless(name: str) -> None:
    frame, read = READERS[name]
    whole = read(frame, 4, len(frame))
    for end in range(4, len(frame)):
        try:
            value = read(frame[:end], 4, end)
        except MalformedFrame:
            continue
        # Fields after the last one that is wanted (tags, a lifetime) are not looked at.
        assert name not in WHOLE_TAIL_READ
        assert value == whole


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_damage_gives_a_value_or_a_protocol_error(name: str, data: st.DataObject) -> None:
    frame, read = READERS[name]
    damaged = bytearray(frame)
    for at, byte in data.draw(st.lists(st.tuples(st.integers(4, len(frame) - 1), st.integers(0, 255)))):
        damaged[at] = byte
    damaged += data.draw(st.binary(max_size=20))
    try:
        read(bytes(damaged), 4, len(damaged))
    except KafkaProtocolError:
        return


@pytest.mark.parametrize(
    "read", [messages.sasl_token, messages.init_producer_id_request, messages.client_software]
)
def test_another_api_is_refused(read: Callable[[bytes, RequestHead], Any]) -> None:
    frame = made(3, "request", 9, topics=[])
    head = peek_request(frame, 4, len(frame))
    with pytest.raises(UnsupportedVersion):
        read(frame, head)


# The guard around kafka.protocol


def test_the_codec_is_not_loaded_before_it_is_needed() -> None:
    script = (
        "import sys; from pidgate.protocol import messages, sasl, versions; "
        "frame = messages.metadata_request(1, 'x'); "
        "assert not [name for name in sys.modules if name.split('.')[0] == 'kafka']"
    )
    root = Path(messages.__file__).parents[2]
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True, timeout=60)


@rule("The gateway compares every count with a bound before building objects.", "memory")
def test_long_frames_do_not_reach_the_codec() -> None:
    frame = made(36, "request", 0, auth_bytes=bytes(codec.MAX_DECODED_BYTES))
    with pytest.raises(FrameTooLarge):
        codec.decode_request(frame, peek_request(frame, 4, len(frame)))


def test_what_kafka_takes_for_null_is_null_to_the_codec_or_refused() -> None:
    """Java reads 00 as the length of null; of a topic that may not be null it refuses the request."""
    frame = made(20, "request", 5, topic_names=["a"], timeout_ms=5)
    name_at = frame.index(b"\x02a")
    broken = frame[:name_at] + b"\x00" + frame[name_at + 2 :]
    with pytest.raises(MalformedFrame):
        codec.decode_request(broken, peek_request(broken, 4, len(broken)))


def test_versions_not_offered_do_not_reach_the_codec() -> None:
    frame = made(24, "request", 4, transactions=[])
    with pytest.raises(UnsupportedVersion):
        codec.decode_request(frame, peek_request(frame, 4, len(frame)))
    with pytest.raises(UnsupportedVersion):
        codec.decode_response(24, 4, b"\x00\x00\x00\x07\x00", 0, 5)
    with pytest.raises(UnsupportedVersion):
        codec.message_class(67, "request")


@pytest.mark.parametrize("version", range(SPOKEN[20].max_version + 1))
def test_what_was_decoded_can_be_encoded(version: int) -> None:
    """DeleteTopics: the codec's own decode leaves an object that its encode cannot take."""
    names = {"topic_names": ["a", "b"]} if version < 6 else {"topics": []}
    frame = made(20, "request", version, timeout_ms=5, **names)
    message = codec.decode_request(frame, peek_request(frame, 4, len(frame)))
    assert codec.encode_request(77, "client", message) == frame
