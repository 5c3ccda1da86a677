"""Contexts of the files as operators have them: what cannot be used is refused with cause and remedy, and no secret."""

from __future__ import annotations

import os
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pidgate.gateway.config import loading
from pidgate.gateway.config.tls_settings import ClusterTlsSettings, ListenerTlsSettings
from pidgate.gateway.tls import checking, wording
from pidgate.gateway.tls.certificate import NotACertificate, validities
from pidgate.gateway.tls.contexts import TlsUnusable, client_context, server_context
from tests.support.handshakes import shake_hands
from tools.sandbox.certificates import Authority, Pair

LISTENER = ("listeners", 0, "tls")
CLUSTER = ("cluster", "tls")


def listener(pair: Pair, **more: object) -> ListenerTlsSettings:
    return ListenerTlsSettings.model_validate(
        {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file), **more}
    )


def refused(tls: ListenerTlsSettings) -> TlsUnusable:
    with pytest.raises(TlsUnusable) as caught:
        server_context(tls, LISTENER)
    return caught.value


def test_a_key_that_everybody_can_read_is_refused(authority: Authority) -> None:
    pair = authority.issue("open")
    for mode, is_fine in ((0o600, True), (0o640, True), (0o644, False), (0o604, False)):
        pair.key_file.chmod(mode)
        if is_fine:
            server_context(listener(pair), LISTENER)
        else:
            error = refused(listener(pair))
            assert error.path == (*LISTENER, "key_file")
            assert f"chmod 640 {pair.key_file}" in str(error)
            assert "defaultMode: 0440" in str(error)


def test_a_key_of_another_certificate_is_refused(authority: Authority, pair: Pair) -> None:
    other = authority.issue("other")
    error = refused(listener(pair, key_file=str(other.key_file)))
    assert "does not match the certificate" in str(error)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(pair: Pair, tmp_path: Path) -> None:
    key = tmp_path / "locked.key"
    done = subprocess.run(
        ["openssl", "pkey", "-in", pair.key_file, "-aes256", "-passout", "pass:hunter2", "-out", key],
        check=True,
        capture_output=True,
    )
    assert done.returncode == 0
    key.chmod(0o600)
    error = refused(listener(pair, key_file=str(key)))
    assert "is encrypted" in str(error)
    assert "openssl pkey" in str(error)


@pytest.mark.parametrize(
    "content", ["", "not PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_refused(pair: Pair, tmp_path: Path, content: str) -> None:
    file = tmp_path / "odd.pem"
    file.write_text(content)
    error = refused(listener(pair, cert_file=str(file)))
    assert error.path == (*LISTENER, "cert_file")
    assert "PEM" in str(error)


def test_versions_and_the_rest_of_a_context(pair: Pair, authority: Authority) -> None:
    context = server_context(
        listener(pair, min_version=1.3, client_auth="required", client_ca_file=str(authority.ca_file)),
        LISTENER,
    )
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert server_context(listener(pair), LISTENER).minimum_version is ssl.TLSVersion.TLSv1_2
    client = client_context(ClusterTlsSettings(ca_file=str(authority.ca_file)), CLUSTER)
    assert client.check_hostname
    assert client.verify_mode is ssl.CERT_REQUIRED
    loose = client_context(ClusterTlsSettings(ca_file=str(authority.ca_file), verify_hostname=False), CLUSTER)
    assert (loose.check_hostname, loose.verify_mode) == (False, ssl.CERT_REQUIRED)


# ---- the configuration ---------------------------------------------------------------------------------


SERVERS = "cluster: {bootstrap_servers: [127.0.0.1:1]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            SERVERS + ", tls: {verify_host: false}}",
            "cluster.tls.verify_host: is not a known key; did you mean verify_hostname?",
        ),
        (
            SERVERS + "}\nlisteners: [{tls: {cert_file: c, min_version: 1.1}}]",
            "min_version: '1.1' is not possible here; write 1.2 or 1.3",
        ),
        (SERVERS + ", tls: {key_file: k}}", "cluster.tls.cert_file: is missing"),
        (SERVERS + "}\nlisteners: [{tls: {key_file: k}}]", "listeners[0].tls.cert_file: is missing"),
        (
            SERVERS + "}\nlisteners: [{tls: {cert_file: c, client_auth: required}}]",
            "listeners[0].tls.client_ca_file: is missing; client_auth: required needs the CA",
        ),
        (
            SERVERS + "}\nlisteners: [{tls: {cert_file: c, client_ca_file: a}}]",
            "listeners[0].tls.client_ca_file: has no effect",
        ),
        (SERVERS + "}\nlisteners: [{sni: 'b-{node_id}.example'}]", "listeners[0].sni: needs tls"),
        (
            SERVERS + "}\nlisteners: [{sni: b.example, tls: {cert_file: c}}]",
            "b.example has to hold {node_id} once",
        ),
        (
            SERVERS + "}\nlisteners: [{sni: 'b-{node_id}', advertise: x, tls: {cert_file: c}}]",
            "listeners[0].advertise: conflicts with sni",
        ),
        (
            SERVERS + "}\nlisteners: [{sni: 'b-{node_id}', node_ports: {first: 9300}, tls: {cert_file: c}}]",
            "listeners[0].node_ports: conflicts with sni",
        ),
        (SERVERS + "}\nadmin: {tls: {cert_file: c, client_auth: none}}", "client_auth: is not a known key"),
    ],
)
def test_what_is_written_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(loading.ConfigError) as caught:
        loading.parse(text)
    assert problem in str(caught.value)


def test_a_key_that_was_written_in_place_of_its_file_is_not_shown() -> None:
    key = "-----BEGIN PRIVATE KEY-----\\nMC4CAQ hunter2\\n"
    with pytest.raises(loading.ConfigError) as caught:
        loading.parse(SERVERS + f'}}\nlisteners: [{{tls: {{cert_file: c, key_file: "{key}"}}}}]')
    assert "holds a certificate or key itself" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def warned(authority: Authority, pair: Pair) -> list[str]:
    files = f"ca_file: {authority.ca_file}, cert_file: {pair.cert_file}, key_file: {pair.key_file}"
    text = f"{SERVERS}, tls: {{{files}}}}}"
    return [text for _, text in checking.warnings(loading.parse(text))]


def test_a_certificate_that_has_expired_or_soon_will_is_warned_of(authority: Authority, pair: Pair) -> None:
    assert warned(authority, pair) == []
    (soon,) = warned(authority, authority.issue("soon", days=5))
    assert "in 4 days" in soon
    (over,) = warned(authority, authority.issue("over", expired=True))
    assert "expired on" in over


def test_validities_are_what_openssl_says(authority: Authority, pair: Pair) -> None:
    leaf, ca = validities(pair.both.read_text())
    now = datetime.now(UTC)
    assert timedelta(days=29) < leaf.ends - now <= timedelta(days=30)
    assert timedelta(days=3649) < ca.ends - now <= timedelta(days=3650)
    shown = subprocess.run(
        ["openssl", "x509", "-in", pair.cert_file, "-noout", "-enddate"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == f"notAfter={leaf.ends:%b %e %H:%M:%S %Y} GMT"


def test_a_year_of_four_digits_is_read(tmp_path: Path) -> None:
    """From 2050 on times are written so (RFC 5280, 4.1.2.5)."""
    pair = Authority(tmp_path).issue("long", days=20_000)
    assert validities(pair.cert_file.read_text())[0].ends.year > 2070


def test_text_that_is_cut_short_is_no_certificate(pair: Pair) -> None:
    text = pair.cert_file.read_text()
    for end in range(0, len(text) - 2, 40):
        with pytest.raises(NotACertificate):
            validities(text[:end])


# ---- handshakes that fail, in words --------------------------------------------------------------------


def test_failures_of_clients_in_words(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    ca = str(authority.ca_file)
    required = server_context(listener(pair, client_auth="required", client_ca_file=ca), LISTENER)
    client = client_context(ClusterTlsSettings(ca_file=ca), CLUSTER)
    _, at_server = shake_hands(client, required)
    assert wording.of_client(at_server) == "it sent no certificate, and tls.client_auth is required"
    stranger = Authority(tmp_path, "somebody else").issue("eve")
    client.load_cert_chain(stranger.cert_file, stranger.key_file)
    _, at_server = shake_hands(client, required)
    assert wording.of_client(at_server).startswith("its certificate was refused: unable to get local issuer")
    distrusting = client_context(ClusterTlsSettings(ca_file=str(stranger.cert_file)), CLUSTER)
    _, at_server = shake_hands(distrusting, server_context(listener(pair), LISTENER))
    assert "does not trust the CA of tls.cert_file" in wording.of_client(at_server)


def test_failures_of_brokers_in_words(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    ca = ClusterTlsSettings(ca_file=str(authority.ca_file))
    client = client_context(ca, CLUSTER)
    at_client, _ = shake_hands(client, server_context(listener(pair), LISTENER), "kafka.example")
    assert "its subjectAltName must contain kafka.example, the advertised host" in wording.of_broker(
        at_client, "kafka.example"
    )
    expired = server_context(listener(authority.issue("old", expired=True)), LISTENER)
    at_client, _ = shake_hands(client, expired)
    assert "certificate has expired; renew it on the broker" in wording.of_broker(at_client, "localhost")
    other = Authority(tmp_path, "somebody else").issue("broker")
    at_client, _ = shake_hands(client, server_context(listener(other), LISTENER))
    assert "cluster.tls.ca_file" in wording.of_broker(at_client, "localhost")


def test_no_other_place_of_the_product_makes_contexts() -> None:
    """One that were made elsewhere could forget what this one does."""
    root = Path(__file__).parents[4]
    made = [
        str(path.relative_to(root))
        for folder in ("gateway", "cli", "load", "who", "pipeline", "history")
        for path in (root / folder).rglob("*.py")
        if any(
            word in path.read_text()
            for word in ("SSLContext(", "create_default_context", "_unverified_context")
        )
    ]
    assert made == [os.path.join("gateway", "tls", "contexts.py")]
