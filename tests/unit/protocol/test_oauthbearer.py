"""The name in a bearer token: read as Kafka reads the message around it, and only where it is certain."""

import json
import re
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.oauthbearer import (
    LONGEST_MESSAGE_BYTES,
    LONGEST_TOKEN_BYTES,
    MOST_PAIRS,
    principal_in,
    token_in,
)
from tests.support.bearer import bearer, encoded, jwt


@pytest.mark.parametrize(
    "message",
    [
        bearer(jwt(sub="alice")),
        bearer(jwt(sub="alice", groups=["a", {"b": None}], exp=1.5, iat=10**30)),
        bearer(jwt(sub="alice"), start=b"n,a=alice,\x01"),
        bearer(jwt(sub="alice"), start=b"n,a=bob\x01=2C=3D,\x01"),  # the broker compares it
        bearer(jwt(sub="alice"), scheme=b"bEARER  "),
        bearer(jwt(sub="alice"), more=b"traceId=1 2,3\t\r\n\x01x==\x01"),
        # Of one name the last counts, as in Kafka.
        b"n,,\x01auth=Bearer "
        + jwt(sub="bob").encode()
        + b"\x01auth=Bearer "
        + jwt(sub="alice").encode()
        + b"\x01\x01",
        b"n,,\x01auth=nothing\x01auth=Bearer " + jwt(sub="alice").encode() + b"\x01\x01",
        bearer(jwt(sub="alice") + "=="),  # as if its signature were padded
        bearer(jwt(sub="alice") + "~+/"),
        bearer(".".join(["", encoded(b'{"sub":"alice"}'), "signature"])),
    ],
)
def test_the_name_in_a_token(message: bytes) -> None:
    assert principal_in(message, "sub") == "alice"


def test_another_claim() -> None:
    token = jwt(sub="f3a1", preferred_username="alice")
    assert principal_in(bearer(token), "preferred_username") == "alice"
    assert principal_in(bearer(token), "email") is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01",
        bearer(jwt(sub="alice"))[:-1],
        bearer(jwt(sub="alice"))[:-2],
        bearer(jwt(sub="alice")) + b"\x01",
        bearer(jwt(sub="alice"), start=b"n,\x01"),
        bearer(jwt(sub="alice"), start=b"y,,\x01"),
        bearer(jwt(sub="alice"), start=b"n,a=,\x01"),
        bearer(jwt(sub="alice"), start=b"n,a=a=b,\x01"),
        bearer(jwt(sub="alice"), scheme=b"Basic "),
        bearer(jwt(sub="alice"), scheme=b"Bearer"),
        bearer(jwt(sub="alice"), scheme=b"Bearer\t"),
        bearer(jwt(sub="alice"), scheme=b" Bearer "),
        bearer(jwt(sub="alice"), more=b"1=x\x01"),
        bearer(jwt(sub="alice"), more=b"x=\x01"),
        bearer(jwt(sub="alice"), more=b"x=\xc3\xa9\x01"),
        bearer(jwt(sub="alice"), more=b"auth=Bearer x\x01"),
    ],
)
def test_a_message_that_kafka_does_not_understand_names_nobody(message: bytes) -> None:
    assert principal_in(message, "sub") is None


@pytest.mark.parametrize(
    "claims",
    [
        b"",
        b"{}",
        b"[]",
        b'"sub"',
        b"null",
        b'{"sub": 1}',
        b'{"sub": null}',
        b'{"sub": ["alice"]}',
        b'{"sub": {"sub": "alice"}}',
        b'{"sub": ""}',
        b'{"sub": " alice"}',
        b'{"sub": "alice\\n"}',
        b'{"sub": "\\u0000PLAIN"}',
        b'{"sub": "al\\u0000ice"}',
        b'{"sub": "\\ud800"}',
        b'{"sub": "al\xffice"}',
        '{"sub": "alice"}'.encode("utf-16"),
        b'{"sub": "alice", "sub": "bob"}',
        b'{"sub": "alice", "x": {"y": 1, "y": 2}}',
        b'{"sub": "alice"} x',
        b'{"sub": "alice"',
        b'{"x": ' + 8_000 * b"[" + 8_000 * b"]" + b', "sub": "alice"}',
        b'{"x": ' + 2_000 * b'{"a":' + b"1" + 2_000 * b"}" + b', "sub": "alice"}',
    ],
)
def test_a_token_that_is_no_jwt_with_a_name_names_nobody(claims: bytes) -> None:
    assert principal_in(bearer(f"{encoded(b'{}')}.{encoded(claims)}.signature"), "sub") is None


@pytest.mark.parametrize(
    "token", ["opaque", "a.b", "a.b.c", "..", "....", "a.b.c.d.e", ".e.", ".-_-.", ".!!."]
)
def test_an_opaque_token_names_nobody(token: str) -> None:
    assert principal_in(bearer(token), "sub") is None


def test_digits_without_end_cost_nothing() -> None:
    claims = b'{"x": ' + 20_000 * b"9" + b', "sub": "alice"}'
    assert principal_in(bearer(f".{encoded(claims)}."), "sub") == "alice"


def test_a_long_token_names_nobody_and_what_a_client_adds_to_a_short_one_changes_nothing() -> None:
    """Its length is the issuer's; around it a client may write what it likes."""
    assert principal_in(bearer(jwt(sub="alice", x=LONGEST_TOKEN_BYTES * "x")), "sub") is None
    message = bearer(jwt(sub="alice"))
    room = LONGEST_MESSAGE_BYTES - len(message) - len(b"x=\x01")
    assert principal_in(bearer(jwt(sub="alice"), more=b"x=" + room * b"x" + b"\x01"), "sub") == "alice"
    for more in (b"x=" + (room + 1) * b"x" + b"\x01", MOST_PAIRS * b"x=x\x01"):
        with pytest.raises(MalformedFrame, match="OAUTHBEARER"):
            principal_in(bearer(jwt(sub="alice"), more=more), "sub")


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs"]), min_size=1))
def test_every_name_is_read(name: str) -> None:
    assert principal_in(bearer(jwt(sub=name)), "sub") == name


@given(
    st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.text() | st.integers(), st.lists))
)
def test_whatever_json_has_the_claim_or_not(claims: dict[str, Any]) -> None:
    found = principal_in(bearer(f".{encoded(json.dumps(claims).encode())}."), "sub")
    assert found is None or found == claims["sub"]


KAFKAS_START = re.compile(r"n,(?:a=(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+)?,\x01")
"""As OAuthBearerClientInitialResponse has it."""


@given(
    st.lists(st.sampled_from(["a=", "=2C", "=3D", "=", "x", ",", "\0", "\x01", "\x7f", "n,"]), max_size=8),
    st.sampled_from(["n,", "n", "y,"]),
    st.sampled_from([",\x01", ",", "\x01"]),
)
def test_the_beginning_is_searched_for_as_kafkas_pattern_matches_it(
    authzid: list[str], begin: str, end: str
) -> None:
    message = begin + "".join(authzid) + end + "auth=bearer a\x01\x01"
    start = KAFKAS_START.match(message)
    is_token = start is not None and message[start.end() :] == "auth=bearer a\x01\x01"
    assert (token_in(message.encode()) == "a") is is_token


def longest(begin: bytes, repeated: bytes, end: bytes) -> bytes:
    room = LONGEST_MESSAGE_BYTES - len(begin) - len(end)
    return begin + (repeated * room)[:room] + end


@pytest.mark.parametrize(
    "message",
    [
        longest(b"n,a=", b"x", b""),
        longest(b"n,a=", b"x", b",\x01auth=bearer x\x01\x01"),
        longest(b"n,a=", b"=2C", b",\x01\x01"),
        longest(b"n,,\x01a=", b" ", b"\x01\x01"),
        longest(b"n,,\x01", b"a", b"\x01\x01"),
        longest(b"n,,\x01auth=bearer ", b" ", b"\x01\x01"),
        longest(b"n,,\x01auth=bearer ", b"a", b",\x01\x01"),
    ],
)
def test_the_longest_messages_keep_nobody_waiting(message: bytes) -> None:
    """They are searched in C, without lines that could be counted: 1 to 4 ms of CPU time, where it was 60."""

    def taken_s() -> float:
        before = thread_time()
        principal_in(message, "sub")
        return thread_time() - before

    assert min(taken_s() for _ in range(5)) < 0.010
