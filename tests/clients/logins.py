"""Ways of showing who one is: one client before brokers with that listener, and whom the gateway took it for.

Sessions last for SESSION_MS there (KIP-368) and a client sends for three of them, so that each login with SASL is
repeated: by the client itself, on the connections it has, or by coming again once the broker has closed them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from pidgate.load.journal import Outcome
from pidgate.protocol import delegation_tokens
from pidgate.quota.entities import shown, unidentified
from tests.clients.roster import Client
from tests.support import kerberos
from tests.support.clients.load import Load, Login
from tests.support.clients.process import ClientProcess
from tests.support.kerberos import Kdc
from tests.support.log_checks import raise_if_bad
from tests.support.raw import RawClient
from tests.support.scram import scram_login
from tools.sandbox.certificates import Authority
from tools.sandbox.errors import JavaNotFound
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST
from tools.sandbox.java import java_for
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.spec import SASL_PLAINTEXT, SSL, SUPER_USER
from tools.sandbox.topics import create_topic

SESSION_MS: Final = 4_000
RECORDS: Final = 60
RECORDS_PER_S: Final = 5.0
"""Twelve seconds: three sessions."""

RULES: Final = "RULE:^CN=([^,]+).*$/$1/"
"""Of principals: the common name alone."""

AUTHENTICATES_ANEW: Final = {"java", "confluent-kafka", "kafka-python"}
"""Families whose newest release repeats its login on a connection (KIP-368)."""


@dataclass(frozen=True, slots=True)
class Site:
    """What clients log in to, and with."""

    cluster: Cluster
    authority: Authority
    folder: Path
    kdc: Kdc | None = None

    @property
    def own_client(self) -> dict[str, Any]:
        """The gateway's own credentials: those of the brokers' super user."""
        password = self.folder / "password"
        password.write_text(f"{SUPER_USER}-secret")
        password.chmod(0o600)
        return {"mechanism": "SCRAM-SHA-256", "username": SUPER_USER, "password_file": str(password)}


def not_offered(client: Client, way: str) -> str | None:
    """Why there can be no such cell: what the library lacks; None when it lacks nothing."""
    if client.why_missing:
        return client.why_missing
    if way not in ("mutual TLS", "GSSAPI") and str(client) == "kafka-python-2.0.2":
        return (
            "it sends its tokens without Kafka's headers (SaslHandshake v0), which the gateway does not offer"
        )
    if way == "delegation token" and not client.is_java:
        return f"{client} has no logins with delegation tokens"
    return _no_tickets(client) if way == "GSSAPI" else None


def _no_tickets(client: Client) -> str | None:
    if client.is_java:
        try:
            java_for(client.java_version, kerberos.JAVA_MODULES)
        except JavaNotFound as reason:
            return str(reason)
        return None
    if client.driver == "confluent-kafka":
        return _no_tickets_of_librdkafka()
    if find_spec("gssapi") is None:
        return "the package gssapi is not installed: it has to be built with the headers of Kerberos"
    return "not tried: its tickets come from a cache of the machine, and none is made here"


def _no_tickets_of_librdkafka() -> str | None:
    try:
        Producer({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "log_level": 0})
    except KafkaException as error:
        return str(error.args[0].str())
    return None


def no_kdc() -> str | None:
    """Why there can be no brokers that take tickets; None: there can."""
    try:
        java_for(NEWEST, kerberos.JAVA_MODULES)
    except JavaNotFound as reason:
        return str(reason)
    return None


def _certificate(site: Site, client: Client) -> Login:
    pair = site.authority.issue(f"{client}", subject=f"/O=acme/CN={client}")
    return Login(mechanism="", ca_file=str(site.authority.ca_file), pair_file=str(pair.both))


def _password(_site: Site, client: Client) -> Login:
    return Login(username=str(client), password=password_of(client))


def password_of(client: Client) -> str:
    """The password of the user that each client is."""
    return f"{client}-secret"


def _bearer(_site: Site, client: Client) -> Login:
    return Login(username=str(client), mechanism="OAUTHBEARER")


def _token(site: Site, client: Client) -> Login:
    """A token that a broker gave, of which no answer has passed the gateway: it has to ask for its owner."""
    with RawClient(site.cluster.bootstrap_servers(SASL_PLAINTEXT)) as broker:
        assert scram_login(broker, SUPER_USER, f"{SUPER_USER}-secret") == 0
        frame = broker.ask(delegation_tokens.create_token_request(1, "tests", str(client)))
    token = delegation_tokens.new_token(frame, 0, len(frame))
    assert token.error_code == 0  # known everywhere long before the client's process has begun
    return Login(username=token.token_id, password=token.password, is_token=True)


def _ticket(site: Site, client: Client) -> Login:
    assert site.kdc is not None
    name = principal_of(client)
    return Login(
        username=name, mechanism="GSSAPI", keytab=site.kdc.keytab(name), krb5_conf=site.kdc.krb5_conf
    )


def principal_of(client: Client) -> str:
    """The name of a client in its realm."""
    return str(client).replace(".", "-")


_LOGINS: Final[Mapping[str, Callable[[Site, Client], Login]]] = {
    "mutual TLS": _certificate,
    "SCRAM": _password,
    "OAUTHBEARER": _bearer,
    "delegation token": _token,
    "GSSAPI": _ticket,
}


@dataclass
class LoggedInClient:
    """A client at a gateway of its own. `start` returns at once, `finish` waits for its end."""

    site: Site
    client: Client
    way: str
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> LoggedInClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def user(self) -> str:
        """Whom the gateway has to take it for, as metrics name it."""
        return shown(unidentified("GSSAPI")) if self.way == "GSSAPI" else str(self.client)

    @property
    def _host(self) -> str:
        """Where clients find the gateway: a ticket is for a name."""
        return "localhost" if self.way == "GSSAPI" else "127.0.0.1"

    def start(self) -> None:
        """Make topic, gateway and credentials, and start the client's process."""
        self.topic = f"{self.way}-{self.client}".replace(" ", "-")
        create_topic(self.site.cluster.bootstrap_servers(), self.topic)
        self.gateway = self._open.enter_context(self._gateway())
        load = Load(
            bootstrap_servers=f"{self._host}:{self.gateway.port}",
            topic=self.topic,
            records=RECORDS,
            records_per_s=RECORDS_PER_S,
            login=_LOGINS[self.way](self.site, self.client),
        )
        self.process = self._open.enter_context(
            ClientProcess.produce(
                self.client.driver,
                load,
                java_version=self.client.java_version,
                release=self.client.release,
            )
        )

    def _gateway(self) -> GatewayProcess:
        is_tls = self.way == "mutual TLS"
        listener: dict[str, Any] = {"advertise": self._host}
        servers = self.site.cluster.bootstrap_servers(SSL if is_tls else SASL_PLAINTEXT)
        cluster: dict[str, Any] = {"bootstrap_servers": servers.split(",")}
        if is_tls:
            pair = self.site.authority.issue(f"gateway-before-{self.client}")
            files = {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}
            ca_file = str(self.site.authority.ca_file)
            cluster["tls"] = {**files, "ca_file": ca_file}
            listener["tls"] = {
                **files,
                "client_auth": "required",
                "client_ca_file": ca_file,
                "ssl_principal_mapping_rules": RULES,
            }
        asks = {"own_client": self.site.own_client} if self.way == "delegation token" else {}
        return GatewayProcess(
            servers,
            listener=listener,
            # Bytes are counted for each user where there is a rate: an old client brings no producer ids.
            quotas={"mode": "enforce", "default": {"producer_ids_rate": 100, "producer_byte_rate": 10**9}},
            settings={"cluster": cluster, **asks},
        )

    def finish(self) -> str:
        """Wait for the client's end; hold what it sent, and as whom, to what had to be. Returns what was seen."""
        journal = self.process.wait()
        log = read_log(self.site.cluster.bootstrap_servers(), self.topic)
        raise_if_bad(check([journal], log, only_ours=True))
        assert journal.count(Outcome.ACKNOWLEDGED) == RECORDS
        metrics = self.gateway.metrics()
        counted = {
            dict(labels)["user"]
            for (name, labels), value in metrics.samples.items()
            if name == "pidgate_byte_counted_total" and value
        }
        assert counted == {self.user}
        connections = int(metrics.value("pidgate_connections_total"))
        logins = int(metrics.value("pidgate_requests_total", api="SaslHandshake"))
        if self.way == "mutual TLS":
            assert logins == 0
            return ""
        ended = sum(
            int(metrics.value("pidgate_connections_closed_total", cause=cause))
            for cause in ("broker", "upstream")
        )
        if self.client.is_newest and self.client.driver in AUTHENTICATES_ANEW:
            assert ended == 0
            assert logins > connections
        assert logins > 2
        if logins > connections:
            return f"re-authenticates: {logins} logins on {connections} connections"
        return f"reconnects when a session ends: {connections} connections, {ended} ended by the broker"
