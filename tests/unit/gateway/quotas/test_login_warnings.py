"""What a file misses, once it is known whether the brokers want a login."""

from __future__ import annotations

import pytest

from pidgate.gateway.config import loading
from pidgate.gateway.quotas.inherited import login_warnings

HEAD = "cluster: {bootstrap_servers: [127.0.0.1:1]}\n"
ENFORCED = (
    "quotas: {mode: enforce, default: {producer_ids_rate: 10}, users: {alice: {producer_ids_rate: 5}}}\n"
)
OWN_ANONYMOUS = (
    "quotas: {mode: enforce, default: {producer_ids_rate: 9}, users: {ANONYMOUS: {mode: observe}}}\n"
)
BY_CERTIFICATE = (
    "listeners: [{tls: {cert_file: /c, key_file: /k, client_auth: required, client_ca_file: /a}}]\n"
)
SHARED = "quotas: {mode: enforce, users: {ANONYMOUS: {producer_ids_rate: 9, clients: {a: {producer_ids_rate: 2}}}}}\n"
PORTS = "listeners[0].node_ports.node_ids"
LOGIN = "own_client: {mechanism: PLAIN, username: pidgate, password_file: /p}\n"


@pytest.mark.parametrize(
    ("text", "mechanisms", "keys"),
    [
        (ENFORCED, (), ["quotas", "quotas.users.alice"]),
        (
            ENFORCED + "listeners: [{authentication: none}]\n" + LOGIN,
            ("PLAIN",),
            ["quotas", "quotas.users.alice"],
        ),
        (OWN_ANONYMOUS, (), []),
        (SHARED, (), []),
        (ENFORCED + BY_CERTIFICATE, (), []),
        ("", (), []),
        (ENFORCED, ("PLAIN",), ["own_client", PORTS]),
        (ENFORCED + "events: {enabled: false}\n", ("PLAIN",), [PORTS]),
        (ENFORCED + "events: {enabled: false}\nstate_dir: /s\n", ("PLAIN",), []),
        (ENFORCED + LOGIN, ("PLAIN", "GSSAPI"), ["quotas.unidentified"]),
    ],
)
def test_what_is_warned_of(text: str, mechanisms: tuple[str, ...], keys: list[str]) -> None:
    settings = loading.parse(HEAD + text)
    found = {one.key: one.text for one in login_warnings(settings, settings.to_quotas(), mechanisms)}
    assert list(found) == keys
    assert "the brokers want a login (PLAIN)" in found.get("own_client", "the brokers want a login (PLAIN)")
