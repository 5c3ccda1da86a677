"""The events of the events topic: definitions, JSON, versions, redaction.

`definitions.py` defines every type once; all else is derived from it. Pure: no clock, no sockets, no Kafka.
"""

from pidgate.events.definitions import (
    EVENT_TYPES,
    SCHEMA_VERSION,
    BrokerPlace,
    ConfigEvent,
    ConnectionEvent,
    DecisionEvent,
    Event,
    Heard,
    IdUsageEvent,
    InitProducerIdEvent,
    LifecycleEvent,
    ProduceErrorEvent,
    QuotaInForce,
    RefusalOutcomeEvent,
    TopicPlaces,
    TopologyEvent,
    TransactionalIdEvent,
)
from pidgate.events.reading import (
    EventUnreadable,
    UnknownEventType,
    UnsupportedSchemaVersion,
    fields_of,
    from_json,
)
from pidgate.events.redaction import REDACTABLE, UserNames, pseudonym, redacted
from pidgate.events.writing import key_of, prefix_of, to_json

__all__ = [
    "EVENT_TYPES",
    "REDACTABLE",
    "SCHEMA_VERSION",
    "BrokerPlace",
    "ConfigEvent",
    "ConnectionEvent",
    "DecisionEvent",
    "Event",
    "EventUnreadable",
    "Heard",
    "IdUsageEvent",
    "InitProducerIdEvent",
    "LifecycleEvent",
    "ProduceErrorEvent",
    "QuotaInForce",
    "RefusalOutcomeEvent",
    "TopicPlaces",
    "TopologyEvent",
    "TransactionalIdEvent",
    "UnknownEventType",
    "UnsupportedSchemaVersion",
    "UserNames",
    "fields_of",
    "from_json",
    "key_of",
    "prefix_of",
    "pseudonym",
    "redacted",
    "to_json",
]
