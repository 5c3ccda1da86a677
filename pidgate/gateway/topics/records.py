"""A record of a gateway topic; apart, so that pure modules need not import the client that read it."""

from typing import NamedTuple


class EventRecord(NamedTuple):
    """`append_ms`: the broker's clock when it was written, since 1970.

    Only records of a compacted topic have their key; there a tombstone has an empty value.
    """

    partition: int
    offset: int
    append_ms: int
    value: bytes
    key: bytes = b""
