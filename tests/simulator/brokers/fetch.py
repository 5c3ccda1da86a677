"""Fetch and ListOffsets, as far as a consumer that follows one log needs them. Pure.

Kafka: KafkaApis.handleFetchRequest, ReplicaManager.readFromLog, DelayedFetch. No fetch sessions (KIP-227): each answer
is whole and has session id 0, as a broker without room for sessions gives it. Nobody reads above the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from pidgate.protocol import codec
from pidgate.protocol.headers import RequestHead
from tests.simulator.brokers.batches import stamped
from tests.simulator.brokers.partition import Partition
from tests.simulator.brokers.replies import Later, Reply
from tests.simulator.brokers.sessions import Session
from tests.simulator.brokers.timers import Timers
from tests.simulator.brokers.topics import Topics
from tests.support import raw

FETCH: Final = 1
LIST_OFFSETS: Final = 2
LATEST: Final = -1
"""A ListOffsets timestamp; everything else is answered with the beginning of the log."""
_FIRST_TOPIC_ID: Final = 13
_READ_COMMITTED: Final = 1


class FetchApi:
    """Answers from the logs."""

    def __init__(self, topics: Topics, timers: Timers) -> None:
        self._topics, self._timers = topics, timers

    def answer(self, session: Session, frame: bytes, head: RequestHead) -> Reply:
        """Return what there is, or wait for max_wait_ms at most. Raises KafkaProtocolError."""
        request = codec.decode_request(frame, head)
        if head.api_key == LIST_OFFSETS:
            return self._list_offsets(session, request, head)
        later = Later()
        until_ms = self._timers.now_ms + request.max_wait_ms

        def read(_: ErrorCode = ErrorCode.none) -> None:
            if later.is_done:
                return
            topics, is_ready = self._read(session, request, head.api_version)
            if is_ready or self._timers.now_ms >= until_ms:
                body = {"error_code": ErrorCode.none, "session_id": 0, "responses": topics}
                later.finish(
                    raw.response(head.api_key, head.api_version, body, correlation_id=head.correlation_id)
                )
                return
            for partition in self._asked(request, head.api_version):
                partition.wait(partition.high_watermark + 1, read)

        read()
        if not later.is_done:
            self._timers.at(until_ms, read)
        return later

    def _asked(self, request: Any, version: int) -> Iterator[Partition]:
        for topic in request.topics:
            for partition in topic.partitions:
                found = self._partition(topic, partition.partition, version)
                if found is not None:
                    yield found

    def _partition(self, topic: Any, index: int, version: int) -> Partition | None:
        if version < _FIRST_TOPIC_ID:
            return self._topics.partition(topic.topic, index)
        known = self._topics.by_id.get(topic.topic_id.bytes)
        return None if known is None else self._topics.partition(known.name, index)

    def _read(self, session: Session, request: Any, version: int) -> tuple[list[dict[str, Any]], bool]:
        """Return the answer's topics, and whether anything is in them that is worth an answer now."""
        topics, is_ready = [], request.max_wait_ms <= 0 or not request.topics
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                found = self._partition(topic, asked.partition, version)
                entry = self._read_partition(session, found, asked, request.isolation_level, version)
                is_ready = is_ready or bool(entry["records"] or entry["error_code"])
                partitions.append({"partition_index": asked.partition, **entry})
            named = {"topic_id": topic.topic_id} if version >= _FIRST_TOPIC_ID else {"topic": topic.topic}
            topics.append({**named, "partitions": partitions})
        return topics, is_ready

    def _read_partition(
        self, session: Session, found: Partition | None, asked: Any, isolation_level: int, version: int
    ) -> dict[str, Any]:
        nothing = {
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": -1,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": b"",
        }
        if found is None:
            by_id = version >= _FIRST_TOPIC_ID
            unknown = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            return {**nothing, "error_code": unknown}
        if found.leader != session.node_id:
            return {**nothing, "error_code": ErrorCode.not_leader_or_follower}
        if not 0 <= asked.fetch_offset <= found.end_offset:
            return {**nothing, "error_code": ErrorCode.offset_out_of_range}
        is_committed = isolation_level == _READ_COMMITTED
        end = found.last_stable_offset if is_committed else found.high_watermark
        records, next_offset = bytearray(), asked.fetch_offset
        for entry in found.log:
            if entry.next_offset <= asked.fetch_offset or entry.next_offset > end:
                continue
            batch = stamped(entry.raw, entry.base_offset, entry.leader_epoch)
            if records and len(records) + len(batch) > asked.partition_max_bytes:
                break
            records += batch
            next_offset = entry.next_offset
        aborted = found.aborted_in(asked.fetch_offset, next_offset)
        return {
            **nothing,
            "error_code": ErrorCode.none,
            "high_watermark": found.high_watermark,
            "last_stable_offset": found.last_stable_offset,
            "log_start_offset": 0,
            "aborted_transactions": [
                {"producer_id": producer_id, "first_offset": first} for producer_id, first in aborted
            ]
            if is_committed
            else None,
            "records": bytes(records),
        }

    def _list_offsets(self, session: Session, request: Any, head: RequestHead) -> bytes:
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                found = self._topics.partition(topic.name, asked.partition_index)
                error, offset = ErrorCode.none, 0
                if found is None:
                    error, offset = ErrorCode.unknown_topic_or_partition, -1
                elif found.leader != session.node_id:
                    error, offset = ErrorCode.not_leader_or_follower, -1
                elif asked.timestamp == LATEST:
                    committed = head.api_version >= 2 and request.isolation_level == _READ_COMMITTED
                    offset = found.last_stable_offset if committed else found.high_watermark
                partitions.append(
                    {
                        "partition_index": asked.partition_index,
                        "error_code": error,
                        "timestamp": -1,
                        "offset": offset,
                        "leader_epoch": -1 if found is None else found.leader_epoch,
                    }
                )
            topics.append({"name": topic.name, "partitions": partitions})
        body = {"topics": topics}
        return raw.response(head.api_key, head.api_version, body, correlation_id=head.correlation_id)
