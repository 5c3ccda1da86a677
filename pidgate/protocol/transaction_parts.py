"""Requests that add to a transaction without a record: read to their producer id, refused partition by partition. PURE.

Each makes producer state without a Produce: a TxnOffsetCommit is a transactional batch in __consumer_offsets, and the
end of a transaction writes a marker into every partition that was added to it, which makes the id known there
(ProducerStateManager). By hand, like messages.py. AddPartitionsToTxn is of v0-v3: later ones are between brokers.

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

_FIRST_WITH_MEMBERS: Final = 3  # of TxnOffsetCommit, KIP-447
_FIRST_WITH_LEADER_EPOCHS: Final = 2
_FIRST_WITH_TOPIC_IDS: Final = 6  # KIP-1319

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_NOT_THROTTLED: Final = _I32.pack(0)
_REFUSED: Final = _I16.pack(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class TransactionPart(NamedTuple):
    """The producer of a transaction, and what is added to it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: bytes
    """The first that is added; empty: none, or one with a name that no topic can have."""


def transaction_part(buf: Buffer, head: RequestHead) -> TransactionPart:
    """Read the head of the request in `buf`. Raises MalformedFrame or UnsupportedVersion."""
    api_key, reader = head.api_key, _opened(buf, head)
    transactional_id = reader.string()
    if api_key == TXN_OFFSET_COMMIT:
        reader.skip_string()  # the group
    producer_id, epoch, topic = reader.i64(), reader.i16(), OFFSETS_TOPIC
    if api_key == ADD_PARTITIONS_TO_TXN:
        topic = (reader.raw_string() or b"") if reader.count(1) else b""
    return TransactionPart(
        transactional_id, producer_id, epoch, topic if len(topic) <= MOST_TOPIC_NAME_BYTES else b""
    )


def part_refused(buf: Buffer, head: RequestHead) -> bytes:
    """Return the framed answer to the request in `buf` that has it sent again later: COORDINATOR_LOAD_IN_PROGRESS.

    Every client repeats the same request after it, at once: throttle_time_ms is 0, whoever refuses mutes the
    channel. On a throttled connection kafka-python (3.0.12, Sender._maybe_send_pending_request) drops the request
    when anything wakes it before the time is over, and commits without the records.

    Raises MalformedFrame; FrameTooLarge when it names more than MOST_PARTITIONS topics and partitions: then only the
    end of the connection can say it.
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
        answer += reader.since(at)  # in the same form in the answer: both became flexible together
        partitions = reader.count(4)
        answer += array_count(partitions, flexible=reader.flexible)
        for _ in range(partitions):
            answer += reader.take(4) + _REFUSED + no_tags
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
