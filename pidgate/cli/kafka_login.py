"""Login and TLS of the commands that talk to Kafka: `--kafka-config`, or the cluster of `--config`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pidgate.client_settings import BadClientSettings, read_client_settings
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.config.source import ConfigError, dotted
from pidgate.gateway.config.tls_settings import ClusterTlsSettings
from pidgate.gateway.tls.contexts import TlsUnusable, client_context, pinned_context
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.load.plan import Login
from pidgate.who.reading import CannotRead

_ASKED_S: Final = 5.0
_FILES: Final = {
    "ca_file": "ssl.ca.location",
    "cert_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
}


def settings_in(file: Path | None) -> Mapping[str, str]:
    """Return the settings of a file of `--kafka-config`, with librdkafka's names. Raises ConfigError."""
    if file is None:
        return {}
    try:
        return read_client_settings(str(file), reads_files=False)
    except BadClientSettings as error:
        raise ConfigError.at("--kafka-config", str(error).removeprefix("--kafka-config ")) from None


def tls_of(given: Mapping[str, str], listener_cert: str | None = None) -> ssl.SSLContext | None:
    """Return the TLS context, of a gateway's listener with this certificate file. None: no TLS.

    Raises ConfigError naming the option, or the key of the file.
    """
    if not given.get("security.protocol", "").upper().endswith("SSL") and listener_cert is None:
        return None
    files = {key: given[name] for key, name in _FILES.items() if name in given}
    verifies = given.get("ssl.endpoint.identification.algorithm") != "none"
    tls = ClusterTlsSettings.model_validate({**files, "verify_hostname": verifies})
    try:
        if listener_cert is None or "ca_file" in files:
            return client_context(tls, ())
        return pinned_context(listener_cert, ("listeners", 0, "tls"), tls)
    except TlsUnusable as error:
        is_own = len(error.path) == 1
        where = f"--kafka-config: {_FILES.get(str(error.path[0]), '')}" if is_own else dotted(error.path)
        raise ConfigError.at(where, error.text) from error


def login_of(given: Mapping[str, str]) -> Login | None:
    """Return the user, the password and the mechanism; None without a login. Raises ConfigError."""
    if "sasl.username" not in given:
        return None
    match given.get("sasl.mechanism", "PLAIN"):
        case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" as mechanism:
            return Login(given["sasl.username"], given["sasl.password"], mechanism)
    raise ConfigError.at(
        "--kafka-config",
        f"sasl.mechanism={given['sasl.mechanism']}; use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    )


def own_client(settings: Settings, kafka_config: Path | None) -> OwnClient:
    """Return a client of the cluster, with the login of `--kafka-config` where it is given. Raises ConfigError."""
    kafka = OwnClient.from_settings(settings)
    if kafka_config is None:
        return kafka
    given = settings_in(kafka_config)
    context, login = tls_of(given), login_of(given)
    arguments: dict[str, Any] = {"security_protocol": "PLAINTEXT" if context is None else "SSL"}
    if context is not None:
        arguments["ssl_context"] = context
    if login is not None:
        arguments |= {
            "security_protocol": "SASL_PLAINTEXT" if context is None else "SASL_SSL",
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return OwnClient(kafka.bootstrap_servers, given=arguments)


def explained(error: CannotRead, kafka: OwnClient, settings: Settings) -> str:
    """Return cause and remedy of a failed read."""
    if not kafka.logs_in:
        cluster, context = settings.cluster, kafka.arguments().get("ssl_context")
        if missing := missing_login(
            cluster.bootstrap_servers, context, sends_proxy_header=cluster.proxy_protocol
        ):
            return f"{missing}, or own_client in the gateway's file"
    return f"{error.cause}\n{error.remedy}"


def missing_login(
    servers: Iterable[tuple[str, int]], context: ssl.SSLContext | None, *, sends_proxy_header: bool = False
) -> str:
    """Return cause and remedy where brokers want a login and none is given; empty if they want none.

    A broker only closes the connection of a client without a login; it names the mechanisms when it is asked.
    """
    from pidgate.gateway.cluster.probe import mechanisms_of

    asking = mechanisms_of(servers, _ASKED_S, context, sends_proxy_header=sends_proxy_header)
    if mechanisms := asyncio.run(asking):
        return (
            f"the brokers want a login ({', '.join(mechanisms)}), and none is given\n"
            "give one with --kafka-config FILE (security.protocol, sasl.*)"
        )
    return ""
