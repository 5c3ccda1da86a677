"""A record as it lies in an own topic. Apart, so that what is pure need not know the client that read it."""

from typing import NamedTuple


class EventRecord(NamedTuple):
    """`append_ms`: the broker's clock when it was written, since 1970.

    Of a compacted topic the key is told, too, and a record without a value (a tombstone) has an empty one.
    """

    partition: int
    offset: int
    append_ms: int
    value: bytes
    key: bytes = b""
