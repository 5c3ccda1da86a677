"""The log of a partition as a read_committed consumer is given it, batch by batch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from pidgate.protocol import codec
from tests.support.raw import RawClient, request

FETCH: Final = 1
_VERSION: Final = 11


def fetched(client: RawClient, topic: str, partition: int, offset: int) -> Any:
    """Return the partition's part of an answer to a Fetch from that offset on."""
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 30_000}
    body = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 30_000,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }
    frame = client.ask(request(FETCH, _VERSION, body))
    (found,) = codec.decode_response(FETCH, _VERSION, frame, 0, len(frame)).responses[0].partitions
    assert found.error_code == 0
    return found


def whole_batches(records: bytes) -> Iterator[bytes]:
    """Yield the batches of what a Fetch gave; the last one may have been cut."""
    while len(records) > 12:
        length = 12 + struct.unpack_from(">i", records, 8)[0]
        if length > len(records):
            break
        yield records[:length]
        records = records[length:]
