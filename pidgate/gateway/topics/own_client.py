"""The gateway's own Kafka client: creates aiokafka producers, consumers and admin clients.

They connect directly to the brokers. The credentials are for gateway topics only and never used for client
traffic. aiokafka is imported on first use to keep the start fast. Everything else gets its clients here, so a
simulation can replace them.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pidgate.gateway.config.password_file import CredentialsUnreadable, password_in
from pidgate.gateway.config.settings import SaslSettings, Settings
from pidgate.gateway.config.tls_settings import ClusterTlsSettings
from pidgate.gateway.tls.contexts import TlsUnusable, client_context
from pidgate.protocol.messages import CLIENT_ID


@dataclass(frozen=True, slots=True)
class OwnClient:
    """The broker addresses and the gateway's credentials.

    Creates aiokafka objects, which are not started; the library has no types. `settings` are arguments of the
    library's class besides the connection's.
    """

    bootstrap_servers: Sequence[str]
    sasl: SaslSettings | None = None
    tls: ClusterTlsSettings | None = None
    given: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of the connection in place of the settings'."""

    @property
    def logs_in(self) -> bool:
        return self.sasl is not None or "sasl_mechanism" in self.given

    @classmethod
    def from_settings(cls, settings: Settings) -> OwnClient:
        servers = [str(server) for server in settings.cluster.bootstrap_servers]
        return cls(servers, settings.own_client, settings.cluster.tls)

    def producer(self, **settings: Any) -> Any:
        """Return an AIOKafkaProducer. Raises CredentialsUnreadable."""
        from aiokafka import AIOKafkaProducer

        return AIOKafkaProducer(**self.arguments(), **settings)

    def consumer(self, client_id: str = CLIENT_ID, **settings: Any) -> Any:
        """Return an AIOKafkaConsumer. Raises CredentialsUnreadable."""
        from aiokafka import AIOKafkaConsumer

        return AIOKafkaConsumer(**self.arguments(client_id), **settings)

    def admin(self, **settings: Any) -> Any:
        """Return an AIOKafkaAdminClient. Raises CredentialsUnreadable."""
        from aiokafka.admin import AIOKafkaAdminClient

        return AIOKafkaAdminClient(**self.arguments(), **settings)

    def arguments(self, client_id: str = CLIENT_ID) -> dict[str, Any]:
        """Return arguments for AIOKafkaProducer, AIOKafkaConsumer and AIOKafkaAdminClient.

        Files are read at each call, so the next client uses changed credentials. Raises
        CredentialsUnreadable.
        """
        arguments: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            "client_id": client_id,
        }
        if self.tls is not None:
            arguments |= {
                "security_protocol": "SSL",
                "ssl_context": _context(self.tls),
            }
        if self.sasl is not None:
            arguments |= {
                "security_protocol": "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL",
                "sasl_mechanism": self.sasl.mechanism,
                "sasl_plain_username": self.sasl.username,
                "sasl_plain_password": password_in(self.sasl.password_file),
            }
        return {**arguments, **self.given}


def _context(tls: ClusterTlsSettings) -> ssl.SSLContext:
    try:
        return client_context(tls, ("cluster", "tls"))
    except TlsUnusable as error:
        raise CredentialsUnreadable(str(error)) from error
