"""A record of a gateway topic, separate so that pure modules need not import the Kafka client."""

from typing import NamedTuple


class EventRecord(NamedTuple):
    """A record; `append_ms` is the broker's clock at the append, in ms since 1970.

    Keys are kept only for compacted topics, where a tombstone has an empty value.
    """

    partition: int
    offset: int
    append_ms: int
    value: bytes
    key: bytes = b""
