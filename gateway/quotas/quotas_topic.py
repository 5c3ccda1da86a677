"""The topic of quotas set at run time: one partition, whose order is the order of changes, compacted by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.logs import Event
from pidgate.gateway.topics.gateway_topic import OwnTopic, TopicLines

PARTITION: Final = 0
"""All changes are in this one, whatever partitions an existing topic has: between partitions there is no order."""
_DAY_MS: Final = 86_400_000
_READABLE_COMPRESSION: Final = frozenset({"producer", "uncompressed", "gzip"})


@dataclass(slots=True)
class QuotasTopic(OwnTopic):
    """Small, and needed as a whole for ever."""

    lines: ClassVar[TopicLines] = TopicLines(
        Event.QUOTAS_TOPIC_CREATED,
        Event.QUOTAS_TOPIC_UNSAFE,
        Event.QUOTAS_TOPIC_UNAVAILABLE,
        Event.QUOTAS_TOPIC_AVAILABLE,
    )
    is_compacted: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: Settings) -> QuotasTopic:
        return cls(settings.quotas.runtime_changes.topic, 1, settings.events.replication_factor)

    def timestamps_are_of_gateways(self) -> None:
        """Nothing is reckoned by them."""

    def _wanted(self, replicas: int) -> dict[str, str]:
        return {
            "cleanup.policy": "compact",
            # What is not in a closed segment is not compacted: there are few records, and old ones are of no use.
            "segment.ms": str(_DAY_MS),
            # A gateway that was cut off for days still hears what is forgotten.
            "delete.retention.ms": str(7 * _DAY_MS),
            "min.insync.replicas": "2" if replicas >= 3 else "1",
            "compression.type": "producer",
        }

    def _unsafe(self, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
        finding = partial(self._finding, settings)
        if settings.get("cleanup.policy", "compact") != "compact":
            reason = "what is deleted by age is forgotten by the gateways that start after it"
            yield finding("cleanup.policy", reason, "compact")
        if settings.get("compression.type", "producer") not in _READABLE_COMPRESSION:
            yield finding("compression.type", "the gateway reads only gzip and uncompressed", "producer")
