"""Kafka's error codes as the clients sort them."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode as Known

RETRIABLE: Final = frozenset(code.value for code in Known if code.retriable)
"""Those that Java's RetriableException covers."""

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER, TIMED_OUT, NETWORK = 3, 5, 6, 7, 13
NO_COORDINATOR, NOT_COORDINATOR = 15, 16
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 19, 20
CLUSTER_FORBIDDEN, TRANSACTION_FORBIDDEN = 31, 53
OUT_OF_ORDER, DUPLICATE, STALE_EPOCH, INVALID_MAPPING = 45, 46, 47, 49
CONCURRENT_TRANSACTIONS, STORAGE_ERROR, UNKNOWN_PRODUCER_ID = 51, 56, 59
FENCED_LEADER_EPOCH, FENCED = 74, 90
TRANSACTION_ABORTABLE = 120

INVALID_METADATA: Final = frozenset(
    {
        UNKNOWN_TOPIC,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER,
        NETWORK,
        STORAGE_ERROR,
        FENCED_LEADER_EPOCH,
        9,
        72,
        75,
        100,
        103,
    }
)
"""Java's InvalidMetadataException: the leaders are asked for again."""


def words(code: int) -> str:
    """The name that Kafka gives a code."""
    try:
        return Known(code).name
    except ValueError:
        return f"error {code}"
