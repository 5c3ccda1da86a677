"""A gateway topic: created if missing, checked if present.

An existing topic is used as it is; unsafe settings are logged once. Subclasses define the required settings:
state/events_topic.py, quotas/topic_store.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, ClassVar, Final, NamedTuple

from pidgate.gateway.logs import Event, logger
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.protocol import messages, metadata

log = logger()

REQUEST_TIMEOUT_MS: Final = 10_000
ID_TRIES: Final = 50
ID_PAUSE_S: Final = 0.1
"""Pause between requests for a new topic's id, before the first write."""
_TOPIC_ALREADY_EXISTS: Final = 36
_INVALID_REPLICATION_FACTOR: Final = 38
_NOT_ALLOWED: Final = frozenset({29, 31})
"""TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED."""
_READABLE_COMPRESSION: Final = frozenset({"producer", "uncompressed", "gzip"})
_VERSION: Final = messages.METADATA_PROBE_VERSION
_HEADER_BYTES: Final = 4 + 8 + 2 + 1
"""Header of a framed request without a client id: size, key, version, correlation id, empty string, no tags.
"""
_ANSWER_HEADER: Final = bytes(5)
"""Correlation id and empty tags, which the library strips from responses."""
_NO_ID: Final = bytes(16)


class TopicNotMade(Exception):
    """The brokers refuse to create the topic."""


class TopicLines(NamedTuple):
    """Log events of a topic."""

    created: Event
    unsafe: Event
    unavailable: Event
    available: Event


@dataclass(slots=True)
class GatewayTopic(ABC):
    """Name, shape and settings of one topic."""

    lines: ClassVar[TopicLines]
    is_compacted: ClassVar[bool] = False
    """Whether keys and records without a value (tombstones) have meaning."""

    name: str
    partitions: int
    replication_factor: int
    on_id: Callable[[bytes], None] = field(default=lambda _topic_id: None, repr=False, kw_only=True)
    """Called with the topic's 16 byte id after each request for it."""
    _is_checked: bool = field(default=False, repr=False, kw_only=True)
    _logged: set[str] = field(default_factory=set, repr=False, kw_only=True)

    @abstractmethod
    def _wanted(self, replicas: int) -> dict[str, str]:
        """Return the configuration of a new topic."""

    @abstractmethod
    def _unsafe(self, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """Yield unsafe settings of an existing topic; see `_finding`."""

    @abstractmethod
    def timestamps_are_of_gateways(self) -> None:
        """Warn that producers set the record timestamps.

        Called by readers, because the check of the topic may be unauthorized.
        """

    async def _ask_brokers(self, admin: Any) -> None:  # noqa: B027 - most topics have nothing to ask
        """Ask the brokers for settings that the topic's use depends on, best effort."""

    def _unreadable_compression(self, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
        if settings.get("compression.type", "producer") not in _READABLE_COMPRESSION:
            reason = "the gateway reads only gzip and uncompressed"
            yield self._finding(settings, "compression.type", reason, "producer")

    async def ensure_topic(self, kafka: OwnClient) -> None:
        """Create the topic if it is missing; check an existing one the first time.

        Creation comes first: with auto-creation, any other request for the topic would create it with broker
        defaults. Missing permission to create is no error, as the topic may exist. Raises TopicNotMade if
        brokers refuse for another reason, and aiokafka's errors.
        """
        admin = kafka.admin(request_timeout_ms=REQUEST_TIMEOUT_MS)
        try:
            await admin.start()
            is_new = await self._create(admin)
            await self._ask_id(admin, ID_TRIES if is_new else 1)
            await self._ask_brokers(admin)
            if is_new or self._is_checked:
                return
            found = await self.unsafe_settings(admin)
            self._is_checked = found is not None
            for finding in found or ():
                self._log(finding)
        finally:
            await admin.close()

    async def _ask_id(self, admin: Any, tries: int) -> None:
        """Request the topic id, best effort.

        Without permission or on old brokers it is learnt from client traffic.

        A broker may list a new topic with a delay. Requests by id are not refused until the id is known.
        """
        with contextlib.suppress(Exception):
            topic_id = await topic_id_of(admin, self.name)
            while topic_id is None and tries > 1:
                await asyncio.sleep(ID_PAUSE_S)
                tries -= 1
                topic_id = await topic_id_of(admin, self.name)
            if topic_id is not None:
                self.on_id(topic_id)

    def _log(self, finding: dict[str, str]) -> None:
        if finding["setting"] not in self._logged:
            self._logged.add(finding["setting"])
            log.warning(self.lines.unsafe, topic=self.name, **finding)

    def _finding(self, settings: Mapping[str, str], setting: str, reason: str, wanted: str) -> dict[str, str]:
        """Return the fields of the log event."""
        remedy = f"kafka-configs --alter --topic {self.name} --add-config {setting}={wanted}"
        return {"setting": setting, "value": settings[setting], "reason": reason, "remedy": remedy}

    async def _create(self, admin: Any) -> bool:
        """Return whether the topic was created. Uses fewer replicas if the cluster has fewer brokers."""
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

    async def unsafe_settings(self, admin: Any) -> list[dict[str, str]] | None:
        """Return the unsafe settings of the existing topic; None if brokers do not show them."""
        settings = await self._settings_of(admin)
        return None if settings is None else list(self._unsafe(settings))

    async def why_not_creatable(self, admin: Any) -> str:
        """Return why the brokers would refuse to create the topic, without creating it."""
        from aiokafka.admin import NewTopic

        new = NewTopic(self.name, self.partitions, 1, topic_configs=self._wanted(1))
        answer = await admin.create_topics([new], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=True)
        (_, code, message, *_), *_ = answer.topic_errors
        if code in (0, _TOPIC_ALREADY_EXISTS):
            return ""
        return "the right Create is missing" if code in _NOT_ALLOWED else f"error {code}: {message}"

    async def _settings_of(self, admin: Any) -> dict[str, str] | None:
        """Return name to value; None if DescribeConfigs is not permitted or returns nothing yet."""
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        return await self._describe(admin, ConfigResource(ConfigResourceType.TOPIC, self.name))

    @staticmethod
    async def _describe(admin: Any, asked: Any) -> dict[str, str] | None:
        answers = await admin.describe_configs([asked])
        for answer in answers:
            for code, _message, _kind, _name, entries in answer.resources:
                if code == 0:
                    return {entry[0]: entry[1] for entry in entries}
        return None


async def topic_id_of(admin: Any, name: str) -> bytes | None:
    """Return the topic's 16 byte id through a started AIOKafkaAdminClient; None if the topic does not exist.

    aiokafka's Metadata versions have no ids, so a request of our own is wrapped in the library's request
    class. Raises aiokafka's errors and MalformedFrame.
    """
    answer = await admin._send_request(_request(name))
    whole = _ANSWER_HEADER + answer.body
    for found, topic_id in metadata.topic_ids(whole, 0, len(whole), _VERSION):
        if found == name and topic_id != _NO_ID:
            return bytes(topic_id)
    return None


def _request(name: str) -> Any:
    from aiokafka.protocol.api import Request, RequestStruct, Response
    from aiokafka.protocol.types import AbstractType, Schema

    class Rest(AbstractType[bytes]):  # type: ignore[misc]  # the library has no types
        """The remaining bytes, unparsed."""

        @classmethod
        def encode(cls, value: bytes) -> bytes:
            return value

        @classmethod
        def decode(cls, data: BytesIO) -> bytes:
            return data.read()

        @classmethod
        def repr(cls, value: bytes) -> str:
            return f"{len(value)} bytes"

    class Answer(Response):  # type: ignore[misc]
        API_KEY = messages.METADATA
        API_VERSION = _VERSION
        SCHEMA = Schema(("body", Rest))

    class Struct(RequestStruct):  # type: ignore[misc]
        FLEXIBLE_VERSION = True
        API_KEY = messages.METADATA
        API_VERSION = _VERSION
        RESPONSE_TYPE = Answer
        SCHEMA = Schema(("body", Rest))

    class Metadata(Request[Struct]):  # type: ignore[misc]
        API_KEY = messages.METADATA

        def build(self, request_struct_class: type[Struct]) -> Struct:
            return request_struct_class(messages.metadata_request(1, "", [name])[_HEADER_BYTES:])

    return Metadata()
