"""TLS settings: of a listener, of the admin address, towards the brokers.

They name files, which gateway/tls reads.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema

from pidgate.gateway.config.principal_rules import DEFAULT_RULES, PrincipalRules
from pidgate.gateway.config.values import SECTION


def _file_name(value: object) -> str:
    # A key pasted here instead of its file's name must not appear in the error.
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is not a file's name; write one as text")
    if "\n" in value or "-----BEGIN" in value:
        raise ValueError("holds a certificate or key itself; put it into a file and write the file's name")
    return value


def _version(value: object) -> str:
    # YAML reads 1.2 as a number.
    if str(value) not in ("1.2", "1.3"):
        raise ValueError(f"{str(value)[:20]!r} is not possible here; write 1.2 or 1.3")
    return str(value)


def _rules(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is no text; write Kafka's rules as it has them, in one line, or DEFAULT")
    PrincipalRules(value)
    return value


PemFile = Annotated[str, PlainValidator(_file_name), WithJsonSchema({"type": "string", "title": "file"})]
TlsVersion = Annotated[
    str, PlainValidator(_version), WithJsonSchema({"enum": ["1.2", "1.3", 1.2, 1.3], "title": "version"})
]
MappingRules = Annotated[str, PlainValidator(_rules), WithJsonSchema({"type": "string", "title": "text"})]


class TlsSettings(BaseModel):
    """TLS of either side, with this machine's OpenSSL ciphers."""

    model_config = SECTION

    cert_file: PemFile = ""
    """Certificate in PEM, with the chain to its CA."""
    given_key_file: PemFile = Field(default="", alias="key_file")
    """Its key. Left out: it is in `cert_file`."""

    @property
    def key_file(self) -> str:
        return self.given_key_file or self.cert_file


class ServerTlsSettings(TlsSettings):
    """The certificate shown to clients, with its chain."""

    cert_file: PemFile
    """Certificate in PEM that clients are shown, with the chain to its CA."""


class ListenerTlsSettings(ServerTlsSettings):
    """The same, plus client certificates: whether they are required, by which CA, and their mapping to users."""

    min_version: TlsVersion = "1.2"
    """Oldest version of TLS: 1.2 or 1.3."""
    client_auth: Literal["none", "requested", "required"] = "none"
    """Whether clients are asked for a certificate, as Kafka's `ssl.client.auth`."""
    client_ca_file: PemFile = ""
    """CA of clients' certificates."""
    ssl_principal_mapping_rules: MappingRules = DEFAULT_RULES
    """User of a certificate, in the syntax of the brokers' setting of that name."""

    @property
    def identifies(self) -> bool:
        """Return whether clients are asked for a certificate, which names their user."""
        return self.client_auth != "none"


class ClusterTlsSettings(TlsSettings):
    """TLS towards the brokers. `cert_file` is shown to those that ask for one."""

    ca_file: PemFile = ""
    """CA of the brokers' certificates. Left out: this machine's CAs."""
    verify_hostname: bool = True
    """Check the host name in a broker's certificate. `false` where certificates name other hosts."""
