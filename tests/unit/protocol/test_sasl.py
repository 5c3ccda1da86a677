"""The identity out of SASL exchanges: only after success, only the right one, and never a secret."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.names import LONGEST_NAME, bounded
from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.sasl import (
    LONGEST_TOKEN_BYTES,
    Identity,
    SaslExchange,
)
from tests.support.bearer import bearer, jwt
from tests.support.rules import rule

REFUSED = 58
SCRAM = "SCRAM-SHA-512"
FIRST_ANSWER = b"r=abcdef,s=c2FsdA==,i=4096"
FINAL_ANSWER = b"v=cHJvb2Y="
CLIENT_FINAL = b"c=biws,r=abcdef,p=cHJvb2Y="
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", SCRAM, "GSSAPI", "OAUTHBEARER", "", "plain"]


def begun(mechanism: str) -> SaslExchange:
    exchange = SaslExchange()
    exchange.begin_exchange(mechanism)
    return exchange


def scram(exchange: SaslExchange, client_first: bytes, mechanism: str = SCRAM) -> Identity | None:
    """A whole successful SCRAM exchange."""
    exchange.begin_exchange(mechanism)
    exchange.record_client_token(client_first)
    assert exchange.record_broker_answer(0, FIRST_ANSWER) is None
    exchange.record_client_token(CLIENT_FINAL)
    return exchange.record_broker_answer(0, FINAL_ANSWER)


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0pw",
        b"alice\0alice\0pw",
        b"\0alice\0",
        b"\0alice\0pw\0more",  # Kafka reads three parts of it
        b"\0alice\0p\xffw",
    ],
)
def test_plain(token: bytes) -> None:
    exchange = begun("PLAIN")
    exchange.record_client_token(token)
    assert exchange.identity is None
    assert exchange.record_broker_answer(0, b"") == Identity("alice", "PLAIN")
    assert exchange.identity == Identity("alice", "PLAIN")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice",
        b"\0alice",
        b"bob\0alice\0pw",  # acting for another: Kafka refuses it, somebody else might not
        b"\0\0pw",
        b"\0al\xffice\0pw",
        "\0alice\0pw".encode("utf-16"),
    ],
)
def test_a_plain_token_that_is_not_understood_is_nobody(token: bytes) -> None:
    exchange = begun("PLAIN")
    exchange.record_client_token(token)
    assert exchange.record_broker_answer(0, b"") == Identity(None, "PLAIN")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("client_first", "user"),
    [
        (b"n,,n=alice,r=abc", "alice"),
        (b"n,a=alice,n=alice,r=abc", "alice"),
        (b"n,,n=a=2Cb=3Dc,r=abc", "a,b=c"),
        (b"n,,n==3D2C,r=abc", "=2C"),
        (b"n,,n=CN=3Dalice=2CO=3Dx,r=abc,tokenauth=false", "CN=alice,O=x"),
        (b"n,,m=x,n=alice,r=abc", "alice"),
        ("n,,n=grüße,r=abc".encode(), "grüße"),
        # Kafka's ScramExtensions: names are exact, and of one name the last counts.
        (b"n,,n=alice,r=abc,TOKENAUTH=true", "alice"),
        (b"n,,n=alice,r=abc,tokenauth=true,tokenauth=no", "alice"),
        (b"n,,n=alice,r=abc,tokenauth=true=", "alice"),
        (b"n,,n=" + LONGEST_NAME * b"a" + b",r=abc", LONGEST_NAME * "a"),
    ],
)
def test_scram(mechanism: str, client_first: bytes, user: str) -> None:
    assert scram(SaslExchange(), client_first, mechanism) == Identity(user, mechanism)


@pytest.mark.parametrize(
    "client_first",
    [
        b"",
        b"n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=alice",
        b"n,,n=al=2cice,r=abc",  # only =2C and =3D, in capitals
        b"n,,n=al=ice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=al\xffice,r=abc",
        b"n,,n=alice,r=abc,tokenauth=",
        b"n,,n=alice,r=abc,1=x",
        b"n,,n=alice,r=abc\n",
        b"n,,n=alice,r=a\0bc",
        b"n,,n=alice,r=",
        b"n,,n==3=2CD,r=abc",
        b"n,,m=,n=alice,r=abc",
    ],
)
def test_a_client_first_that_is_not_understood_is_nobody(client_first: bytes) -> None:
    assert scram(SaslExchange(), client_first) == Identity(None, SCRAM)


@pytest.mark.parametrize(
    "client_first",
    [
        b"n,,n=id-1,r=abc,tokenauth=true",
        b"n,,n=id-1,r=abc,x=y,tokenauth=TRUE,z=1",
        b"n,,n=id-1,r=abc,tokenauth=false,tokenauth=True",
    ],
)
def test_with_a_delegation_token_the_name_is_its_id_and_nobodys(client_first: bytes) -> None:
    assert scram(SaslExchange(), client_first) == Identity(None, SCRAM, "id-1")


def an_extension_makes_nobody_else_of_a_user() -> bool:
    """The rule: only the extension whose name is exactly that of Kafka's makes a token's id of the name."""
    written = (b"TOKENAUTH=true", b"TokenAuth=true", b"xtokenauth=true", b"tokenauthx=true")
    shed = [scram(SaslExchange(), b"n,,n=alice,r=abc," + extension) for extension in written]
    return shed == [Identity("alice", SCRAM)] * len(written)


def test_only_the_exact_extension_makes_a_token_of_a_name() -> None:
    assert an_extension_makes_nobody_else_of_a_user()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=LONGEST_NAME))
def test_every_name_survives_scrams_escapes(name: str) -> None:
    escaped = name.replace("=", "=3D").replace(",", "=2C").encode()
    assert scram(SaslExchange(), b"n,,n=" + escaped + b",r=abc") == Identity(name, SCRAM)


@pytest.mark.parametrize("final", [(REFUSED, b""), (REFUSED, FINAL_ANSWER), (0, b""), (0, b"e=other-error")])
def test_scram_without_the_brokers_proof_is_no_success(final: tuple[int, bytes]) -> None:
    exchange = begun(SCRAM)
    exchange.record_client_token(b"n,,n=alice,r=abc")
    exchange.record_broker_answer(0, FIRST_ANSWER)
    exchange.record_client_token(CLIENT_FINAL)
    assert exchange.record_broker_answer(*final) is None
    assert exchange.identity is None


def test_a_refusal_is_no_success() -> None:
    exchange = begun("PLAIN")
    exchange.record_client_token(b"\0alice\0wrong")
    assert exchange.record_broker_answer(REFUSED, b"") is None
    assert exchange.identity is None


def test_after_a_refused_first_message_no_name_is_left() -> None:
    exchange = begun(SCRAM)
    exchange.record_client_token(b"n,,n=alice,r=abc")
    exchange.record_broker_answer(REFUSED, b"")
    exchange.record_client_token(CLIENT_FINAL)
    assert exchange.record_broker_answer(0, FINAL_ANSWER) == Identity(None, SCRAM)


def test_an_answer_to_nothing_is_no_success() -> None:
    assert begun("PLAIN").record_broker_answer(0, b"") is None
    assert begun(SCRAM).record_broker_answer(0, FINAL_ANSWER) is None


@rule("A second SaslAuthenticate before the response to the first closes the connection.", "identity")
def test_a_second_token_before_the_answer_ends_the_connection() -> None:
    """No client sends one, and whose success the next answer is could be guessed only."""
    exchange = begun(SCRAM)
    exchange.record_client_token(b"n,,n=mallory,r=abc")
    with pytest.raises(MalformedFrame, match="second SaslAuthenticate"):
        exchange.record_client_token(CLIENT_FINAL)


def test_whoever_is_let_in_again_and_again_stays_who_he_is() -> None:
    """Brokers answer further tokens with an error, and keep the connection."""
    exchange = begun("PLAIN")
    exchange.record_client_token(b"\0alice\0pw")
    exchange.record_broker_answer(0, b"")
    for _ in range(100):
        exchange.record_client_token(b"\0alice\0pw")
        assert exchange.record_broker_answer(34, b"") is None
        assert exchange.identity == Identity("alice", "PLAIN")


@rule("Tokens, names and client ids are kept to a bounded length.", "memory")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", SCRAM])
@pytest.mark.parametrize("kind", [b"\0", b"n,,n=", b"n,,n=a,r=a", b",a=b", b"c="])
def test_a_token_that_is_too_long_ends_the_connection(mechanism: str, kind: bytes) -> None:
    token = (kind * (LONGEST_TOKEN_BYTES + 1))[: LONGEST_TOKEN_BYTES + 1]
    begun(mechanism).record_client_token(token[:-1])
    with pytest.raises(MalformedFrame, match="16384"):
        begun(mechanism).record_client_token(token)


@pytest.mark.parametrize("name", ["a" * (LONGEST_NAME + 1), "ü" * 5_000])
def test_a_name_is_kept_in_part_only(name: str) -> None:
    exchange = begun("PLAIN")
    exchange.record_client_token(f"\0{name}\0pw".encode())
    assert exchange.record_broker_answer(0, b"") == Identity(bounded(name), "PLAIN")
    assert scram(SaslExchange(), f"n,,n={name},r=abc".encode()) == Identity(bounded(name), SCRAM)


def test_the_name_of_one_exchange_is_not_confirmed_by_another() -> None:
    exchange = begun(SCRAM)
    exchange.record_client_token(b"n,,n=alice,r=abc")
    exchange.record_broker_answer(0, FIRST_ANSWER)
    exchange.begin_exchange("SCRAM-SHA-256")
    exchange.record_client_token(CLIENT_FINAL)
    assert exchange.record_broker_answer(0, FINAL_ANSWER) == Identity(None, "SCRAM-SHA-256")


def test_the_old_identity_stays_until_the_new_one_is_confirmed() -> None:
    exchange = SaslExchange()
    scram(exchange, b"n,,n=alice,r=abc")
    exchange.begin_exchange(SCRAM)
    exchange.record_client_token(b"n,,n=bob,r=abc")
    exchange.record_broker_answer(0, FIRST_ANSWER)
    exchange.record_client_token(CLIENT_FINAL)
    assert exchange.identity == Identity("alice", SCRAM)
    assert exchange.record_broker_answer(0, FINAL_ANSWER) == Identity("bob", SCRAM)
    assert exchange.identity == Identity("bob", SCRAM)


def test_the_old_identity_outlives_a_failed_re_authentication() -> None:
    exchange = SaslExchange()
    scram(exchange, b"n,,n=alice,r=abc")
    exchange.begin_exchange("PLAIN")
    exchange.record_client_token(b"\0bob\0wrong")
    assert exchange.record_broker_answer(REFUSED, b"") is None
    assert exchange.identity == Identity("alice", SCRAM)


@pytest.mark.parametrize("claim", ["sub", "email"])
def test_a_bearer_token_names_the_user_once_the_broker_has_taken_it(claim: str) -> None:
    exchange = begun("OAUTHBEARER")
    exchange.principal_claim = claim
    exchange.record_client_token(bearer(jwt(sub="mallory", email="mallory")))
    assert exchange.record_broker_answer(0, b'{"status":"invalid_token"}') is None
    assert exchange.identity is None
    exchange.record_client_token(bearer(jwt(**{claim: "alice"})))
    assert exchange.record_broker_answer(0, b"") == Identity("alice", "OAUTHBEARER")


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "SCRAM-SHA-1", "plain"])
def test_other_mechanisms_are_unidentified(mechanism: str) -> None:
    exchange = begun(mechanism)
    exchange.record_client_token(b"\0alice\0pw")
    assert exchange.record_broker_answer(0, b"") == Identity(None, mechanism)


def test_oauthbearers_refusal_without_an_error_code_is_no_success() -> None:
    exchange = begun("OAUTHBEARER")
    exchange.record_client_token(b"n,,\x01auth=Bearer x\x01\x01")
    assert exchange.record_broker_answer(0, b'{"status":"invalid_token"}') is None
    exchange.record_client_token(b"\x01")
    assert exchange.record_broker_answer(REFUSED, b"") is None


def reachable(root: object) -> Iterator[object]:
    """Every object that hangs on this one; not its class, which hangs on everything."""
    todo, seen = [root], set()
    while todo:
        item = todo.pop()
        if id(item) not in seen and not isinstance(item, type):
            seen.add(id(item))
            yield item
            todo += gc.get_referents(item)


def leaks(exchange: SaslExchange, secret: str) -> list[object]:
    held = [item for item in reachable(exchange) if isinstance(item, str | bytes | bytearray | memoryview)]
    return [
        item for item in held if secret in (item if isinstance(item, str) else bytes(item).decode("latin-1"))
    ]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("answers", [0, 1, 2, 3])
def test_no_secret_is_kept_or_shown(mechanism: str, answers: int) -> None:
    secret = "hunter2-hunter2"
    tokens = [
        b"\0alice\0" + secret.encode(),
        b"n,,n=alice,r=" + secret.encode(),
        b"c=biws,r=abc,p=" + secret.encode(),
    ]
    exchange = begun(mechanism)
    replies = (b"", b"r=" + secret.encode(), b"v=" + secret.encode())
    for number, (token, reply) in enumerate(zip(tokens, replies, strict=True)):
        if number <= answers:
            exchange.record_client_token(token)
        if number < answers:
            exchange.record_broker_answer(0, reply)
    assert leaks(exchange, secret) == []
    assert secret not in repr(exchange)
