"""A topic of the gateway's own: made when it is missing, looked at when it is there.

An existing topic is taken as it is: whoever made it had reasons. What about it endangers what it is for is said
once. What a topic has to be like is its own affair: topic.py for events, runtime_quotas/ for quotas.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from pidgate.gateway.logs import Event, logger
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.gateway.topics.topic_id import topic_id_of

log = logger()

REQUEST_TIMEOUT_MS: Final = 10_000
_TOPIC_ALREADY_EXISTS: Final = 36
_INVALID_REPLICATION_FACTOR: Final = 38
_NOT_ALLOWED: Final = frozenset({29, 31})
"""TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED."""


class TopicNotMade(Exception):
    """The brokers would not make the topic, and why."""


class TopicLines(NamedTuple):
    """What is logged about a topic."""

    created: Event
    unsafe: Event
    unavailable: Event
    available: Event


@dataclass(slots=True)
class OwnTopic(ABC):
    """What a topic should be like."""

    lines: ClassVar[TopicLines]
    is_compacted: ClassVar[bool] = False
    """Whether keys matter, and records without a value, which forget theirs."""

    name: str
    partitions: int
    replication_factor: int
    on_id: Callable[[bytes], None] = field(default=lambda _topic_id: None, repr=False, kw_only=True)
    """Told of the topic's id (16 bytes) whenever it has been asked."""
    _was_looked_at: bool = field(default=False, repr=False, kw_only=True)
    _said: set[str] = field(default_factory=set, repr=False, kw_only=True)

    @abstractmethod
    def _wanted(self, replicas: int) -> dict[str, str]:
        """The configuration of a new one."""

    @abstractmethod
    def _unsafe(self, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """What is dangerous about an existing topic; see `finding`."""

    @abstractmethod
    def timestamps_are_of_gateways(self) -> None:
        """Told by who reads: records carry the time of their creation. Looking may not have been allowed."""

    async def ensure(self, kafka: OwnClient) -> None:
        """Make the topic if it is missing; the first time, look at what it is like.

        Asks to create before anything else names the topic: where brokers create topics by themselves, the
        first question about it would make one of their own liking. Not being allowed to create is no error
        (the topic may be there); raises TopicNotMade when the brokers refuse for another reason, and
        aiokafka's errors.
        """
        from aiokafka.admin import AIOKafkaAdminClient

        admin = AIOKafkaAdminClient(**kafka.arguments(), request_timeout_ms=REQUEST_TIMEOUT_MS)
        try:
            await admin.start()
            is_new = await self._create(admin)
            await self._ask_id(admin)
            if is_new or self._was_looked_at:
                return
            settings = await self._settings_of(admin)
            self._was_looked_at = settings is not None
            for finding in self._unsafe(settings or {}):
                self._say(finding)
        finally:
            await admin.close()

    async def _ask_id(self, admin: Any) -> None:
        """Best effort: an older broker, or one that may not be asked, leaves it to clients' answers."""
        with contextlib.suppress(Exception):
            topic_id = await topic_id_of(admin, self.name)
            if topic_id is not None:
                self.on_id(topic_id)

    def _say(self, finding: dict[str, str]) -> None:
        if finding["setting"] not in self._said:
            self._said.add(finding["setting"])
            log.warning(self.lines.unsafe, topic=self.name, **finding)

    def _finding(self, settings: Mapping[str, str], setting: str, reason: str, wanted: str) -> dict[str, str]:
        """Keys of the log's line."""
        remedy = f"kafka-configs --alter --topic {self.name} --add-config {setting}={wanted}"
        return {"setting": setting, "value": settings[setting], "reason": reason, "remedy": remedy}

    async def _create(self, admin: Any) -> bool:
        """Whether it was made now. With fewer brokers than wanted replicas, as many as there are brokers."""
        from aiokafka.admin import NewTopic

        for replicas in range(self.replication_factor, 0, -1):
            new = NewTopic(self.name, self.partitions, replicas, topic_configs=self._wanted(replicas))
            answer = await admin.create_topics([new], timeout_ms=REQUEST_TIMEOUT_MS)
            (_, code, message, *_), *_ = answer.topic_errors
            if code == 0:
                log.info(
                    self.lines.created,
                    topic=self.name,
                    partitions=self.partitions,
                    replication_factor=replicas,
                    wanted=self.replication_factor,
                )
                return True
            if code == _TOPIC_ALREADY_EXISTS or code in _NOT_ALLOWED:
                return False
            if code != _INVALID_REPLICATION_FACTOR or replicas == 1:
                raise TopicNotMade(f"topic {self.name} cannot be created: error {code}: {message}")
        return False

    async def _settings_of(self, admin: Any) -> dict[str, str] | None:
        """Name to value; None when that may not be asked (DescribeConfigs) or is not known yet."""
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        asked = ConfigResource(ConfigResourceType.TOPIC, self.name)
        answers = await admin.describe_configs([asked])
        for answer in answers:
            for code, _message, _kind, _name, entries in answer.resources:
                if code == 0:
                    return {entry[0]: entry[1] for entry in entries}
        return None
