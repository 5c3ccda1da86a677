"""The header peek against kio's writer, on every cut, and on any bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2

from pidgate.protocol.errors import MalformedFrame, UnsupportedVersion
from pidgate.protocol.headers import RequestHead, is_flexible, peek_request
from pidgate.protocol.versions import SPOKEN
from tests.support.frames import TEXT, serialize

OFFERED = st.sampled_from(
    [(key, v) for key, api in SPOKEN.items() for v in range(api.min_version, api.max_version + 1)]
)
INT32 = st.integers(-(2**31), 2**31 - 1)


def header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    cls = HeaderV2 if is_flexible(api_key, api_version) else HeaderV1
    return serialize(
        cls(
            request_api_key=api_key,  # type: ignore[arg-type]
            request_api_version=api_version,  # type: ignore[arg-type]
            correlation_id=correlation_id,  # type: ignore[arg-type]
            client_id=client_id,
        )
    )


@given(
    OFFERED, INT32, TEXT | st.none(), st.binary(max_size=5), st.binary(max_size=20), st.binary(max_size=20)
)
def test_reads_what_kio_wrote(
    api: tuple[int, int], correlation_id: int, client_id: str | None, before: bytes, body: bytes, after: bytes
) -> None:
    frame = header(*api, correlation_id, client_id)
    begin = len(before)
    body_at = begin + len(frame)
    for buf in (before + frame + body + after, memoryview(bytearray(before + frame + body + after))):
        head = peek_request(buf, begin, body_at + len(body))
        assert head == RequestHead(*api, correlation_id, client_id, body_at, begin, body_at + len(body))
        assert head.moved(3) == peek_request(b"abc" + bytes(buf), begin + 3, body_at + len(body) + 3)


@given(OFFERED, TEXT | st.none())
def test_every_cut_is_malformed(api: tuple[int, int], client_id: str | None) -> None:
    # The bytes after the cut are still in the buffer: they belong to another frame and must not help.
    frame = header(*api, 1, client_id)
    for end in range(len(frame)):
        with pytest.raises(MalformedFrame):
            peek_request(frame, 0, end)
        with pytest.raises(MalformedFrame):
            peek_request(frame[:end], 0, end)


def test_too_many_header_tags_are_refused() -> None:
    frame = header(0, 9, 1, "c")[:-1] + b"\x21" + b"\x01\x00" * 33
    with pytest.raises(MalformedFrame, match="33 fields"):
        peek_request(frame, 0, len(frame))


def test_client_id_that_is_not_utf_8_is_replaced() -> None:
    frame = header(0, 3, 1, "ab").replace(b"ab", b"a\xff")
    assert peek_request(frame, 0, len(frame)).client_id == "a\ufffd"


@pytest.mark.parametrize("api_key", [-1, 4, 7, 67, 999])
def test_an_api_that_is_not_offered_has_no_header_we_know(api_key: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + bytes(8)
    with pytest.raises(UnsupportedVersion) as raised:
        peek_request(frame, 0, len(frame))
    assert (raised.value.api_key, raised.value.api_version) == (api_key, 0)
    with pytest.raises(UnsupportedVersion):
        is_flexible(api_key, 0)
