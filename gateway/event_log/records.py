"""An event as it lies in the topic. Apart, so that what is pure need not know the client that read it."""

from typing import NamedTuple


class EventRecord(NamedTuple):
    """`append_ms`: the broker's clock when it was written, since 1970."""

    partition: int
    offset: int
    append_ms: int
    value: bytes
