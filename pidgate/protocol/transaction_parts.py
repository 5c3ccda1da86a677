"""Requests that extend a transaction without records: their producer id, and refusal per partition. PURE.

Each creates producer state without a Produce. A TxnOffsetCommit is a transactional batch in
__consumer_offsets. The end of a transaction writes a marker into every added partition, which makes the id
known there (ProducerStateManager). Parsed by hand like messages.py. AddPartitionsToTxn is v0-v3; later
versions are between brokers.

Kafka: common/message/{AddPartitionsToTxn,AddOffsetsToTxn,TxnOffsetCommit}*.json; KIP-98, KIP-447, KIP-890.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pidgate.protocol.errors import ErrorCode, UnsupportedVersion
from pidgate.protocol.frames import Buffer, Reader, array_count, framed
from pidgate.protocol.headers import RequestHead, is_flexible
from pidgate.protocol.versions import speaks
from pidgate.protocol.work import MOST_PARTITIONS, MOST_TOPIC_NAME_BYTES

ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
TXN_OFFSET_COMMIT: Final = 28
TRANSACTION_PARTS: Final = (ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT)

OFFSETS_TOPIC: Final = b"__consumer_offsets"

_FIRST_WITH_MEMBERS: Final = 3  # TxnOffsetCommit, KIP-447
_FIRST_WITH_LEADER_EPOCHS: Final = 2
_FIRST_WITH_TOPIC_IDS: Final = 6  # KIP-1319

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_NOT_THROTTLED: Final = _I32.pack(0)
_REFUSED: Final = _I16.pack(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class TransactionPart(NamedTuple):
    """A transaction's producer and the topic added to it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: bytes
    """The first added topic; empty if there is none or its name is invalid."""


def transaction_part(buf: Buffer, head: RequestHead) -> TransactionPart:
    """Parse the head of the request in `buf`. Raises MalformedFrame or UnsupportedVersion."""
    api_key, reader = head.api_key, _opened(buf, head)
    transactional_id = reader.string()
    if api_key == TXN_OFFSET_COMMIT:
        reader.skip_string()  # group id
    producer_id, epoch, topic = reader.i64(), reader.i16(), OFFSETS_TOPIC
    if api_key == ADD_PARTITIONS_TO_TXN:
        topic = (reader.raw_string() or b"") if reader.count(1) else b""
    return TransactionPart(
        transactional_id, producer_id, epoch, topic if len(topic) <= MOST_TOPIC_NAME_BYTES else b""
    )


def part_refused(buf: Buffer, head: RequestHead) -> bytes:
    """Return the framed COORDINATOR_LOAD_IN_PROGRESS response to the request in `buf`, which clients retry.

    Clients retry immediately because throttle_time_ms is 0; the caller mutes the channel instead. On a
    throttled connection kafka-python (3.0.12, Sender._maybe_send_pending_request) drops the request on any
    wake-up before the throttle ends, and commits without the records.

    Raises MalformedFrame, and FrameTooLarge above MOST_PARTITIONS topics and partitions; close the connection
    then.
    """
    api_key, version, reader = head.api_key, head.api_version, _opened(buf, head)
    no_tags = b"\x00" if reader.flexible else b""
    answer = bytearray(_I32.pack(head.correlation_id) + no_tags + _NOT_THROTTLED)
    if api_key == ADD_OFFSETS_TO_TXN:
        return framed(answer, _REFUSED, no_tags)
    reader.skip_string()
    if api_key == TXN_OFFSET_COMMIT:
        reader.skip_string()
    reader.skip(10)  # producer id and epoch
    if api_key == TXN_OFFSET_COMMIT and version >= _FIRST_WITH_MEMBERS:
        reader.skip(4)  # generation
        reader.skip_string()
        reader.skip_string()
    topics = reader.count(2)
    answer += array_count(topics, flexible=reader.flexible)
    for _ in range(topics):
        at = reader.pos
        if api_key == TXN_OFFSET_COMMIT and version >= _FIRST_WITH_TOPIC_IDS:
            reader.skip(16)
        else:
            reader.skip_string()
        answer += reader.copy_since(
            at
        )  # same encoding in the response: both became flexible in the same version
        partitions = reader.count(4)
        answer += array_count(partitions, flexible=reader.flexible)
        for _ in range(partitions):
            answer += reader.read_bytes(4) + _REFUSED + no_tags
            if api_key == TXN_OFFSET_COMMIT:
                reader.skip(12 if version >= _FIRST_WITH_LEADER_EPOCHS else 8)
                reader.skip_string()  # metadata
                reader.skip_tags()
        reader.skip_tags()
        answer += no_tags
    return framed(answer, no_tags)


def _opened(buf: Buffer, head: RequestHead) -> Reader:
    """Return a reader at the body."""
    api_key, version = head.api_key, head.api_version
    if api_key not in TRANSACTION_PARTS or not speaks(api_key, version):
        raise UnsupportedVersion(api_key, version)
    flexible = is_flexible(api_key, version)
    return Reader(buf, head.body, head.end, flexible=flexible, most_elements=MOST_PARTITIONS)
