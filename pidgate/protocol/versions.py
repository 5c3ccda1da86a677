"""APIs and versions offered to clients: the broker's range limited to this table. PURE.

A committed literal, because the header peek of every frame needs it and the gateway must listen within half a
second; importing it loads no schema and no codec. A unit test compares it with every schema in use
(kafka.protocol's, protocol/schemas and kio's) and fails on an API or version missing here and in
WITHHELD_VERSIONS and NOT_OFFERED.

In an offered range, responses with broker addresses can be rewritten, inspected bodies can be decoded, and
everything else can be forwarded unchanged. Kafka 3.9 still offers versions removed in Kafka 4 (Produce 0-2,
Fetch 0-3, ...), so the minimum is 0 where possible instead of the schema's minimum.

Source: common/message/*.json of kafka-clients 3.9.1 to 4.4.0 (validVersions, flexibleVersions, listeners).
"""

from __future__ import annotations

from typing import Final, NamedTuple

BROKER: Final = ("broker",)
BROKER_AND_CONTROLLER: Final = ("broker", "controller")


class SpokenApi(NamedTuple):
    """An API offered to clients. The version range is inclusive."""

    name: str
    """Kafka's name without Request or Response."""
    min_version: int
    max_version: int
    listeners: tuple[str, ...]
    """Kafka listeners that serve it, as named in the schema."""
    flexible_from: int | None
    """First flexible version (KIP-482), or None.

    From it on, requests have header v2 and responses except ApiVersions header v1.
    """


SPOKEN: Final[dict[int, SpokenApi]] = {
    # Minimum 0: above it librdkafka stops compressing (KAFKA-18659).
    0: SpokenApi("Produce", 0, 13, BROKER, 9),
    1: SpokenApi("Fetch", 0, 18, BROKER_AND_CONTROLLER, 12),
    2: SpokenApi("ListOffsets", 0, 11, BROKER, 6),
    3: SpokenApi("Metadata", 0, 13, BROKER, 9),
    8: SpokenApi("OffsetCommit", 0, 10, BROKER, 8),
    9: SpokenApi("OffsetFetch", 0, 10, BROKER, 6),
    10: SpokenApi("FindCoordinator", 0, 6, BROKER, 3),
    11: SpokenApi("JoinGroup", 0, 9, BROKER, 6),
    12: SpokenApi("Heartbeat", 0, 4, BROKER, 4),
    13: SpokenApi("LeaveGroup", 0, 5, BROKER, 4),
    14: SpokenApi("SyncGroup", 0, 5, BROKER, 4),
    15: SpokenApi("DescribeGroups", 0, 6, BROKER, 5),
    16: SpokenApi("ListGroups", 0, 5, BROKER, 3),
    17: SpokenApi("SaslHandshake", 1, 1, BROKER_AND_CONTROLLER, None),
    18: SpokenApi("ApiVersions", 0, 5, BROKER_AND_CONTROLLER, 3),
    19: SpokenApi("CreateTopics", 0, 7, BROKER_AND_CONTROLLER, 5),
    20: SpokenApi("DeleteTopics", 0, 6, BROKER_AND_CONTROLLER, 4),
    21: SpokenApi("DeleteRecords", 0, 2, BROKER, 2),
    22: SpokenApi("InitProducerId", 0, 5, BROKER, 2),
    23: SpokenApi("OffsetForLeaderEpoch", 0, 4, BROKER, 4),
    24: SpokenApi("AddPartitionsToTxn", 0, 3, BROKER, 3),
    25: SpokenApi("AddOffsetsToTxn", 0, 4, BROKER, 3),
    26: SpokenApi("EndTxn", 0, 5, BROKER, 3),
    28: SpokenApi("TxnOffsetCommit", 0, 6, BROKER, 3),
    29: SpokenApi("DescribeAcls", 0, 3, BROKER_AND_CONTROLLER, 2),
    30: SpokenApi("CreateAcls", 0, 3, BROKER_AND_CONTROLLER, 2),
    31: SpokenApi("DeleteAcls", 0, 3, BROKER_AND_CONTROLLER, 2),
    32: SpokenApi("DescribeConfigs", 0, 4, BROKER_AND_CONTROLLER, 4),
    33: SpokenApi("AlterConfigs", 0, 2, BROKER_AND_CONTROLLER, 2),
    34: SpokenApi("AlterReplicaLogDirs", 0, 2, BROKER, 2),
    35: SpokenApi("DescribeLogDirs", 0, 5, BROKER, 2),
    36: SpokenApi("SaslAuthenticate", 0, 2, BROKER_AND_CONTROLLER, 2),
    37: SpokenApi("CreatePartitions", 0, 3, BROKER_AND_CONTROLLER, 2),
    38: SpokenApi("CreateDelegationToken", 0, 3, BROKER_AND_CONTROLLER, 2),
    39: SpokenApi("RenewDelegationToken", 0, 2, BROKER_AND_CONTROLLER, 2),
    40: SpokenApi("ExpireDelegationToken", 0, 2, BROKER_AND_CONTROLLER, 2),
    41: SpokenApi("DescribeDelegationToken", 0, 3, BROKER_AND_CONTROLLER, 2),
    42: SpokenApi("DeleteGroups", 0, 3, BROKER, 2),
    43: SpokenApi("ElectLeaders", 0, 2, BROKER_AND_CONTROLLER, 2),
    44: SpokenApi("IncrementalAlterConfigs", 0, 1, BROKER_AND_CONTROLLER, 1),
    45: SpokenApi("AlterPartitionReassignments", 0, 1, BROKER_AND_CONTROLLER, 0),
    46: SpokenApi("ListPartitionReassignments", 0, 0, BROKER_AND_CONTROLLER, 0),
    47: SpokenApi("OffsetDelete", 0, 0, BROKER, None),
    48: SpokenApi("DescribeClientQuotas", 0, 1, BROKER, 1),
    49: SpokenApi("AlterClientQuotas", 0, 1, BROKER_AND_CONTROLLER, 1),
    50: SpokenApi("DescribeUserScramCredentials", 0, 0, BROKER_AND_CONTROLLER, 0),
    51: SpokenApi("AlterUserScramCredentials", 0, 0, BROKER_AND_CONTROLLER, 0),
    55: SpokenApi("DescribeQuorum", 0, 2, BROKER_AND_CONTROLLER, 0),
    57: SpokenApi("UpdateFeatures", 0, 2, BROKER_AND_CONTROLLER, 0),
    60: SpokenApi("DescribeCluster", 0, 2, BROKER_AND_CONTROLLER, 0),
    61: SpokenApi("DescribeProducers", 0, 0, BROKER, 0),
    64: SpokenApi("UnregisterBroker", 0, 0, BROKER_AND_CONTROLLER, 0),
    65: SpokenApi("DescribeTransactions", 0, 0, BROKER, 0),
    66: SpokenApi("ListTransactions", 0, 2, BROKER, 0),
    68: SpokenApi("ConsumerGroupHeartbeat", 0, 1, BROKER, 0),
    69: SpokenApi("ConsumerGroupDescribe", 0, 1, BROKER, 0),
    71: SpokenApi("GetTelemetrySubscriptions", 0, 0, BROKER, 0),
    72: SpokenApi("PushTelemetry", 0, 0, BROKER, 0),
    # Named ListClientMetricsResources before Kafka 4.1.
    74: SpokenApi("ListConfigResources", 0, 1, BROKER, 0),
    75: SpokenApi("DescribeTopicPartitions", 0, 0, BROKER, 0),
    76: SpokenApi("ShareGroupHeartbeat", 1, 1, BROKER, 0),
    77: SpokenApi("ShareGroupDescribe", 1, 1, BROKER, 0),
    78: SpokenApi("ShareFetch", 1, 2, BROKER, 0),
    79: SpokenApi("ShareAcknowledge", 1, 2, BROKER, 0),
    # AddRaftVoter's addresses are those of controllers, in the request, given by the operator.
    80: SpokenApi("AddRaftVoter", 0, 1, BROKER_AND_CONTROLLER, 0),
    81: SpokenApi("RemoveRaftVoter", 0, 0, BROKER_AND_CONTROLLER, 0),
    88: SpokenApi("StreamsGroupHeartbeat", 0, 1, BROKER, 0),
    89: SpokenApi("StreamsGroupDescribe", 0, 1, BROKER, 0),
    90: SpokenApi("DescribeShareGroupOffsets", 0, 1, BROKER, 0),
    91: SpokenApi("AlterShareGroupOffsets", 0, 0, BROKER, 0),
    92: SpokenApi("DeleteShareGroupOffsets", 0, 0, BROKER, 0),
    93: SpokenApi("StreamsGroupTopologyDescriptionUpdate", 0, 0, BROKER, 0),
    94: SpokenApi("UnregisterController", 0, 0, BROKER_AND_CONTROLLER, 0),
}
"""Every API offered to clients, by api_key."""

_EARLY_ACCESS: Final = "early access of KIP-932 in Kafka 3.9 and 4.0, another layout, removed in Kafka 4.1"

_OF_BROKERS: Final = "between brokers (needs CLUSTER_ACTION), of many transactions at once: clients send v3"

WITHHELD_VERSIONS: Final[dict[tuple[int, int], str]] = {
    (17, 0): "is followed by raw tokens without Kafka headers, so the identity could not be read",
    (22, 6): "unstable in Kafka 4.4 (two-phase commit, KIP-939): its layout may still change",
    (24, 4): _OF_BROKERS,
    (24, 5): _OF_BROKERS,
    (76, 0): _EARLY_ACCESS,
    (77, 0): _EARLY_ACCESS,
    (78, 0): _EARLY_ACCESS,
    (79, 0): _EARLY_ACCESS,
}
"""(api_key, api_version) withheld from clients although the API is offered -> reason."""

OFFERED_FROM: Final[dict[int, int]] = {17: 0}
"""api_key -> minimum in the ApiVersions response, if lower than the accepted minimum.

SaslHandshake: librdkafka 2.6 requires v0 (its check asks for 0..0) although it then uses v1. Without v0 it
sends raw tokens. The gateway responds to v0 with UNSUPPORTED_VERSION.
"""

_BETWEEN_BROKERS: Final = "ZooKeeper controllers to brokers, in Kafka 3.9 only: no client has a use for it"
_CONTROLLER_ONLY: Final = "served by the controller listener only: no client reaches it through a broker"
_SHARE_STATE: Final = (
    "between the coordinators of share groups (needs CLUSTER_ACTION): on the broker listener, not for clients"
)

NOT_OFFERED: Final[dict[int, str]] = {
    4: _BETWEEN_BROKERS,  # LeaderAndIsr
    5: _BETWEEN_BROKERS,  # StopReplica
    6: _BETWEEN_BROKERS,  # UpdateMetadata
    7: _BETWEEN_BROKERS,  # ControlledShutdown; also the only request header v0
    # WriteTxnMarkers; not only between brokers: an admin client's abortTransaction sends it.
    27: "creates producer state of any id in any partition: abort hanging transactions directly at the brokers",
    52: _CONTROLLER_ONLY,  # Vote
    53: _CONTROLLER_ONLY,  # BeginQuorumEpoch
    54: _CONTROLLER_ONLY,  # EndQuorumEpoch
    56: _CONTROLLER_ONLY,  # AlterPartition
    58: _CONTROLLER_ONLY,  # Envelope: would let a client act as another principal
    59: _CONTROLLER_ONLY,  # FetchSnapshot
    62: _CONTROLLER_ONLY,  # BrokerRegistration
    63: _CONTROLLER_ONLY,  # BrokerHeartbeat
    67: _CONTROLLER_ONLY,  # AllocateProducerIds: a client could exhaust the producer id space
    70: _CONTROLLER_ONLY,  # ControllerRegistration
    73: _CONTROLLER_ONLY,  # AssignReplicasToDirs
    82: _CONTROLLER_ONLY,  # UpdateRaftVoter
    83: _SHARE_STATE,  # InitializeShareGroupState
    84: _SHARE_STATE,  # ReadShareGroupState
    85: _SHARE_STATE,  # WriteShareGroupState
    86: _SHARE_STATE,  # DeleteShareGroupState
    87: _SHARE_STATE,  # ReadShareGroupStateSummary
}
"""api_key of every known API that is not offered -> reason. Brokers use these without the gateway."""


def cap_range(api_key: int, min_version: int, max_version: int) -> tuple[int, int] | None:
    """Limit a broker's version range to the offered range; None if nothing is left.

    An API without versions is omitted from the ApiVersions response. OFFERED_FROM is the only range wider
    than `speaks` allows.
    """
    spoken = SPOKEN.get(api_key)
    if spoken is None:
        return None
    low = max(min_version, OFFERED_FROM.get(api_key, spoken.min_version))
    high = min(max_version, spoken.max_version)
    return (low, high) if low <= high else None


def speaks(api_key: int, api_version: int) -> bool:
    """Return whether clients may use this API version, regardless of the broker's range."""
    spoken = SPOKEN.get(api_key)
    return spoken is not None and spoken.min_version <= api_version <= spoken.max_version
