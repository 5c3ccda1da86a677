"""The configuration's sections and keys: frozen, each key checked by itself.

A key exists only once its code works. Rules between keys are in conflicts.py. The text below a key is its line in
docs/reference/configuration.md and in the JSON schema.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from socket import gethostname
from typing import Annotated, Literal

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema

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
    """The Kafka cluster behind the gateway."""

    name: str = ""
    """Name of the cluster in events and on the status page."""
    bootstrap_servers: tuple[ServerAddress, ...] = Field(min_length=1, strict=False)
    """Brokers to start from, as host:port."""
    tls: ClusterTlsSettings | None = None
    """TLS towards the brokers. `{}`: with this machine's CAs. Left out: no TLS."""
    proxy_protocol: bool = False
    """Begin each client's connection to a broker with a PROXY header that carries the client's address."""
    upstream_identity: UpstreamIdentity = "pass"
    """The user that brokers see. `pass`: clients log in themselves. `delegation_token`: the user of the client's
    certificate, by a delegation token. `own`: the user of `own_client`, for all clients.
    """


class SaslSettings(Section):
    """Credentials of the gateway's own Kafka clients. The password is read from a file, never written here.

    Clients of the gateway log in with their own.
    """

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    """SASL mechanism of the gateway's own Kafka clients."""
    username: str = Field(min_length=1)
    """Its user."""
    password_file: str = Field(min_length=1)
    """File that holds its password, readable by the gateway's user alone."""


class EventsSettings(Section):
    """The topic of all decisions: audit log, shared state, the pipeline's input.

    Quotas set at run time are kept on a second topic, named after this one.
    """

    enabled: bool = True
    """Write decisions to the topic, and follow those of other gateways. `false`: for a single gateway that may forget,
    or has a state directory.
    """
    topic: str = Field(default="__pidgate_events", pattern=r"^[A-Za-z0-9._-]{1,240}$")
    """The events topic; the topic of quotas has `_quotas` behind this name. The same for all gateways of a cluster."""
    retention_ms: PositiveDurationMs = Field(default=7 * 24 * _HOUR_MS, alias="retention")
    """`retention.ms` of the topic when the gateway creates it."""
    replication_factor: int = Field(default=3, ge=1, le=32)
    """Its replicas when the gateway creates it; at most as many as there are brokers."""
    redact: tuple[Literal["user", "client_id", "address"], ...] = Field(default=(), strict=False)
    """Fields that events carry as a hash."""

    @property
    def quotas_topic(self) -> str:
        return f"{self.topic}_quotas"


class NodePortsSettings(Section):
    """Ports that represent brokers: in the order of `node_ids`, or `first` + node id without them."""

    first: int = Field(default=9300, ge=1, le=65_535)
    """Port of the first node of `node_ids`; without them of node 0."""
    node_ids: NodeIds = ()
    """Nodes with a port, in this order: [0-5, 10]. Needed where several gateways share a name."""


class ListenerSettings(Section):
    """Address where clients connect, and the advertised addresses of brokers; used by nodes.py."""

    bind: BindAddress = Address("127.0.0.1", 9292)
    """Address and port where clients bootstrap."""
    advertise: Advertised | None = None
    """Host that clients get in Metadata, and the port if it is not the node's own. May hold `{node_id}`."""
    node_ports: NodePortsSettings | None = None
    """Ports that represent brokers. Left out: from 9300 on."""
    only_node: int | None = Field(default=None, ge=0)
    """The one broker of a sidecar; `bind` is its port."""
    sni: Advertised | None = None
    """One port for all brokers, told apart by TLS server name: broker-{node_id}.kafka.example."""
    authentication: Literal["required", "none"] | None = None
    """Whether clients must log in. Left out: as the brokers require it."""
    sasl_oauthbearer_sub_claim_name: ClaimName = DEFAULT_CLAIM
    """Claim of a bearer token that is the user, as in the brokers' setting of that name."""
    tls: ListenerTlsSettings | None = None
    """TLS towards clients."""
    proxy_protocol_from: Networks = ()
    """Addresses of proxies whose connections begin with a PROXY header (version 2)."""

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
    """Time over which a rate is counted."""
    burst_windows: float = Field(default=1.0, alias="burst", gt=0, le=100, allow_inf_nan=False)
    """Capacity of a bucket, in windows of the rate."""
    given_remember_ms: Annotated[
        int | None,
        PlainValidator(_remember),
        WithJsonSchema({"type": ["string", "integer"], "title": "duration, or `window`"}),
    ] = Field(default=24 * _HOUR_MS, alias="remember")
    """Time after its last use in which an id is free of charge; the brokers' `producer.id.expiration.ms`. `window`: as
    long as a window.
    """
    transactional: Mode = "observe"
    """`enforce`: refuse new ids in transactions as well."""
    given_grace_ms: DurationMs | None = Field(default=None, alias="grace")
    """Time after a cold start in which unseen ids pass uncharged, up to ten times the rate. Left out: one window."""
    max_throttle_ms: PositiveDurationMs = Field(default=10_000, alias="max_throttle")
    """Longest `throttle_time_ms` of one refusal; below the clients' request timeout."""
    max_live_ids: int = Field(default=10_000_000, ge=1)
    """Ids remembered in all, which bounds the memory: 150 MB with all of them in use."""
    refuse_init_producer_id: bool = False
    """Give no producer id to a user without tokens."""

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
    """Bytes produced per second, over all brokers behind the gateway."""
    consumer_byte_rate: SizeBytes | None = None
    """Bytes fetched per second, likewise."""

    def to_byte_rates(self) -> quota.ByteRates:
        return quota.ByteRates(self.producer_byte_rate, self.consumer_byte_rate)


class ClientSettings(ByteRatesSettings):
    """Quota of one client id of a user. Its rate of ids is a part of the user's, in thousandths of an id per window."""

    producer_ids_rate_milli: RateMilli | None = Field(default=None, alias="producer_ids_rate")
    """New producer ids per window. 0: no new id; left out: no limit. Of a client id: a part of its user's rate."""


class DefaultSettings(ClientSettings):
    """Quota of every user without its own."""

    transactional_ids_rate_milli: RateMilli | None = Field(default=None, alias="transactional_ids_rate")
    """New transactional ids per window."""
    producer_states_rate_milli: RateMilli | None = Field(default=None, alias="producer_states_rate")
    """New pairs of producer id and partition per window: charged, never refused. New ids wait for the debt."""
    clients: Mapping[str, ByteRatesSettings] = {}
    """Rates of single client ids; `<default>`: byte rates of each client id that is not named."""

    def byte_rates(self, user: str) -> Iterator[tuple[quota.ByteEntity, quota.ByteRates]]:
        """Yield the byte rates of this user, alone and with client ids."""
        yield (user, None), self.to_byte_rates()
        for client_id, rates in self.clients.items():
            yield (user, _client(client_id)), rates.to_byte_rates()


class UserSettings(DefaultSettings):
    """Quota of one user. Missing keys are taken from `default` and `quotas.mode`."""

    mode: Mode | None = None
    """`observe` or `enforce`, instead of `quotas.mode`."""
    owner: str = ""
    """Team that `explain` and `quotas describe` name."""
    clients: Mapping[str, ClientSettings] = {}
    """Rates of single client ids of this user."""
    exempt: tuple[Literal["producer_ids", "bytes"], ...] = Field(default=(), strict=False)
    """Quotas that count this user and never hold it."""

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
    """Quotas of all users, and their common rules."""

    mode: Mode = "observe"
    """`observe` counts and refuses nothing; `enforce` refuses and throttles."""
    producer_ids: ProducerIdsSettings = ProducerIdsSettings()
    """How ids are counted, remembered and refused."""
    cluster_producer_ids_rate_milli: RateMilli | None = Field(default=None, alias="cluster_producer_ids_rate")
    """New producer ids per window of all enforced users together."""
    fuse: int | None = Field(default=None, ge=1)
    """Producer states that a broker has room for; from 80 % on, users above their quota are enforced."""
    help_url: str = ""
    """Address that a refusal's message names."""
    default: DefaultSettings = DefaultSettings()
    """Quota of each user that is not named."""
    users: dict[str, UserSettings] = {}
    """Quotas by user. Missing keys are those of `default`."""
    unidentified: dict[Mechanism, UserSettings] = {}
    """Quotas of clients without a readable user name, by SASL mechanism (`SSL`: certificates). Keys as for a user."""
    clients: dict[str, ByteRatesSettings] = {}
    """Byte rates of single client ids, over all users; `<default>`: of each not named. Keys: the two byte rates."""
    runtime_changes: Literal["runtime_wins", "file_wins", "refused"] = "runtime_wins"
    """`runtime_wins`: what is set at run time overrides the file. `file_wins`: only where the file says nothing.
    `refused`: nothing but the observe mode of all users can be set.
    """
    byte_rates: Literal["gateway", "brokers"] = "gateway"
    """Who keeps byte rates of users that are set at run time: the gateway, or each broker by itself."""

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

    frame_bytes: SizeBytes = Field(default=100 * 2**20, alias="frame")
    """Largest request; the brokers' `socket.request.max.bytes`."""
    buffered_total_bytes: SizeBytes = Field(default=512 * 2**20, alias="buffered_total")
    """Memory for requests and responses that wait."""
    # Brokers close connections after connections.max.idle.ms, 10 minutes.
    idle_ms: PositiveDurationMs = Field(default=_TEN_MINUTES_MS, alias="idle")
    """Time after which a connection without traffic is closed."""
    # None: half of the process's open file limit, as a client takes two descriptors.
    connections: int | None = Field(default=None, ge=1)
    """Client connections in all. Left out: half of the open files."""
    # None: half of `connections`, so that no user can take all.
    connections_per_user: int | None = Field(default=None, ge=1)
    """Connections of one user. Left out: what it leaves free for others."""
    # A fleet of 5,000 is admitted within 15 s; a crash loop is limited to the same rate.
    connections_rate_per_user: int = Field(default=200, ge=1)
    """New connections of one user per second."""
    # Off: behind a NAT all clients have one address.
    connections_per_address: int | None = Field(default=None, ge=1)
    """Connections from one address. Left out: no limit."""


class AdminSettings(Section):
    """The address of the status page, /livez, /readyz, /metrics and the quota API."""

    bind: BindAddress = Address("127.0.0.1", 9290)
    """Address of the status page, `/metrics`, `/livez`, `/readyz` and the quota API."""
    tls: ServerTlsSettings | None = None
    """TLS of that address."""
    writable: bool = False
    """Let holders of the token set quotas."""
    token_file: str = ""
    """File with the token. Left out: the gateway makes one for its own user where one is needed."""
    hosts: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,253}$")], ...] = Field(
        default=(), strict=False
    )
    """Further host names of the address, as browsers and Prometheus use them."""


class Settings(Section):
    """All settings. Created only by load, parse or from_options, which also check rules between keys."""

    cluster: ClusterSettings
    """The Kafka cluster behind the gateway."""
    given_gateway_id: str = Field(default="", alias="gateway_id", pattern=r"^[A-Za-z0-9._:-]{0,128}$")
    """Name of this gateway in events and logs. Left out: host name and admin port."""
    own_client: SaslSettings | None = None
    """Login of the gateway's own Kafka clients, for its topics. Clients of the gateway log in with their own."""
    listeners: tuple[ListenerSettings, ...] = Field(default=(ListenerSettings(),), min_length=1, strict=False)
    """Where clients connect."""
    quotas: QuotasSettings = QuotasSettings()
    """Quotas and what they have in common."""
    limits: LimitsSettings = LimitsSettings()
    """Bounds that depend on the machine."""
    events: EventsSettings = EventsSettings()
    """The topic of all decisions."""
    state_dir: str | None = None
    """Local directory of the quota's state, one for each gateway."""
    # Off: a second gateway that is started on the same ports by mistake is told so.
    reuse_port: bool = False
    """Let several gateways of one machine share the ports."""
    lanes: Annotated[
        int | None,
        PlainValidator(_lanes),
        WithJsonSchema(
            {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0, "maximum": MOST_THREADS}]}
        ),
    ] = None
    """Threads in C for traffic without decisions. `auto`: as many as cores, less one; 0: none."""
    admin: AdminSettings = AdminSettings()
    """The admin address."""
    drain_timeout_ms: DurationMs = Field(default=25_000, alias="drain_timeout")
    """Longest drain after SIGTERM; below the supervisor's own limit."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level of log lines."""

    @property
    def gateway_id(self) -> str:
        """Name of this gateway within the cluster; by default host name and admin port."""
        return self.given_gateway_id or f"{gethostname()}:{self.admin.bind.port}"

    def to_quotas(self) -> quota.Quotas:
        """Return the quotas in force at the start."""
        return self.quotas.to_quotas()
