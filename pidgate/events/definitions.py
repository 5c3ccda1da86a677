"""Every type of event a gateway writes: one flat dataclass each, and the meaning of each field beside it.

The one place where events are defined: the writer, the reader, the JSON schema and the fields in
docs/reference/events.md are derived from these classes. Field names are the JSON names; the text in `Annotated` is the
documentation. Types are simple (integers, text, booleans, lists, a few flat records), so that tables of other systems
can be derived too.

Knows nothing of how events are made or carried. Pure: times are given.

Durations and times end in _ms; times whose name says `wall` are milliseconds since 1970 (UTC). Unfrozen,
because making a frozen slotted dataclass costs three times as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

SCHEMA_VERSION = 1
"""Written into every event. Readers take this version, and newer ones leniently (reading.py)."""

DecisionWord = Literal["admit", "refuse", "hold"]
ReasonWord = Literal[
    "first_seen",
    "refresh",
    "sticky",
    "established",
    "queue",
    "deadline",
    "observe",
    "exempt",
    "restoring",
    "grace",
    "inherited",
    "fail_open",
    "blocked",
    "held",
]
ModeWord = Literal["observe", "enforce"]
LifecyclePhase = Literal[
    "start", "caught_up", "alive", "stop", "member_seen", "member_gone", "asked", "answered"
]
RestoredFrom = Literal["topic", "state_dir", "nothing"]


@dataclass(slots=True, kw_only=True)
class Event:
    """Envelope of every event: cluster and gateway, process and number, time, and the client it is about."""

    type: ClassVar[str] = ""

    cluster: Annotated[str, "Cluster id as the brokers tell it; empty while it is unknown"]
    gateway_id: Annotated[str, "Name of the gateway, from its configuration (default: host name and port)"]
    incarnation: Annotated[str, "One run of the gateway, from start to end: random"]
    seq: Annotated[
        int, "Number of the event in its incarnation, from 1, without gaps when it is made: a gap is a loss"
    ]
    wall_time_ms: Annotated[int, "When the event was made, by the gateway's wall clock"]
    decision_time_ms: Annotated[
        int, "The same moment on the monotonic clock that decisions use; comparable within one machine's boot"
    ]
    connection_id: Annotated[
        int | None, "The client's connection, unique within its incarnation; null: not about one connection"
    ] = None
    listener: Annotated[str, "Name of the listener that the client connected to"] = ""
    user: Annotated[
        str,
        "Principal name; NUL and a SASL mechanism (`\\u0000OAUTHBEARER`): all clients of that mechanism without a "
        "readable name; empty: no user (lifecycle, config, topology)",
    ] = ""
    client_id: Annotated[str, "Client id of the request"] = ""
    software_name: Annotated[str, "Client software by ApiVersions; empty: none"] = ""
    software_version: Annotated[str, "Its version"] = ""
    address: Annotated[str, "The client's address, without port"] = ""


@dataclass(slots=True, kw_only=True)
class DecisionEvent(Event):
    """An unseen producer id was admitted, refused or let through (observe, exempt, grace, fail_open), a known id was
    refreshed, or a mute holds an id's first batch of a partition. These events are the audit log and the state that
    gateways share.
    """

    type: ClassVar[str] = "decision"

    producer_id: Annotated[int, "The producer id"]
    epoch: Annotated[int, "Its epoch"]
    transactional: Annotated[bool, "Whether the batch belongs to a transaction"]
    transactional_id_hash: Annotated[
        str | None, "Short hash of the transactional id; null: there is none"
    ] = None
    topic: Annotated[
        str,
        "Topic name, or its id (base64, as Kafka prints it) if only that is known; empty, with partition -1, if no "
        "batch was judged (inherited)",
    ]
    partition: Annotated[int, "Partition of the batch"]
    base_sequence: Annotated[int, "First sequence number of the batch"]
    request_partitions: Annotated[int, "How many batches with a producer id the request carried"]
    decision: Annotated[DecisionWord, "hold: no decision yet, the batch waits behind a mute"]
    reason: Annotated[
        ReasonWord,
        "first_seen: by the bucket; refresh: remembered from an earlier slice, free; sticky: an earlier batch is still "
        "refused; established: first sight above sequence 0; queue: by its place in the queue; deadline: back before "
        "its throttle was over; observe: nothing is refused; exempt; restoring: passed before the state was restored, "
        "charged then; grace: uncharged after a cold start; inherited: given to a remembered id; fail_open: an error "
        "in the quota code; blocked: the user's rate is 0; held: a hold, at most one per id every 150 s",
    ]
    would_refuse: Annotated[bool, "Forwarded, but today's quotas, enforced, would have refused it"] = False
    tokens_before: Annotated[
        int | None,
        "The user's balance before, in units (token_units make one token); null: no bucket was asked",
    ] = None
    tokens_after: Annotated[int | None, "The balance after, in the same units; below 0: throttled"] = None
    token_units: Annotated[
        int | None,
        "Units of one token: window_ms x 1000 of the window then in force; null: no bucket was asked",
    ] = None
    throttle_time_ms: Annotated[int, "Throttle told to the client; 0: none"] = 0
    queue_position: Annotated[int | None, "Place in the user's queue, 0 = next; null: not in line"] = None
    waited_ms: Annotated[int | None, "Since the id's first refusal; null: it was not refused before"] = None
    quota_version: Annotated[int, "Quotas in force, numbered by the gateway's config events"]
    applied_offsets: Annotated[
        list[int],
        "What the decision knew of other gateways: per partition of the events topic (by index), the next offset not "
        "yet applied",
    ] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class RefusalOutcomeEvent(Event):
    """Outcome of a refused producer id: admitted after all, or never seen again."""

    type: ClassVar[str] = "refusal_outcome"

    producer_id: Annotated[int, "The producer id"]
    attempts: Annotated[int, "Number of refusals"]
    waited_ms: Annotated[int, "From its first refusal to its admission or last sight"]
    outcome: Annotated[Literal["admitted", "gave_up"], "gave_up: not seen again within its time in the queue"]


@dataclass(slots=True, kw_only=True)
class IdUsageEvent(Event):
    """Forwarded batches of one producer id: at the end of a slice (15 minutes at most), when its connections close,
    and at drain.
    """

    type: ClassVar[str] = "id_usage"

    producer_id: Annotated[int, "The producer id"]
    epoch: Annotated[int, "Its newest epoch"]
    requests: Annotated[int, "Produce requests forwarded since the id's previous id_usage event"]
    batches: Annotated[int, "Batches in them"]
    records: Annotated[int, "Records in them, as the batch headers count them"]
    bytes: Annotated[int, "Bytes of these requests, with headers"]
    partitions: Annotated[int, "Distinct partitions written to (a lower bound if very many)"]
    first_ms: Annotated[int, "Wall clock time of the first of these requests"]
    last_ms: Annotated[int, "Wall clock time of the last one"]
    connections: Annotated[int, "Connections that used the id"]


@dataclass(slots=True, kw_only=True)
class InitProducerIdEvent(Event):
    """A broker answered InitProducerId, or EndTxn (v5+) with a new id; or the gateway refused InitProducerId itself
    (refuse_init_producer_id, transactional_ids_rate): error 14, `node_id` null.
    """

    type: ClassVar[str] = "init_producer_id"

    asked_producer_id: Annotated[int, "Id in the request; -1: none, a new one is wanted"]
    asked_epoch: Annotated[int, "Epoch in the request; -1: none"]
    answered_producer_id: Annotated[int, "Id in the answer; -1 with an error"]
    answered_epoch: Annotated[int, "Epoch in the answer; -1 with an error"]
    error: Annotated[int, "Kafka's error code; 0: none"]
    node_id: Annotated[int | None, "Broker that answered; null: unknown (a bootstrap address)"]
    transactional: Annotated[bool, "Whether the request named a transactional id"]
    count: Annotated[
        int, "Events summed in this one: beyond 10 a second of one user, client id and address"
    ] = 1


@dataclass(slots=True, kw_only=True)
class TransactionalIdEvent(Event):
    """A transactional id limited by `transactional_ids_rate` was admitted at InitProducerId as new, or refreshed.
    Gateways share these; a refusal is an init_producer_id event with error 14.
    """

    type: ClassVar[str] = "transactional_id"

    transactional_id_hash: Annotated[str, "Short hash of the transactional id"]
    reason: Annotated[
        ReasonWord,
        "As in decision: first_seen, refresh, observe, exempt, restoring, grace, fail_open",
    ]
    would_refuse: Annotated[bool, "Forwarded, but today's quotas, enforced, would have refused it"] = False
    tokens_after: Annotated[int | None, "The user's balance of transactional ids; null: no bucket"] = None
    token_units: Annotated[int | None, "What one token is in tokens_after; null: no bucket"] = None
    quota_version: Annotated[int, "Quotas in force, numbered by the gateway's config events"]


@dataclass(slots=True, kw_only=True)
class ProduceErrorEvent(Event):
    """Error codes in brokers' answers to Produce, per producer id and code; per slice or at close."""

    type: ClassVar[str] = "produce_error"

    producer_id: Annotated[int, "The producer id of the batch; -1: a batch without one"]
    code: Annotated[int, "Kafka's error code"]
    count: Annotated[int, "Partitions of answers with this code"]
    node_id: Annotated[int | None, "Broker that answered; null: unknown"]


@dataclass(slots=True, kw_only=True)
class ConnectionEvent(Event):
    """A client's connection was opened or closed. The opening is published once the user is known, with the time of
    opening.
    """

    type: ClassVar[str] = "connection"

    phase: Annotated[Literal["open", "close"], "Opened or closed"]
    node_id: Annotated[int | None, "Broker behind the port the client chose; null: a bootstrap port"]
    principal_mechanism: Annotated[str, "SASL mechanism known by then; SSL: a certificate; empty: none"] = ""
    close_reason: Annotated[
        str,
        "client, reset, broker, upstream, unreachable, moved, idle, login, drain, protocol, limit, tls, "
        "unauthenticated, proxy, gateway_topic, quota (no room for a refusal, or the refused batch did not return), "
        "acks0_refused, error, or a newer word; empty when it opens",
    ] = ""
    seconds: Annotated[float, "How long it was open; 0 when it opens"] = 0.0
    bytes_in: Annotated[int, "Bytes from the client"] = 0
    bytes_out: Annotated[int, "Bytes to the client"] = 0
    requests: Annotated[int, "Requests of the client"] = 0
    count: Annotated[
        int,
        "Events summed in this one, as in init_producer_id; then seconds, bytes and requests are sums",
    ] = 1


@dataclass(slots=True, kw_only=True)
class QuotaInForce:
    """Quota of one user, and who set it."""

    user: Annotated[str, "Principal name"]
    rate_milli: Annotated[
        int | None, "Thousandths of a producer id per window; 0: blocked; null: not set"
    ] = None
    transactional_ids_rate_milli: Annotated[int | None, "The same of new transactional ids"] = None
    producer_states_rate_milli: Annotated[int | None, "The same of new producer states"] = None
    mode: Annotated[ModeWord | None, "null: the default's"] = None
    exempt: Annotated[bool, "Counted, never charged or refused"] = False
    source: Annotated[str, "Where it was set: `file`, `run_time`, or a newer word"] = "file"
    set_by: Annotated[str, "Principal that set it at run time; empty: from the file"] = ""
    set_wall_ms: Annotated[int | None, "When it was set at run time"] = None
    owner: Annotated[str, "Owner of the user, from the file"] = ""
    note: Annotated[str, "Note of the change that is in force; empty for the file's quotas"] = ""


@dataclass(slots=True, kw_only=True)
class ConfigEvent(Event):
    """All quotas in force: at start, at each change (decision_time_ms is when it came into force), and repeated from
    time to time.
    """

    type: ClassVar[str] = "config"

    quota_version: Annotated[int, "Counted up at each config event of the incarnation; decisions name it"]
    mode: Annotated[ModeWord, "`quotas.mode`"]
    transactional: Annotated[ModeWord, "Mode for requests of transactions"]
    window_ms: Annotated[int, "Time a rate is counted over"]
    burst: Annotated[float, "Capacity of a bucket in windows of its rate"]
    remember_ms: Annotated[int, "How long a used id is known"]
    layers: Annotated[int, "Slices that remember_ms is divided into"]
    false_positive_rate: Annotated[float, "Share of new ids that pass uncharged, over all layers of a user"]
    max_throttle_ms: Annotated[int, "Cap of one refusal's throttle"]
    max_live_ids: Annotated[int, "Bound of all filters together"]
    queue: Annotated[int, "Ids of one user that may wait in line"]
    sticky_entries: Annotated[int, "Refusal entries of one user"]
    refuse_init_producer_id: Annotated[bool, "Whether InitProducerId is refused to a user without tokens"] = (
        False
    )
    default_rate_milli: Annotated[int | None, "Rate of users that are not named; null: no limit"] = None
    default_transactional_ids_rate_milli: Annotated[int | None, "Their rate of new transactional ids"] = None
    default_producer_states_rate_milli: Annotated[int | None, "Their rate of new producer states"] = None
    default_source: Annotated[str, "Where that was set"] = "file"
    cluster_rate_milli: Annotated[int | None, "Rate of all users together; null: no limit"] = None
    quotas: Annotated[list[QuotaInForce], "What was set for single users"] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class BrokerStates:
    """Sketch of the producer states that a gateway has seen for a broker."""

    node_id: Annotated[int, "Broker id"]
    registers: Annotated[
        str,
        "HyperLogLog registers of the current quarter of `remember`: deflated, in base64",
    ]


@dataclass(slots=True, kw_only=True)
class LifecycleEvent(Event):
    """A gateway started, caught up, lives or stops, or saw another gateway come or go."""

    type: ClassVar[str] = "lifecycle"

    phase: Annotated[
        LifecyclePhase,
        "alive: about every 30 s, so that others notice a loss; member_seen, member_gone: another gateway of this "
        "cluster, named in `text`; asked, answered: what the gateways show now, as JSON in the answer's `text`",
    ]
    mode: Annotated[ModeWord, "`quotas.mode`"]
    window_ms: Annotated[int, "Window of the quota; gateways whose windows differ name each other"]
    remember_ms: Annotated[int, "Likewise"]
    grace_until_wall_ms: Annotated[int | None, "End of the grace after a cold start; null: no grace"] = None
    restored_ids: Annotated[int, "Producer ids that were restored by now"] = 0
    restored_users: Annotated[int, "Users that were restored by now"] = 0
    restored_from: Annotated[RestoredFrom, "Where the state came from"] = "nothing"
    text: Annotated[str, "Which member, why"] = ""
    producer_states: Annotated[
        list[BrokerStates], "alive and stop: of brokers with more since it last told"
    ] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class BrokerPlace:
    """A broker, as the gateway reaches it."""

    node_id: Annotated[int, "Broker id"]
    host: Annotated[str, "Host"]
    port: Annotated[int, "Port"]
    rack: Annotated[str, "Rack; empty: unknown"] = ""


@dataclass(slots=True, kw_only=True)
class TopicPlaces:
    """Places of a topic's partitions."""

    topic: Annotated[str, "Topic name"]
    leaders: Annotated[list[int], "Leader of each partition, by index; -1: none or unknown"]
    replicas: Annotated[list[list[int]], "Replicas of each partition, by index"]


@dataclass(slots=True, kw_only=True)
class TopologyEvent(Event):
    """Brokers and partitions, as far as Metadata answers showed them: at start and on change (what changed)."""

    type: ClassVar[str] = "topology"

    brokers: Annotated[list[BrokerPlace], "All brokers known"]
    topics: Annotated[
        list[TopicPlaces], "Topics seen for the first time or changed since the last such event"
    ]
    producer_id_expiration_ms: Annotated[
        int | None, "The brokers' producer.id.expiration.ms; null: unknown"
    ] = None


EVENT_TYPES: dict[str, type[Event]] = {
    kind.type: kind
    for kind in (
        DecisionEvent,
        RefusalOutcomeEvent,
        IdUsageEvent,
        InitProducerIdEvent,
        TransactionalIdEvent,
        ProduceErrorEvent,
        ConnectionEvent,
        ConfigEvent,
        LifecycleEvent,
        TopologyEvent,
    )
}
"""All types by the word in their `type` field."""
