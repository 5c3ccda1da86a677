"""The user that a login by SASL makes of a connection: the first, and each that follows on it (KIP-368)."""

from __future__ import annotations

import pytest

from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.token_owners import TokenOwners
from pidgate.gateway.proxy.apis.api import FORWARD, TAKEN, InFlightRequest
from pidgate.gateway.proxy.apis.delegation_tokens import CreateTokenApi, DescribeTokensApi
from pidgate.gateway.proxy.apis.table import APIS
from pidgate.protocol.delegation_tokens import CREATE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.work import Walk
from pidgate.quota.entities import unidentified
from tests.support import raw
from tests.support.bearer import bearer, jwt
from tests.support.loopback import Peer, ScriptedBroker, gateway_before, run
from tests.support.rules import rule
from tests.support.talk import Talk, whole
from tests.unit.gateway.proxy.test_session import Script, handshake, produce

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
REFUSED = 58
TOKEN = b"n,,n=id-1,r=abc,tokenauth=true"
OPAQUE = bearer("opaque")


def seen(talk: Talk, api_key: int, version: int, body: raw.Body) -> None:
    """An answer of the broker passes."""
    frame = raw.response(api_key, version, body)
    api = APIS[api_key << 16 | version]
    asked = InFlightRequest(api, api_key, version, raw.CORRELATION_ID)
    result = api.handle_response(talk.context, asked, whole(frame))
    if isinstance(result, Walk):
        assert result.finish() is None
    else:
        assert result is None
    talk.perform(talk.context.take_actions())


def login(script: Script, mechanism: str, *tokens: bytes, answer: bytes = b"", error_code: int = 0) -> str:
    """A whole login; the user that the connection is of then."""
    if script.send(handshake(1, mechanism)) is FORWARD:  # otherwise it was answered in the broker's place
        script.broker_answers(1)
    for number, token in enumerate(tokens, 1):
        script.send(raw.request(SASL_AUTHENTICATE, 2, {"auth_bytes": token}, correlation_id=1))
        is_last = number == len(tokens)
        body = {"auth_bytes": answer if is_last else b"r=abc", "error_code": error_code if is_last else 0}
        script.broker_answers(1, **body)
    return script.client.user


def by_token(script: Script) -> str:
    return login(script, "SCRAM-SHA-256", TOKEN, b"c=biws,r=abc,p=x", answer=b"v=x")


def created(script: Script, owner: str) -> None:
    token = {"principal_type": "User", "principal_name": owner, "token_id": "id-1", "hmac": b"x"}
    seen(script.talk, CREATE_DELEGATION_TOKEN, 3, token)


def anonymous() -> Script:
    script = Script(user="ANONYMOUS")
    script.talk.at.token_owners = TokenOwners()
    return script


def test_the_rows_of_the_table_are_these() -> None:
    assert isinstance(APIS[CREATE_DELEGATION_TOKEN << 16 | 3], CreateTokenApi)
    assert isinstance(APIS[DESCRIBE_DELEGATION_TOKEN << 16 | 0], DescribeTokensApi)


def test_a_bearer_token_names_its_user_and_a_refused_one_nobody() -> None:
    script = anonymous()
    assert login(script, "OAUTHBEARER", bearer(jwt(sub="alice")), answer=b'{"status":"x"}') == "ANONYMOUS"
    assert login(script, "OAUTHBEARER", bearer(jwt(sub="alice")), error_code=REFUSED) == "ANONYMOUS"
    assert login(script, "OAUTHBEARER", bearer(jwt(sub="alice"))) == "alice"


@rule(
    "Every authenticated client has a quota; users without a readable name share one per mechanism.",
    "identity",
)
def test_an_opaque_token_belongs_to_all_such() -> None:
    assert login(anonymous(), "OAUTHBEARER", OPAQUE) == unidentified("OAUTHBEARER")
    assert login(anonymous(), "GSSAPI", b"ticket") == unidentified("GSSAPI")


@pytest.mark.parametrize("version", [1, 3])
def test_a_delegation_token_is_its_owner_once_an_answer_has_shown_it(version: int) -> None:
    script = anonymous()
    assert by_token(script) == unidentified("SCRAM-SHA-256")
    token = {"principal_type": "User", "principal_name": "alice", "token_id": "id-1", "hmac": b"x"}
    seen(script.talk, DESCRIBE_DELEGATION_TOKEN, version, {"tokens": [token]})
    # Whoever is on a connection already is named when he authenticates anew.
    assert script.client.user == unidentified("SCRAM-SHA-256")
    assert by_token(script) == "alice"


def test_all_tokens_that_an_answer_shows_are_learnt() -> None:
    script = anonymous()
    tokens = [
        {"principal_type": "User", "principal_name": f"u{n}", "token_id": f"id-{n}", "hmac": b"x"}
        for n in range(45)
    ]
    seen(script.talk, DESCRIBE_DELEGATION_TOKEN, 3, {"tokens": tokens})
    owners = script.talk.at.token_owners
    assert [owners.owner_of(f"id-{n}") for n in range(45)] == [f"u{n}" for n in range(45)]


def test_a_failed_creation_of_a_token_teaches_nothing() -> None:
    script = anonymous()
    refused = {"error_code": REFUSED, "principal_name": "alice", "token_id": "", "hmac": b""}
    seen(script.talk, CREATE_DELEGATION_TOKEN, 3, refused)
    assert script.talk.at.token_owners.known_tokens() == []


def test_a_token_is_its_owners_whoever_asked_for_it() -> None:
    script = anonymous()
    created(script, "alice")
    assert by_token(script) == "alice"


def test_while_the_owner_is_asked_for_nothing_is_charged_to_anybody() -> None:
    script = anonymous()
    talk = script.talk
    talk.finds_owners = True
    assert by_token(script) == "ANONYMOUS"
    assert talk.tokens == ["id-1"]
    assert (talk.context.login.is_missing, talk.context.login.awaits_owner) == (True, True)
    talk.owner_found()
    assert script.client.user == unidentified("SCRAM-SHA-256")  # no broker has shown it
    assert (talk.context.login.is_missing, talk.context.login.awaits_owner) == (False, False)
    # Who authenticates anew is not stopped for it, and is named once it is known.
    assert by_token(script) == unidentified("SCRAM-SHA-256")
    assert not talk.context.login.awaits_owner
    talk.at.token_owners.learn_tokens([("id-1", "alice")])
    talk.owner_found()
    assert script.client.user == "alice"


def awaiting_owner() -> Script:
    """Nobody knows the token's owner, and brokers are being asked. Those of no name may bring nothing."""
    script = Script(user="ANONYMOUS", rate=0, ANONYMOUS=100)
    script.talk.at.token_owners = TokenOwners()
    script.talk.finds_owners = True
    script.talk.require_login(Authentication(required=True))
    assert by_token(script) == "ANONYMOUS"
    return script


def test_who_authenticates_twice_while_the_owner_is_asked_for_waits_all_the_same() -> None:
    script = awaiting_owner()
    talk = script.talk
    assert by_token(script) == "ANONYMOUS"
    assert (talk.context.login.is_missing, talk.context.login.awaits_owner) == (True, True)
    assert script.send(produce(7)) is TAKEN
    assert not talk.refused
    talk.owner_found()
    assert script.client.user == unidentified("SCRAM-SHA-256")
    assert (talk.context.login.is_missing, talk.context.login.awaits_owner) == (False, False)
    talk.release(0)
    assert [refusal.user for refusal in talk.refused] == [unidentified("SCRAM-SHA-256")]
    talk.owner_found()  # the second question's
    assert script.client.user == unidentified("SCRAM-SHA-256")


def test_whoever_authenticates_while_the_owner_is_asked_for_has_a_name_or_is_one_of_all_such() -> None:
    script = awaiting_owner()
    assert login(script, "PLAIN", b"\0alice\0secret") == "alice"
    assert (script.talk.context.login.is_missing, script.talk.context.login.awaits_owner) == (False, False)
    script = awaiting_owner()
    assert login(script, "OAUTHBEARER", OPAQUE) == unidentified("OAUTHBEARER")
    script = awaiting_owner()
    assert login(script, "OAUTHBEARER", OPAQUE, error_code=REFUSED) == "ANONYMOUS"
    assert (script.talk.context.login.is_missing, script.talk.context.login.awaits_owner) == (True, True)
    script.talk.finds_owners = False  # it was not shown a moment ago
    assert by_token(script) == unidentified("SCRAM-SHA-256")
    assert (script.talk.context.login.is_missing, script.talk.context.login.awaits_owner) == (False, False)


@rule("A connection keeps its name when a later token has no readable one.", "identity")
def test_who_authenticates_anew_keeps_a_name_that_cannot_be_read_this_time() -> None:
    """Kafka closes where the principal changes, so it is the same."""
    script = anonymous()
    assert login(script, "OAUTHBEARER", bearer(jwt(sub="alice"))) == "alice"
    assert login(script, "OAUTHBEARER", OPAQUE) == "alice"
    assert login(script, "OAUTHBEARER", bearer(jwt(sub="bob")), error_code=REFUSED) == "alice"
    script = anonymous()
    created(script, "alice")
    assert by_token(script) == "alice"
    script.talk.at.token_owners = TokenOwners()  # it was forgotten meanwhile
    assert by_token(script) == "alice"


def test_the_name_of_a_certificate_is_not_kept_over_a_first_login() -> None:
    script = anonymous()
    script.talk.certified("CN=joe", is_login=False)
    assert login(script, "OAUTHBEARER", OPAQUE) == unidentified("OAUTHBEARER")


def test_the_name_of_a_certificate_that_is_the_login_is_kept() -> None:
    """The login that follows is another one, as with a name by SASL."""
    script = anonymous()
    script.talk.certified("CN=joe", is_login=True)
    assert by_token(script) == "CN=joe"
    assert login(script, "OAUTHBEARER", OPAQUE) == "CN=joe"
    assert login(script, "OAUTHBEARER", bearer(jwt(sub="alice"))) == "alice"
    assert login(script, "OAUTHBEARER", OPAQUE) == "alice"
    script = anonymous()
    script.talk.certified("CN=joe", is_login=True)
    script.talk.finds_owners = True
    by_token(script)
    assert script.talk.context.login.awaits_owner
    script.talk.owner_found()  # no broker has shown it
    assert script.client.user == "CN=joe"


def who_cannot_be_read_is_held_to_a_quota(mechanism: str) -> bool:
    """The rule: whoever is authenticated has a quota, and those of one mechanism share one."""
    scripts = [Script(user="ANONYMOUS", rate=0, ANONYMOUS=100) for _ in range(2)]
    for script in scripts:
        script.talk.require_login(Authentication(required=True))
        login(script, mechanism, b"\0\0" if mechanism == "PLAIN" else b"opaque")
        script.send(produce(7))
    refused = [refusal.user for script in scripts for refusal in script.talk.refused]
    return refused == [unidentified(mechanism)] * 2


@rule(
    "Every authenticated client has a quota; users without a readable name share one per mechanism.",
    "identity",
)
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "GSSAPI"])
def test_who_cannot_be_read_is_enforced_all_the_same(mechanism: str) -> None:
    assert who_cannot_be_read_is_held_to_a_quota(mechanism)


def test_the_claim_is_the_listeners() -> None:
    async def offers(head: RequestHead, _peer: Peer) -> bytes:
        body = {"mechanisms": ["OAUTHBEARER"]}
        return raw.response(SASL_HANDSHAKE, head.api_version, body, correlation_id=head.correlation_id)

    async def scenario() -> None:
        listener = {"authentication": "required", "sasl_oauthbearer_sub_claim_name": "email"}
        async with (
            ScriptedBroker({SASL_HANDSHAKE: offers}) as broker,
            gateway_before(broker.address, listener=listener) as gateway,
        ):
            client = await gateway.connect()
            await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
            token = {"auth_bytes": bearer(jwt(sub="f3a1", email="alice"))}
            assert (await client.ask(SASL_AUTHENTICATE, 2, token))["error_code"] == 0
            channels = gateway.gateway.traffic.shared.connections
            assert [channel.client.user for channel in channels] == ["alice"]

    run(scenario())


def test_what_passes_one_connection_is_known_to_all_of_the_process() -> None:
    async def created_by_alice(head: RequestHead, _peer: Peer) -> bytes:
        body = {"principal_type": "User", "principal_name": "alice", "token_id": "id-1", "hmac": b"x"}
        return raw.response(head.api_key, head.api_version, body, correlation_id=head.correlation_id)

    async def scenario() -> None:
        async with (
            ScriptedBroker({CREATE_DELEGATION_TOKEN: created_by_alice}) as broker,
            gateway_before(broker.address) as gateway,
        ):
            client = await gateway.connect()
            answer = await client.ask(CREATE_DELEGATION_TOKEN, 3, {"renewers": []})
            assert answer["token_id"] == "id-1"
            owners = gateway.gateway.traffic.shared.token_owners
            assert owners.known_tokens() == [("id-1", "alice")]

    run(scenario())
