"""The gateway's events: written to the events topic, and the progress in applying those of other gateways."""

from __future__ import annotations

from collections.abc import Callable

from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.state.events_topic import EventTopic
from pidgate.gateway.state.publisher import EventPublisher
from pidgate.gateway.state.recent_events import RecentEvents
from pidgate.gateway.state.state_dir import StateDir
from pidgate.gateway.topics.follower import EventFollower
from pidgate.gateway.topics.own_client import OwnClient


def _ignore(_expiration_ms: int) -> None: ...


class EventLog:
    """`publisher` and `follower` are None without events, `state_dir` without a directory."""

    def __init__(self, settings: Settings, kafka: OwnClient, on_topic_id: Callable[[bytes], None]) -> None:
        self.state_dir = StateDir(settings.state_dir) if settings.state_dir else None
        self.on_expiration: Callable[[int], None] = _ignore
        """Called with the brokers' producer.id.expiration.ms."""
        self.publisher: EventPublisher | None = None
        self.follower: EventFollower | None = None
        if settings.events.enabled:
            topic = EventTopic.from_settings(settings)
            topic.on_id = on_topic_id
            topic.on_expiration = lambda expiration_ms: self.on_expiration(expiration_ms)
            self.publisher = EventPublisher(kafka, topic)
            self.follower = EventFollower(kafka, topic)
        self.recent = RecentEvents(wall_ms())
        self._taken = 0
        self._dropped = 0

    @property
    def applied_offsets(self) -> list[int]:
        """Next offset of other gateways' events to apply, by partition of the topic."""
        return self.follower.applied_offsets if self.follower is not None else []

    def publish(self, key: str, value: bytes) -> None:
        """Keep an event in memory, and write it. Neither waits nor raises."""
        self.recent.add(value, wall_ms())
        if self.publisher is not None:
            self.publisher.publish(key, value)

    def lacks_events(self) -> bool:
        """Return whether the topic lacks an event published before the last call, or one dropped since then.

        Always true without a topic.
        """
        if self.publisher is None:
            return True
        lacks = self.publisher.oldest_unsent < self._taken or self.publisher.dropped > self._dropped
        self._taken, self._dropped = self.publisher.taken, self.publisher.dropped
        return lacks
