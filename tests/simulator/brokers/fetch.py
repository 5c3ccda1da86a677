"""Fetch and ListOffsets, as far as a consumer that follows one log needs them. Pure.

Kafka: KafkaApis.handleFetchRequest, ReplicaManager.readFromLog, DelayedFetch, FetchManager and FetchSession (KIP-227).
Sessions belong to a node and live until it stops. Nobody reads above the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
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
_NO_SESSION: Final = 0
_NEW_SESSION, _FINAL = 0, -1
"""Epochs of a whole Fetch: one that begins a session, and one without."""

Named = Any
"""A topic as a request names it: by name, or from version 13 by its id."""


@dataclass(slots=True)
class FetchSession:
    """A session of one client (FetchSession, IncrementalFetchContext)."""

    epoch: int = 1
    """Of the next Fetch."""
    wanted: dict[tuple[Named, int], Any] = field(default_factory=dict)
    told: dict[tuple[Named, int], int] = field(default_factory=dict)
    """High watermark of each partition as the client knows it."""


class FetchApi:
    """Answers from the logs."""

    def __init__(self, topics: Topics, timers: Timers) -> None:
        self._topics, self._timers = topics, timers
        self._sessions: dict[tuple[int, int], FetchSession] = {}
        """By node and session id."""
        self._last_id = _NO_SESSION
        self.sessions_lost = 0
        """Requests that named no session of this node, or another epoch than its next one."""

    def stop(self, node_id: int) -> None:
        """Forget the sessions of a node that is gone."""
        self._sessions = {place: session for place, session in self._sessions.items() if place[0] != node_id}

    def answer(self, session: Session, frame: bytes, head: RequestHead) -> Reply:
        """Return what there is, or wait for max_wait_ms at most. Raises KafkaProtocolError."""
        request = codec.decode_request(frame, head)
        if head.api_key == LIST_OFFSETS:
            return self._list_offsets(session, request, head)
        later = Later()
        until_ms = self._timers.now_ms + request.max_wait_ms
        session_id, fetch = self._session_of(session.node_id, request, head.api_version)
        if isinstance(fetch, ErrorCode):
            later.finish(self._answer(head, fetch, _NO_SESSION, []))
            return later
        is_partial = getattr(request, "session_epoch", _FINAL) > _NEW_SESSION

        def read(_: ErrorCode = ErrorCode.none) -> None:
            if later.is_done:
                return
            found, is_ready = self._read(session, fetch, request, head.api_version)
            if is_ready or self._timers.now_ms >= until_ms:
                topics = [
                    (topic, entry)
                    for topic, entry in found
                    if not is_partial or _is_news(fetch, topic, entry)
                ]
                for topic, entry in found:
                    known = -1 if entry["error_code"] else entry["high_watermark"]
                    fetch.told[topic, entry["partition_index"]] = known
                later.finish(self._answer(head, ErrorCode.none, session_id, topics))
                return
            for partition in self._asked(fetch, head.api_version):
                partition.wait(partition.high_watermark + 1, read)

        read()
        if not later.is_done:
            self._timers.at(until_ms, read)
        return later

    def _session_of(self, node_id: int, request: Any, version: int) -> tuple[int, FetchSession | ErrorCode]:
        """FetchManager.newContext: return what a request wants, and the id of the session it belongs to."""
        session_id = getattr(request, "session_id", _NO_SESSION)
        epoch = getattr(request, "session_epoch", _FINAL)
        named = {
            (_name(topic, version), asked.partition): asked
            for topic in request.topics
            for asked in topic.partitions
        }
        if epoch in (_NEW_SESSION, _FINAL):
            self._sessions.pop((node_id, session_id), None)
            made = FetchSession(wanted=named)
            if epoch == _FINAL or not named:
                return _NO_SESSION, made
            self._last_id += 1
            self._sessions[node_id, self._last_id] = made
            return self._last_id, made
        found = self._sessions.get((node_id, session_id))
        if found is None or found.epoch != epoch:
            self.sessions_lost += 1
            return _NO_SESSION, (
                ErrorCode.fetch_session_id_not_found
                if found is None
                else ErrorCode.invalid_fetch_session_epoch
            )
        found.epoch += 1
        found.wanted.update(named)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                found.wanted.pop((_name(topic, version), index), None)
        if not found.wanted:
            del self._sessions[node_id, session_id]
            return _NO_SESSION, found
        return session_id, found

    def _answer(
        self, head: RequestHead, error: ErrorCode, session_id: int, found: list[tuple[Named, dict[str, Any]]]
    ) -> bytes:
        key = "topic_id" if head.api_version >= _FIRST_TOPIC_ID else "topic"
        topics = [
            {key: topic, "partitions": [entry for _, entry in entries]}
            for topic, entries in groupby(found, itemgetter(0))
        ]
        body = {"error_code": error, "session_id": session_id, "responses": topics}
        return raw.response(head.api_key, head.api_version, body, correlation_id=head.correlation_id)

    def _asked(self, fetch: FetchSession, version: int) -> Iterator[Partition]:
        for topic, index in fetch.wanted:
            found = self._partition(topic, index, version)
            if found is not None:
                yield found

    def _partition(self, topic: Named, index: int, version: int) -> Partition | None:
        if version < _FIRST_TOPIC_ID:
            return self._topics.partition(topic, index)
        known = self._topics.by_id.get(topic.bytes)
        return None if known is None else self._topics.partition(known.name, index)

    def _read(
        self, session: Session, fetch: FetchSession, request: Any, version: int
    ) -> tuple[list[tuple[Named, dict[str, Any]]], bool]:
        """Return what there is of each partition, and whether anything in it is worth an answer now."""
        entries, is_ready = [], request.max_wait_ms <= 0 or not fetch.wanted
        for (topic, index), asked in fetch.wanted.items():
            found = self._partition(topic, index, version)
            entry = self._read_partition(session, found, asked, request.isolation_level, version)
            is_ready = is_ready or bool(entry["records"] or entry["error_code"])
            entries.append((topic, {"partition_index": index, **entry}))
        return entries, is_ready

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


def _name(topic: Any, version: int) -> Named:
    return topic.topic_id if version >= _FIRST_TOPIC_ID else topic.topic


def _is_news(fetch: FetchSession, topic: Named, entry: dict[str, Any]) -> bool:
    """Return whether an answer within a session names the partition (CachedPartition.maybeUpdateResponseData)."""
    known = fetch.told.get((topic, entry["partition_index"]))
    return bool(entry["records"] or entry["error_code"] or entry["high_watermark"] != known)
