"""Connection of the gateway's own Kafka client: keyword arguments for aiokafka, straight to the brokers.

Its credentials are for gateway topics only; what clients send never comes here. aiokafka is imported by those who
connect, when they connect: it must not slow the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidgate.gateway.config.settings import SaslSettings, Settings

CLIENT_ID = "pidgate"


class CredentialsUnreadable(Exception):
    """The password file cannot be read."""


@dataclass(frozen=True, slots=True)
class OwnClient:
    """The brokers' addresses and the gateway's credentials."""

    bootstrap_servers: Sequence[str]
    sasl: SaslSettings | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> OwnClient:
        servers = [str(server) for server in settings.cluster.bootstrap_servers]
        return cls(servers, settings.own_client.sasl)

    def arguments(self, client_id: str = CLIENT_ID) -> dict[str, Any]:
        """Return arguments for AIOKafkaProducer, AIOKafkaConsumer and AIOKafkaAdminClient.

        The password file is read each time, so that a changed one is used at the next connection. Raises
        CredentialsUnreadable.
        """
        arguments: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            "client_id": client_id,
        }
        if self.sasl is not None:
            arguments |= {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": self.sasl.mechanism,
                "sasl_plain_username": self.sasl.username,
                "sasl_plain_password": _password(Path(self.sasl.password_file)),
            }
        return arguments


def _password(file: Path) -> str:
    try:
        # A newline at the end belongs to the editor, not to the password.
        return file.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsUnreadable(f"own_client.sasl.password_file: {error}") from error
