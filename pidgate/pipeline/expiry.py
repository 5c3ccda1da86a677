"""Expiry of producer state at the brokers, from the Kafka settings in events."""

from __future__ import annotations

from pidgate.pipeline.arrivals import REMEMBER_MS
from pidgate.pipeline.newest import newest_value
from pidgate.pipeline.tables import Tables

CHECK_INTERVAL_MS = 600_000
"""Kafka's default of producer.id.expiration.check.interval.ms (KIP-854), a divisor of an hour.

A broker may drop a state this much later than due.
"""


def expiration_ms(tables: Tables) -> int:
    """Return the brokers' producer.id.expiration.ms; Kafka's default if no event has it."""
    return newest_value(tables, "topology", "producer_id_expiration_ms") or REMEMBER_MS
