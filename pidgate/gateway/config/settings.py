"""The configuration's sections and keys: frozen, each key checked by itself.

A key exists only once its code works. Rules between keys are in conflicts.py.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from socket import gethostname
from typing import Annotated, Literal

from pydantic import BaseModel, Field, PlainValidator

from pidgate import units
from pidgate.gateway.config.tls_settings import ClusterTlsSettings, ListenerTlsSettings, ServerTlsSettings
from pidgate.gateway.config.values import (
    SECTION,
    Advertised,
    BindAddress,
    ClaimName,
    DurationMs,
    Mechanism,
    Networks,
    NodeIds,
    PositiveDurationMs,
    RateMilli,
    ServerAddress,
    SizeBytes,
)
from pidgate.names import bounded
from pidgate.protocol.oauthbearer import DEFAULT_CLAIM
from pidgate.quota import settings as quota
from pidgate.quota.entities import User, unidentified
from pidgate.units import Address

Mode = Literal["observe", "enforce"]

MIN_THROTTLE_MS = 100
MOST_THREADS = 64
_TEN_MINUTES_MS = 600_000
_HOUR_MS = 3_600_000


def _remember(value: object) -> int | None:
    return None if value == "window" else units.duration_ms(value)


def _lanes(value: object) -> int | None:
    if value == "auto":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_THREADS:
        return value
    raise ValueError(f"write auto, or a number of threads from 0 (off) to {MOST_THREADS}")


DEFAULT_CLIENT = "<default>"
"""Key among client ids for all that are not named, as in Kafka."""


def _client(name: str) -> str:
    """Return the client id of an entity in the quota package."""
    return quota.DEFAULT if name == DEFAULT_CLIENT else bounded(name)


class Section(BaseModel):
    model_config = SECTION


UpstreamIdentity = Literal["pass", "delegation_token", "own"]


class ClusterSettings(Section):
    """The Kafka cluster behind the gateway. `tls` None: no TLS towards the brokers.

    `proxy_protocol`: each client's connection to a broker begins with a PROXY header, which carries the
    client's address. `upstream_identity`: the identity of clients at the brokers. `pass`: clients log in
    themselves. `delegation_token`: a client with a certificate is logged in as its user, with a delegation
    token obtained by the gateway. `own`: all clients appear as the gateway's own client.
    """

    name: str = ""
    bootstrap_servers: tuple[ServerAddress, ...] = Field(min_length=1, strict=False)
    tls: ClusterTlsSettings | None = None
    proxy_protocol: bool = False
    upstream_identity: UpstreamIdentity = "pass"


class SaslSettings(Section):
    """Credentials of the gateway's own Kafka clients. The password is read from a file, never written here.

    Clients of the gateway log in with their own.
    """

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    username: str = Field(min_length=1)
    password_file: str = Field(min_length=1)


class EventsSettings(Section):
    """The topic of all decisions: audit log, shared state, the pipeline's input.

    Quotas set at run time are kept on a second topic, named after this one.
    """

    enabled: bool = True
    topic: str = Field(default="__pidgate_events", pattern=r"^[A-Za-z0-9._-]{1,240}$")
    retention_ms: PositiveDurationMs = Field(default=7 * 24 * _HOUR_MS, alias="retention")
    replication_factor: int = Field(default=3, ge=1, le=32)
    redact: tuple[Literal["user", "client_id", "address"], ...] = Field(default=(), strict=False)

    @property
    def quotas_topic(self) -> str:
        return f"{self.topic}_quotas"


class NodePortsSettings(Section):
    """Ports that represent brokers: in the order of `node_ids`, or `first` + node id without them."""

    first: int = Field(default=9300, ge=1, le=65_535)
    node_ids: NodeIds = ()


class ListenerSettings(Section):
    """Address where clients connect, and the advertised addresses of brokers; used by nodes.py."""

    bind: BindAddress = Address("127.0.0.1", 9292)
    advertise: Advertised | None = None
    node_ports: NodePortsSettings | None = None
    only_node: int | None = Field(default=None, ge=0)
    sni: Advertised | None = None
    authentication: Literal["required", "none"] | None = None
    sasl_oauthbearer_sub_claim_name: ClaimName = DEFAULT_CLAIM
    tls: ListenerTlsSettings | None = None
    proxy_protocol_from: Networks = ()

    @property
    def requires_login(self) -> bool | None:
        """True: clients have to log in first. None: as observed at the brokers."""
        return None if self.authentication is None else self.authentication == "required"

    @property
    def name(self) -> str:
        return str(self.bind)

    @property
    def bind_host(self) -> str:
        return self.bind.host

    @property
    def bind_port(self) -> int:
        return self.bind.port

    @property
    def advertise_host(self) -> str:
        """The advertised host, possibly with {node_id}."""
        shown = self.sni or self.advertise
        return self.bind.host if shown is None else shown.host

    @property
    def advertise_port(self) -> int | None:
        """The advertised port. None: the node's own port."""
        shown = self.sni or self.advertise
        return None if shown is None else shown.port

    @property
    def first_node_port(self) -> int | None:
        """None if `bind` is the only port: for the sidecar of one broker (`only_node`), and with `sni`."""
        if self.only_node is not None or self.sni is not None:
            return None
        return (self.node_ports or NodePortsSettings()).first

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The node ids with a port. Empty: any id, at `first_node_port` + id."""
        return () if self.node_ports is None else self.node_ports.node_ids


class ProducerIdsSettings(Section):
    """How new producer ids are counted, remembered and refused; the same for all users."""

    window_ms: PositiveDurationMs = Field(default=_HOUR_MS, alias="window")
    burst_windows: float = Field(default=1.0, alias="burst", gt=0, le=100, allow_inf_nan=False)
    given_remember_ms: Annotated[int | None, PlainValidator(_remember)] = Field(
        default=24 * _HOUR_MS, alias="remember"
    )
    transactional: Mode = "observe"
    given_grace_ms: DurationMs | None = Field(default=None, alias="grace")
    max_throttle_ms: PositiveDurationMs = Field(default=10_000, alias="max_throttle")
    max_live_ids: int = Field(default=10_000_000, ge=1)
    refuse_init_producer_id: bool = False

    @property
    def remember_ms(self) -> int:
        return self.window_ms if self.given_remember_ms is None else self.given_remember_ms

    @property
    def grace_ms(self) -> int:
        """How long unseen ids are admitted uncharged after a cold start; by default one window."""
        return self.window_ms if self.given_grace_ms is None else self.given_grace_ms


class ByteRatesSettings(Section):
    """Bytes per second (KIP-13) to which the gateway limits an entity, over all brokers behind it."""

    producer_byte_rate: SizeBytes | None = None
    consumer_byte_rate: SizeBytes | None = None

    def to_byte_rates(self) -> quota.ByteRates:
        return quota.ByteRates(self.producer_byte_rate, self.consumer_byte_rate)


class ClientSettings(ByteRatesSettings):
    """Quota of one client id of a user. Its rate of ids is a part of the user's, in thousandths of an id per window."""

    producer_ids_rate_milli: RateMilli | None = Field(default=None, alias="producer_ids_rate")


class DefaultSettings(ClientSettings):
    """Quota of every user without its own."""

    transactional_ids_rate_milli: RateMilli | None = Field(default=None, alias="transactional_ids_rate")
    producer_states_rate_milli: RateMilli | None = Field(default=None, alias="producer_states_rate")
    clients: Mapping[str, ByteRatesSettings] = {}

    def byte_rates(self, user: str) -> Iterator[tuple[quota.ByteEntity, quota.ByteRates]]:
        """Yield the byte rates of this user, alone and with client ids."""
        yield (user, None), self.to_byte_rates()
        for client_id, rates in self.clients.items():
            yield (user, _client(client_id)), rates.to_byte_rates()


class UserSettings(DefaultSettings):
    """Quota of one user. Missing keys are taken from `default` and `quotas.mode`."""

    mode: Mode | None = None
    owner: str = ""
    clients: Mapping[str, ClientSettings] = {}
    exempt: tuple[Literal["producer_ids", "bytes"], ...] = Field(default=(), strict=False)

    def to_user_quota(self) -> quota.UserQuota:
        mode = None if self.mode is None else quota.Mode(self.mode)
        return quota.UserQuota(
            self.producer_ids_rate_milli,
            mode,
            "producer_ids" in self.exempt,
            "bytes" in self.exempt,
            self.transactional_ids_rate_milli,
            client_rates_milli=self.client_rates_milli(),
            producer_states_rate_milli=self.producer_states_rate_milli,
        )

    def client_rates_milli(self) -> dict[str, int]:
        """Return the rates of new producer ids of client ids."""
        rates = {bounded(name): client.producer_ids_rate_milli for name, client in self.clients.items()}
        return {name: rate for name, rate in rates.items() if rate is not None}


class QuotasSettings(Section):
    """Quotas of all users, and their common rules.

    `runtime_changes`: handling of quotas set at run time, through Kafka's admin API or `pidgate quotas`. `byte_rates`:
    who keeps byte rates of users that are set so. `fuse`: the producer states that a broker has room for. When the
    forecast comes near it, users above their own quota are enforced.
    """

    mode: Mode = "observe"
    producer_ids: ProducerIdsSettings = ProducerIdsSettings()
    cluster_producer_ids_rate_milli: RateMilli | None = Field(default=None, alias="cluster_producer_ids_rate")
    fuse: int | None = Field(default=None, ge=1)
    help_url: str = ""
    default: DefaultSettings = DefaultSettings()
    users: dict[str, UserSettings] = {}
    unidentified: dict[Mechanism, UserSettings] = {}
    clients: dict[str, ByteRatesSettings] = {}
    runtime_changes: Literal["runtime_wins", "file_wins", "refused"] = "runtime_wins"
    byte_rates: Literal["gateway", "brokers"] = "gateway"

    def named(self) -> dict[User, UserSettings]:
        """Return every user with its own quotas, including the entities of unidentified users."""
        users = {bounded(name): user for name, user in self.users.items()}
        return {**users, **{unidentified(name): user for name, user in self.unidentified.items()}}

    def byte_quotas(self) -> quota.ByteQuotas:
        """Return every entity with a byte rate."""
        entries = [
            *self.default.byte_rates(quota.DEFAULT),
            *(
                (entity, rates)
                for name, user in self.named().items()
                for entity, rates in user.byte_rates(name)
            ),
            *(((None, _client(name)), rates.to_byte_rates()) for name, rates in self.clients.items()),
        ]
        nothing = quota.ByteRates()
        return quota.ByteQuotas(
            rates={entity: rates for entity, rates in entries if rates != nothing},
            at_gateway=self.byte_rates == "gateway",
        )

    def to_quotas(self) -> quota.Quotas:
        """Convert these settings to the quota package's type."""
        ids = self.producer_ids
        return quota.Quotas(
            mode=quota.Mode(self.mode),
            producer_ids=quota.ProducerIdSettings(
                window_ms=ids.window_ms,
                # By its decimal digits: 0.1 means a tenth, not the nearest binary fraction.
                burst=Fraction(str(ids.burst_windows)),
                remember_ms=ids.remember_ms,
                transactional=quota.Mode(ids.transactional),
                max_throttle_ms=ids.max_throttle_ms,
                max_live_ids=ids.max_live_ids,
                refuse_init=ids.refuse_init_producer_id,
            ),
            default=quota.UserQuota(
                self.default.producer_ids_rate_milli,
                transactional_ids_rate_milli=self.default.transactional_ids_rate_milli,
                producer_states_rate_milli=self.default.producer_states_rate_milli,
            ),
            users={name: user.to_user_quota() for name, user in self.named().items()},
            cluster_rate_milli=self.cluster_producer_ids_rate_milli,
            fuse=self.fuse,
            help_url=self.help_url,
            bytes=self.byte_quotas(),
        )


class LimitsSettings(Section):
    """Bounds that depend on the machine or the cluster. The fixed ones are in gateway/proxy/bounds.py."""

    # 100 MiB is the brokers' socket.request.max.bytes.
    frame_bytes: SizeBytes = Field(default=100 * 2**20, alias="frame")
    buffered_total_bytes: SizeBytes = Field(default=512 * 2**20, alias="buffered_total")
    # Brokers close connections after connections.max.idle.ms, 10 minutes.
    idle_ms: PositiveDurationMs = Field(default=_TEN_MINUTES_MS, alias="idle")
    # None: half of the process's open file limit, as a client takes two descriptors.
    connections: int | None = Field(default=None, ge=1)
    # None: half of `connections`, so that no user can take all.
    connections_per_user: int | None = Field(default=None, ge=1)
    # A fleet of 5,000 is admitted within 15 s; a crash loop is limited to the same rate.
    connections_rate_per_user: int = Field(default=200, ge=1)
    # Off: behind a NAT all clients have one address.
    connections_per_address: int | None = Field(default=None, ge=1)


class AdminSettings(Section):
    """The address of /livez, /readyz, /metrics and the quota API.

    `writable`: quotas may be set there. `token_file` holds the required token; without it the gateway creates
    one for its own user. `hosts`: its names, in addition to its addresses and localhost.
    """

    bind: BindAddress = Address("127.0.0.1", 9290)
    tls: ServerTlsSettings | None = None
    writable: bool = False
    token_file: str = ""
    hosts: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,253}$")], ...] = Field(
        default=(), strict=False
    )


class Settings(Section):
    """All settings. Created only by load, parse or from_options, which also check rules between keys."""

    cluster: ClusterSettings
    given_gateway_id: str = Field(default="", alias="gateway_id", pattern=r"^[A-Za-z0-9._:-]{0,128}$")
    own_client: SaslSettings | None = None
    listeners: tuple[ListenerSettings, ...] = Field(default=(ListenerSettings(),), min_length=1, strict=False)
    quotas: QuotasSettings = QuotasSettings()
    limits: LimitsSettings = LimitsSettings()
    events: EventsSettings = EventsSettings()
    state_dir: str | None = None
    # Off: a second gateway that is started on the same ports by mistake is told so.
    reuse_port: bool = False
    # None: as many as there are cores, less one; at least one.
    lanes: Annotated[int | None, PlainValidator(_lanes)] = None
    admin: AdminSettings = AdminSettings()
    drain_timeout_ms: DurationMs = Field(default=25_000, alias="drain_timeout")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def gateway_id(self) -> str:
        """Name of this gateway within the cluster; by default host name and admin port."""
        return self.given_gateway_id or f"{gethostname()}:{self.admin.bind.port}"

    def to_quotas(self) -> quota.Quotas:
        """Return the quotas in force at the start."""
        return self.quotas.to_quotas()
