"""Brokers' answers to requests of the gateway's own, and those that show delegation tokens; compared with kio."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from pidgate.protocol import codec, producer_requests
from pidgate.protocol.delegation_tokens import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    NewToken,
    created_token,
    described_tokens,
    new_token,
)
from pidgate.protocol.error_texts import WITH_ERROR_TEXTS, hide_hosts
from pidgate.protocol.frames import framed
from pidgate.protocol.messages import SASL_AUTHENTICATE
from pidgate.protocol.produce import PRODUCE
from pidgate.protocol.transaction_parts import ADD_PARTITIONS_TO_TXN
from pidgate.protocol.work import at_once
from tests.fuzz.kio_oracle import SELECTOR, kios, parts, seeds
from tests.fuzz.requests import REFUSALS, NotTaken
from tests.fuzz.target import Target
from tests.support import raw

# ---- delegation tokens ----------------------------------------------------------------------------------

_ASKED_VERSION: Final = 3
"""In which the gateway asks for a token itself."""


def _tokens(data: bytes) -> object:
    """The owners that are shown, and the token as the gateway reads one of its own."""
    api_key, version, frame = parts(data, CREATE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN)
    if api_key == DESCRIBE_DELEGATION_TOKEN:
        return at_once(described_tokens(frame, 0, len(frame), version)), None
    found = created_token(frame, 0, len(frame), version)
    own = new_token(frame, 0, len(frame)) if version == _ASKED_VERSION else None
    return [] if found is None else [found], own


def _same_tokens(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    owners, own = found
    api_key, version, frame = parts(data)
    if (entity := kios(api_key, version, frame)) is None:
        return
    shown = entity.tokens if api_key == DESCRIBE_DELEGATION_TOKEN else (entity,)
    if api_key == CREATE_DELEGATION_TOKEN and entity.error_code:
        shown = ()
    theirs = [(token.token_id, token.principal_name) for token in shown if _is_a_users(token)]
    assert owners == theirs
    if isinstance(own, NewToken):
        assert own.error_code == entity.error_code
        if not own.error_code:
            assert own.token_id == entity.token_id
            assert base64.b64decode(own.password) == entity.hmac
            life = entity.expiry_timestamp - entity.issue_timestamp
            assert own.life_ms == max(0, round(life.total_seconds() * 1000))


def _is_a_users(token: Any) -> bool:
    name = token.principal_name
    return bool(token.principal_type == "User" and name and "\0" not in name and token.token_id)


# ---- what the gateway and `pidgate load` ask themselves -------------------------------------------------

_READERS: Final[dict[tuple[int, int], Callable[[bytes], object]]] = {
    (PRODUCE, producer_requests.PRODUCE_VERSION): producer_requests.produce_answer,
    (PRODUCE, producer_requests.PRODUCE_BY_ID_VERSION): lambda frame: producer_requests.produce_answer(
        frame, producer_requests.PRODUCE_BY_ID_VERSION
    ),
    (
        producer_requests.FIND_COORDINATOR,
        producer_requests.FIND_COORDINATOR_VERSION,
    ): producer_requests.find_coordinator_answer,
    (
        ADD_PARTITIONS_TO_TXN,
        producer_requests.ADD_PARTITIONS_TO_TXN_VERSION,
    ): producer_requests.add_partition_to_txn_answer,
    (
        SASL_AUTHENTICATE,
        producer_requests.SASL_AUTHENTICATE_VERSION,
    ): producer_requests.sasl_authenticate_answer,
}


def _own(data: bytes) -> object:
    api_key, version, frame = parts(data)
    if (api_key, version) not in _READERS:
        raise NotTaken
    has_throttle = api_key not in (PRODUCE, SASL_AUTHENTICATE)
    return _READERS[api_key, version](frame), producer_requests.throttle_time_ms(
        frame
    ) if has_throttle else None


def _same_own(data: bytes, found: object) -> None:
    ours, throttle_ms = cast("tuple[Any, int | None]", found)
    api_key, version, frame = parts(data)
    if (entity := kios(api_key, version, frame)) is None:
        return
    if api_key == PRODUCE:
        codes = [one.error_code for topic in entity.responses for one in topic.partition_responses]
        failed = [code for code in codes if code]
        assert (ours.error_code, ours.failed) == (failed[0] if failed else 0, len(failed))
        assert ours.throttle_time_ms == round(entity.throttle_time.total_seconds() * 1000)
    elif api_key == producer_requests.FIND_COORDINATOR:
        assert (ours.error_code, ours.host, ours.port) == (entity.error_code, entity.host, entity.port)
        assert throttle_ms == round(entity.throttle_time.total_seconds() * 1000)
    elif api_key == ADD_PARTITIONS_TO_TXN:
        topics = entity.results_by_topic_v3_and_below
        if topics and topics[0].results_by_partition:
            assert ours == topics[0].results_by_partition[0].partition_error_code
    else:
        assert (ours.error_code, ours.reason) == (entity.error_code, entity.error_message)
        assert ours.token == entity.auth_bytes
        assert ours.session_lifetime_ms == round(entity.session_lifetime.total_seconds() * 1000)


def _own_seeds() -> Iterator[bytes]:
    keys = sorted({api_key for api_key, _ in _READERS})
    return (data for data in seeds(*keys)() if SELECTOR.unpack_from(data) in _READERS)


# ---- error texts ----------------------------------------------------------------------------------------

_HOST: Final = "k1.internal"


def _hidden(data: bytes) -> object:
    """What is left of an answer in whose error texts a host is hidden; the frame itself without one."""
    api_key, version, frame = parts(data, *WITH_ERROR_TEXTS)
    codec.decode_response(api_key, version, frame, 0, len(frame))
    return hide_hosts(api_key, version, frame, 0, len(frame), [_HOST]) or framed(frame)


def _same_hidden(data: bytes, found: object) -> None:
    assert isinstance(found, bytes)
    api_key, version, frame = parts(data)
    again = codec.decode_response(api_key, version, found, 4, len(found)).to_dict()
    if _HOST.encode() not in frame:
        assert found[4:] == frame
    else:
        before = codec.decode_response(api_key, version, frame, 0, len(frame)).to_dict()
        assert again.keys() == before.keys()


def _text_seeds() -> Iterator[bytes]:
    yield from seeds(*WITH_ERROR_TEXTS)()
    for version in (0, 1):
        answer = {"responses": [{"error_message": f"listeners=SSL://{_HOST}:9093", "resource_name": "1"}]}
        yield SELECTOR.pack(44, version) + raw.response(44, version, answer)[4:]


TARGETS: Final = (
    Target("error_texts", _hidden, _same_hidden, _text_seeds, REFUSALS),
    Target(
        "delegation_tokens",
        _tokens,
        _same_tokens,
        seeds(CREATE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN),
        REFUSALS,
    ),
    Target("own_answers", _own, _same_own, _own_seeds, REFUSALS),
)
