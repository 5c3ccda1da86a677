"""Which producer ids have records in a topic, read from the broker itself."""

import struct

from bench.cold_client import Address, connect, receive_frame, say_hello
from bench.wire import FetchFrame, LoadError, fetched_records

_HEADER_BYTES = 61
_PRODUCER_ID_AT = 43


def producer_ids_in(address: Address, topic_id: bytes, partitions: int) -> set[int]:
    """All of them, by reading every partition to its end."""
    offsets = dict.fromkeys(range(partitions), 0)
    found: set[int] = set()
    with connect(address) as connection:
        say_hello(connection)
        for number in range(1_000_000):
            frame = FetchFrame(topic_id, list(offsets), partition_max_bytes=1 << 20)
            frame.patch(number, list(offsets.values()))
            connection.sendall(frame.buffer)
            for partition, (fetched, records) in fetched_records(
                memoryview(receive_frame(connection)), number
            ).items():
                found |= producer_ids_of(records)
                if fetched.next_offset >= 0:
                    offsets[partition] = fetched.next_offset
                if fetched.high_watermark <= offsets[partition]:
                    del offsets[partition]
            if not offsets:
                return found
    raise LoadError("a topic without end")


def producer_ids_of(records: memoryview) -> set[int]:
    """Of the whole record batches (version 2) in `records`."""
    found: set[int] = set()
    at = 0
    while at + _HEADER_BYTES <= len(records):
        length = struct.unpack_from(">i", records, at + 8)[0]
        if at + 12 + length > len(records):
            break
        found.add(struct.unpack_from(">q", records, at + _PRODUCER_ID_AT)[0])
        at += 12 + length
    return found
