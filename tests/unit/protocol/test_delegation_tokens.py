"""Owners of delegation tokens in brokers' answers, in every version, and their passwords nowhere."""

import base64

import pytest

from pidgate.protocol.codec import decode_request
from pidgate.protocol.delegation_tokens import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    NewToken,
    create_token_request,
    created_token,
    described_tokens,
    new_token,
)
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.headers import peek_request
from pidgate.protocol.work import at_once
from tests.support import raw

VERSIONS = [0, 1, 2, 3]
"""Of v0, which Kafka 4 has no more, answers are those of v1."""
SECRET = b"hunter2"


def created(version: int, **fields: object) -> bytes:
    body = {"principal_type": "User", "principal_name": "alice", "token_id": "id-1", "hmac": SECRET, **fields}
    requester = {"token_requester_principal_type": "User", "token_requester_principal_name": "admin"}
    return raw.response(CREATE_DELEGATION_TOKEN, max(version, 1), {**requester, **body})[4:]


def described(version: int, owners: dict[str, str], kind: str = "User") -> bytes:
    renewers = [{"principal_type": "User", "principal_name": "bob"}] * 2
    tokens = [
        {
            "principal_type": kind,
            "principal_name": owner,
            "token_requester_principal_type": "User",
            "token_requester_principal_name": "admin",
            "token_id": token_id,
            "hmac": SECRET,
            "renewers": renewers,
        }
        for token_id, owner in owners.items()
    ]
    return raw.response(DESCRIBE_DELEGATION_TOKEN, max(version, 1), {"tokens": tokens})[4:]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_owner_of_a_new_token(version: int) -> None:
    frame = created(version)
    assert created_token(frame, 0, len(frame), version) == ("id-1", "alice")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "fields",
    [
        {"error_code": 65, "token_id": ""},
        {"principal_type": "Group"},
        {"principal_name": ""},
        {"principal_name": "\0PLAIN"},
        {"token_id": ""},
    ],
)
def test_what_is_no_token_of_a_user(version: int, fields: dict[str, object]) -> None:
    frame = created(version, **fields)
    assert created_token(frame, 0, len(frame), version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_owners_of_all_that_are_described(version: int) -> None:
    owners = {"id-1": "alice", "id-2": "bob", "id-3": "alice"}
    frame = described(version, owners)
    found = at_once(described_tokens(frame, 0, len(frame), version))
    assert dict(found) == owners
    assert SECRET.decode() not in str(found)
    frame = described(version, owners, kind="Group")
    assert at_once(described_tokens(frame, 0, len(frame), version)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_cut_short_is_malformed(version: int) -> None:
    frame = described(version, {"id-1": "alice"})
    for end in range(len(frame) - 8):
        with pytest.raises(KafkaProtocolError):
            at_once(described_tokens(frame, 0, end, version))


# ---- tokens that the gateway takes for users


def test_a_token_is_asked_for_another_owner() -> None:
    frame = create_token_request(7, "pidgate", "CN=joe,O=acme")
    request = decode_request(frame, peek_request(frame, 4, len(frame)))
    assert (request.owner_principal_type, request.owner_principal_name) == ("User", "CN=joe,O=acme")
    assert (request.renewers, request.max_lifetime_ms) == ([], -1)
    assert peek_request(frame, 4, len(frame))[:3] == (CREATE_DELEGATION_TOKEN, 3, 7)


def test_a_new_token_is_read_and_its_password_is_not_shown() -> None:
    times = {"issue_timestamp_ms": 1_000, "expiry_timestamp_ms": 61_000, "max_timestamp_ms": 99_000}
    frame = created(3, **times)
    token = new_token(frame, 0, len(frame))
    assert (token.error_code, token.token_id, token.life_ms) == (0, "id-1", 60_000)
    assert base64.b64decode(token.password) == SECRET
    assert token.password not in repr(token)


def test_where_none_was_given_the_error_says_why() -> None:
    frame = created(3, error_code=65, token_id="")
    assert new_token(frame, 0, len(frame)) == NewToken(65)


def test_a_token_s_answer_that_is_cut_short_is_malformed() -> None:
    frame = created(3)
    for end in range(4, len(frame) - 5):  # the throttle and the tags behind the password are not read
        with pytest.raises(KafkaProtocolError):
            new_token(frame, 0, end)
