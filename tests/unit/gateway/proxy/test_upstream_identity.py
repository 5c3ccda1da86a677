"""The user in whose name the gateway logs in at brokers, for a client that has shown it a certificate."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pidgate.names import LONGEST_NAME
from pidgate.protocol import messages
from pidgate.protocol.delegation_tokens import CREATE_DELEGATION_TOKEN
from pidgate.protocol.frames import encode_string
from pidgate.protocol.headers import RequestHead
from pidgate.sandbox.certificates import Authority
from tests.support import raw
from tests.support.loopback import Peer, ScriptedBroker, gateway_before, run, until

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
LONG = "".join(f"/OU=department-{number}-{40 * 'x'}" for number in range(5))


async def _offers_plain(head: RequestHead, _peer: Peer) -> bytes:
    body = {"mechanisms": ["PLAIN"]}
    return raw.response(SASL_HANDSHAKE, head.api_version, body, correlation_id=head.correlation_id)


async def _lets_in(head: RequestHead, _peer: Peer) -> bytes:
    return raw.response(
        SASL_AUTHENTICATE, head.api_version, {"auth_bytes": b""}, correlation_id=head.correlation_id
    )


@pytest.mark.parametrize(
    ("subject", "rules", "owner"),
    [
        ("/O=acme/CN=joe", "DEFAULT", "CN=joe,O=acme"),
        (f"/O=acme{LONG}/CN=joe", "RULE:^CN=([a-z]+),.*$/$1/", "joe"),
        (f"/O=acme{LONG}/CN=joe", "DEFAULT", None),
    ],
)
def test_a_token_is_asked_for_the_certificates_whole_name_or_for_none(
    tmp_path: Path, subject: str, rules: str, owner: str | None
) -> None:
    """A name that is cut and hashed, as quotas have it, is another principal's to brokers."""
    asked = list[bytes]()

    async def refuses(head: RequestHead, peer: Peer) -> bytes:
        asked.append(peer.frames[-1])
        return raw.response(
            head.api_key, head.api_version, {"error_code": 65}, correlation_id=head.correlation_id
        )

    authority = Authority(tmp_path)
    pair, own = authority.issue("gateway"), authority.issue("joe", subject=subject)
    password = tmp_path / "password"
    password.write_text("own-secret")
    password.chmod(0o600)
    tls = {
        "cert_file": str(pair.cert_file),
        "key_file": str(pair.key_file),
        "client_auth": "required",
        "client_ca_file": str(authority.ca_file),
        "ssl_principal_mapping_rules": rules,
    }
    sasl: dict[str, Any] = {"mechanism": "PLAIN", "username": "pidgate", "password_file": str(password)}
    client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_tls.load_verify_locations(authority.ca_file)
    client_tls.load_cert_chain(own.cert_file, own.key_file)

    async def scenario() -> None:
        answers = {
            SASL_HANDSHAKE: _offers_plain,
            SASL_AUTHENTICATE: _lets_in,
            CREATE_DELEGATION_TOKEN: refuses,
        }
        async with (
            ScriptedBroker(answers) as broker,
            gateway_before(
                broker.address,
                listener={"tls": tls},
                cluster={"upstream_identity": "delegation_token"},
                own_client={"sasl": sasl},
            ) as gateway,
        ):
            await until(gateway.gateway.is_ready)
            with capture_logs() as logged:
                client = await gateway.connect(tls=client_tls)
                client.send(raw.request(messages.METADATA, 9, {"topics": []}))
                assert await client.end() == b""
            (line,) = [line for line in logged if line["event"] == "connection_closed"]
            assert line["cause"] == "login"
            if owner is None:
                assert asked == []
                assert f"more than {LONGEST_NAME} get no token; shorten it with" in line["reason"]
            else:
                (frame,) = asked
                assert encode_string(owner, flexible=True) in frame

    run(scenario())
