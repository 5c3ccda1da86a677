"""The events topic: its settings at creation, and settings of an existing topic that endanger the shared
state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.topics.gateway_topic import GatewayTopic, TopicLines
from pidgate.units import show_duration

log = logger()

PARTITIONS: Final = 12
"""Partitions of a topic created by the gateway: one per core that reads it, as in Spark. An existing topic
keeps its number."""


_EXPIRATION: Final = "producer.id.expiration.ms"


def remember_warning(remember_ms: int, expiration_ms: int) -> str:
    """Describe the effect of a `remember` that differs from the brokers' producer.id.expiration.ms."""
    ours, theirs = show_duration(remember_ms), show_duration(expiration_ms)
    if remember_ms < expiration_ms:
        effect = "an id that is idle for longer is charged again, although the brokers still know it"
    else:
        effect = "an id that the brokers have forgotten comes back free of charge"
    return f"is {ours}, and the brokers' {_EXPIRATION} is {theirs}: {effect}. Write remember: {theirs}"


@dataclass(slots=True)
class EventTopic(GatewayTopic):
    """`remember_ms`: how long its events are needed.

    `on_expiration` is called once with the brokers' producer.id.expiration.ms, if they show it.
    """

    lines: ClassVar[TopicLines] = TopicLines(
        Event.EVENTS_TOPIC_CREATED,
        Event.EVENTS_TOPIC_UNSAFE,
        Event.EVENTS_TOPIC_UNAVAILABLE,
        Event.EVENTS_TOPIC_AVAILABLE,
    )

    retention_ms: int
    remember_ms: int
    on_expiration: Callable[[int], None] = field(default=lambda _ms: None, repr=False, kw_only=True)
    _is_expiration_known: bool = field(default=False, repr=False, kw_only=True)

    @classmethod
    def from_settings(cls, settings: Settings) -> EventTopic:
        events = settings.events
        return cls(
            events.topic,
            PARTITIONS,
            events.replication_factor,
            events.retention_ms,
            settings.quotas.producer_ids.remember_ms,
        )

    async def _ask_brokers(self, admin: Any) -> None:
        """Compare how long brokers keep a producer's state with how long the quota remembers an id."""
        if self._is_expiration_known:
            return
        with contextlib.suppress(Exception):
            expiration_ms = await self.expiration_ms(admin)
            self._is_expiration_known = True
            self.on_expiration(expiration_ms)
            if expiration_ms != self.remember_ms:
                log.warning(
                    Event.CONFIG_WARNING,
                    key="quotas.producer_ids.remember",
                    text=remember_warning(self.remember_ms, expiration_ms),
                )

    async def expiration_ms(self, admin: Any) -> int:
        """Return the producer.id.expiration.ms of a broker. Raises KeyError if it is not shown."""
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        node_id = min(broker.nodeId for broker in admin._client.cluster.brokers())
        asked = ConfigResource(ConfigResourceType.BROKER, str(node_id), {_EXPIRATION: ""})
        return int((await self._describe(admin, asked) or {})[_EXPIRATION])

    def timestamps_are_of_gateways(self) -> None:
        for finding in self._unsafe({"message.timestamp.type": "CreateTime"}):
            self._log(finding)

    def _wanted(self, replicas: int) -> dict[str, str]:
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": "-1",
            # The brokers' clock determines ages, instead of the clocks of many gateways.
            "message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": "2" if replicas >= 3 else "1",
            "compression.type": "producer",
        }

    def _unsafe(self, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
        finding = partial(self._finding, settings)
        if settings.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
            reason = "event ages then depend on each gateway's clock"
            yield finding("message.timestamp.type", reason, "LogAppendTime")
        if "compact" in settings.get("cleanup.policy", "delete"):
            reason = (
                "compaction keeps only the newest event of each user: after a restart ids are charged again"
            )
            yield finding("cleanup.policy", reason, "delete")
        needed = f"events are needed for {show_duration(self.remember_ms)} (quotas.producer_ids.remember)"
        if 0 <= int(settings.get("retention.ms", "-1")) < self.remember_ms:
            yield finding("retention.ms", needed, str(self.retention_ms))
        if int(settings.get("retention.bytes", "-1")) >= 0:
            yield finding("retention.bytes", f"{needed}, however many they are", "-1")
        yield from self._unreadable_compression(settings)
