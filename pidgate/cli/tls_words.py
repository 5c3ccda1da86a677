"""TLS of a configuration in plain words, and the faults of its files, for `pidgate check`."""

from __future__ import annotations

from collections.abc import Iterator

from pidgate.gateway.config.loading import ConfigError, Problem, Settings
from pidgate.gateway.config.settings import ListenerSettings
from pidgate.gateway.config.source import Source
from pidgate.gateway.tls.checking import unusable, warnings
from pidgate.gateway.tls.contexts import FileMissing

_CLIENTS = {
    "none": "clients show no certificate",
    "requested": "clients may show a certificate",
    "required": "clients have to show a certificate",
}


def refuse_unusable(settings: Settings, source: Source) -> None:
    """Raise ConfigError if the gateway would not start with the files present.

    Missing files are not an error.
    """
    problems = [
        Problem(source.where(error.path), source.key(error.path), error.text)
        for error in unusable(settings)
        if not isinstance(error, FileMissing)
    ]
    if problems:
        raise ConfigError(problems)


def warned(settings: Settings, source: Source) -> Iterator[str]:
    """Yield warnings about certificates and missing files: the check may run on another machine."""
    found = [(error.path, error.text) for error in unusable(settings) if isinstance(error, FileMissing)]
    for path, text in [*found, *warnings(settings)]:
        yield f"{source.where(path)}: {source.key(path)}: {text}"


def of_listener(listener: ListenerSettings) -> Iterator[str]:
    """Yield a line if the listener has TLS."""
    tls = listener.tls
    if tls is not None:
        yield f"  With TLS {tls.min_version} or later, as {tls.cert_file}; {_CLIENTS[tls.client_auth]}."
        if tls.identifies:
            rules = tls.ssl_principal_mapping_rules
            yield f"  A client with a certificate is the user that {rules} maps its subject to, until a SASL login."


def of_identity(settings: Settings) -> Iterator[str]:
    """Yield the identity of clients at the brokers, and its requirements, where the gateway logs in for them."""
    identity, sasl = settings.cluster.upstream_identity, settings.own_client
    if sasl is None:
        return
    if identity == "delegation_token":
        yield "A client with a certificate is logged in at the brokers as its user, with a delegation token (KIP-373):"
        yield f"  they need delegation.token.secret.key, and {sasl.username} the right CreateTokens on these users."
    if identity == "own":
        yield f"Brokers see every client as {sasl.username}: all clients of a listener have its rights."


def of_cluster(settings: Settings) -> Iterator[str]:
    """Yield a line if broker connections use TLS, or if only the clients do."""
    tls = settings.cluster.tls
    if tls is not None:
        trusted = tls.ca_file or "the CAs of this machine"
        names = "" if tls.verify_hostname else ", under any host name (verify_hostname: false)"
        shown = f" Shown to them: {tls.cert_file}." if tls.cert_file else ""
        yield f"Connections to brokers use TLS 1.2 or later, trusted by {trusted}{names}.{shown}"
    elif any(listener.tls is not None for listener in settings.listeners):
        yield "Connections to brokers have no TLS: traffic encrypted by clients is readable on this stretch."
