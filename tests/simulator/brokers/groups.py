"""Consumer groups of one member each, as far as a consumer has to stay in one: join, heartbeat, commit. Pure.

Kafka: GroupMetadataManager (classic protocol), GroupCoordinatorService. A group lives at the coordinator that its
offsets partition has, and moves with it; who is not heard for its session time-out is expelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode

from pidgate.protocol import codec
from pidgate.protocol.headers import RequestHead
from tests.simulator.brokers.sessions import Session
from tests.simulator.brokers.timers import Timers
from tests.simulator.brokers.topics import OFFSETS_TOPIC, Topics, internal_partition
from tests.support import raw

OFFSET_COMMIT: Final = 8
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
GROUP_APIS: Final = (OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT)


@dataclass(slots=True)
class Group:
    """One group. `expelled`: how often its member was not heard in time."""

    generation: int = 0
    member_id: str = ""
    session_ms: int = 0
    heard_ms: int = 0
    expelled: int = 0
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)


class Groups:
    """All groups, by name."""

    def __init__(self, topics: Topics, timers: Timers) -> None:
        self._topics, self._timers = topics, timers
        self.by_name: dict[str, Group] = {}

    def answer(self, session: Session, frame: bytes, head: RequestHead) -> bytes:
        """Return the framed answer to one of GROUP_APIS. Raises KafkaProtocolError."""
        request = codec.decode_request(frame, head)
        leader = self._topics.internal(OFFSETS_TOPIC, internal_partition(request.group_id)).leader
        group = self.by_name.setdefault(request.group_id, Group())
        error = ErrorCode.none if leader == session.node_id else ErrorCode.not_coordinator
        act = self._join if head.api_key == JOIN_GROUP else self._heard
        body = act(group, request, error)
        return raw.response(head.api_key, head.api_version, body, correlation_id=head.correlation_id)

    def _join(self, group: Group, request: Any, error: ErrorCode) -> dict[str, Any]:
        if error is ErrorCode.none:
            group.generation += 1
            group.member_id = f"{request.group_id}-{group.generation}"
            group.session_ms = request.session_timeout_ms
            self._watch(group)
        return {
            "error_code": error,
            "generation_id": group.generation,
            "protocol_name": "range",
            "leader": group.member_id,
            "member_id": group.member_id,
            "members": [],
        }

    def _heard(self, group: Group, request: Any, error: ErrorCode) -> dict[str, Any]:
        """Answer a Heartbeat, or an OffsetCommit, which says as much."""
        if error is ErrorCode.none:
            if request.member_id != group.member_id:
                error = ErrorCode.unknown_member_id
            else:
                group.heard_ms = self._timers.now_ms
        topics = []
        for topic in getattr(request, "topics", ()):
            partitions = []
            for asked in topic.partitions:
                if error is ErrorCode.none:
                    group.offsets[topic.name, asked.partition_index] = asked.committed_offset
                partitions.append({"partition_index": asked.partition_index, "error_code": error})
            topics.append({"name": topic.name, "partitions": partitions})
        return {"error_code": error, "topics": topics}

    def _watch(self, group: Group) -> None:
        """Expel the member when its time is over (GroupMetadataManager.expireClassicGroupMemberHeartbeat)."""
        member_id = group.member_id
        group.heard_ms = self._timers.now_ms

        def look() -> None:
            if group.member_id != member_id:
                return
            due_ms = group.heard_ms + group.session_ms
            if self._timers.now_ms < due_ms:
                self._timers.at(due_ms, look)
            else:
                group.member_id, group.expelled = "", group.expelled + 1

        self._timers.at(group.heard_ms + group.session_ms, look)
