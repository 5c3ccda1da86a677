"""The specification of a cluster."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tools.sandbox.errors import SandboxError
from tools.sandbox.jars import NEWEST
from tools.sandbox.tools import QUICK_TO_START

PLAINTEXT = "PLAINTEXT"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SSL = "SSL"
SASL_SSL = "SASL_SSL"
CONTROLLER = "CONTROLLER"
PROXIED = "PROXIED"
"""A listener advertised at a proxy's port; its logins are those of SASL_PLAINTEXT."""

SUPER_USER = "admin"


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates that brokers present and trust; `client_auth` of the SSL listener in Kafka's terms."""

    key_store: Path
    """Key and certificate in one PEM file: certificates.Pair.both."""
    ca_file: Path
    client_auth: Literal["none", "requested", "required"] = "none"


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """Nodes, version, size and listeners of a cluster. Every node is broker and controller."""

    nodes: int = 1
    version: str = NEWEST
    heap_mb: int = 256
    node_ids: Sequence[int] = ()
    """One id per node, gaps allowed; empty: 1 to `nodes`. `nodes` may then be omitted."""
    sasl: bool = False
    """Adds a SASL_PLAINTEXT listener (PLAIN, SCRAM-SHA-256 and -512) and delegation tokens."""
    users: Mapping[str, str] = field(
        default_factory=lambda: {"alice": "alice-secret", "bob": "bob-secret", SUPER_USER: "admin-secret"}
    )
    """Name to password, for all three mechanisms."""
    tls: Tls | None = None
    """Adds an SSL listener and, with `sasl`, SASL_SSL."""
    acl: bool = False
    """Kafka's StandardAuthorizer. `admin` and, for the brokers, ANONYMOUS are super users."""
    advertised_host: str = "127.0.0.1"
    """Host that brokers advertise and bind; must resolve to a loopback address."""
    proxied_port: int = 0
    """Adds a listener PROXIED, advertised at this port of a proxy that rewrites nothing."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Overrides for server.properties."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Feature levels at formatting, beside the release's own (share.version, transaction.version ...)."""
    jvm_options: Sequence[str] = QUICK_TO_START
    """Small and quick to start; for measurements use () or other ones."""
    java_modules: Sequence[str] = ()
    """Modules of the brokers' Java that some lack: see java.java_for."""
    ready_within_s: float = 90.0
    keep_logs_on_failure: bool = True
    """Keep logs and properties if the `with` block fails, and print the path."""

    def __post_init__(self) -> None:
        if self.node_ids:
            if len(set(self.node_ids)) != len(self.node_ids):
                raise SandboxError(f"node ids must differ: {list(self.node_ids)}")
            if self.nodes not in (1, len(self.node_ids)):
                raise SandboxError(f"{self.nodes} nodes but {len(self.node_ids)} node ids")
            object.__setattr__(self, "nodes", len(self.node_ids))
        else:
            object.__setattr__(self, "node_ids", tuple(range(1, self.nodes + 1)))
        if self.nodes < 1:
            raise SandboxError("a cluster needs a node")

    @property
    def client_listeners(self) -> tuple[str, ...]:
        tls = ((SSL, SASL_SSL) if self.sasl else (SSL,)) if self.tls is not None else ()
        return (
            PLAINTEXT,
            *((SASL_PLAINTEXT,) if self.sasl else ()),
            *((PROXIED,) if self.proxied_port else ()),
            *tls,
        )

    def protocol(self, listener: str) -> str:
        """Return the security protocol of a listener."""
        named = {CONTROLLER: PLAINTEXT, PROXIED: SASL_PLAINTEXT if self.sasl else PLAINTEXT}
        return named.get(listener, listener)

    def bind_address(self) -> str:
        """Return the loopback address behind `advertised_host`. Raises SandboxError for other hosts."""
        try:
            address = socket.gethostbyname(self.advertised_host)
        except OSError as error:
            raise SandboxError(
                f"advertised_host {self.advertised_host!r} does not resolve here, and brokers talk to each "
                "other by it: use a loopback address such as 127.66.77.88, or add the name to /etc/hosts."
            ) from error
        if not address.startswith("127."):
            raise SandboxError(
                f"advertised_host {self.advertised_host!r} is {address}: only loopback addresses are served"
            )
        return address
