"""The gateway's events: where they are written, and how far those of others are applied.

Written to the events topic and, if they say what is remembered, to the journal of the state directory; either may be
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidgate.events.definitions import DecisionEvent, Heard, TransactionalIdEvent
from pidgate.events.writing import prefix_of
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.state.applied_ranges import AppliedRanges
from pidgate.gateway.state.events_topic import EventTopic
from pidgate.gateway.state.publisher import EventPublisher
from pidgate.gateway.state.state_dir import StateDir
from pidgate.gateway.topics.follower import EventFollower
from pidgate.gateway.topics.own_client import OwnClient

_IN_JOURNAL: Final = (prefix_of(DecisionEvent), prefix_of(TransactionalIdEvent))


class EventLog:
    """`publisher` and `follower` are None without events, `state_dir` without a directory."""

    def __init__(self, settings: Settings, kafka: OwnClient, on_topic_id: Callable[[bytes], None]) -> None:
        self.state_dir = StateDir(settings.state_dir) if settings.state_dir else None
        self.publisher: EventPublisher | None = None
        self.follower: EventFollower | None = None
        if settings.events.enabled:
            topic = EventTopic.from_settings(settings)
            topic.on_id = on_topic_id
            self.publisher = EventPublisher(kafka, topic)
            self.follower = EventFollower(kafka, topic)
        self.applied = AppliedRanges()

    @property
    def applied_offsets(self) -> list[int]:
        """By partition of the topic: the next offset of other gateways' events to apply."""
        return self.follower.applied_offsets if self.follower is not None else []

    def applied_ranges(self) -> list[Heard]:
        """Return what was applied when, since the last call."""
        return self.applied.take()

    def publish(self, key: str, value: bytes) -> None:
        """Write an event. Neither waits nor raises."""
        if self.state_dir is not None and value.startswith(_IN_JOURNAL):
            self.state_dir.append(value)
        if self.publisher is not None:
            self.publisher.publish(key, value)
