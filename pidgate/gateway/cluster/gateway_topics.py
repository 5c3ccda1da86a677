"""Requests that name a gateway topic, and responses that list one. PURE.

A client that can write events could admit ids and charge users on every gateway. Broker ACLs are the first
defence; this is the second, for clusters without ACLs: see docs/how-to/creates.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from pidgate.protocol.errors import FrameTooLarge
from pidgate.protocol.gateway_topics import (
    GatewayTopicSet,
    cut_metadata_request,
    filtering,
    with_refusals,
)
from pidgate.protocol.headers import RequestHead, is_flexible
from pidgate.protocol.metadata import METADATA
from pidgate.protocol.topic_refusals import GUARDED, names_gateway_topic, refuse_request
from pidgate.protocol.work import MOST_SEARCHED_BYTES, Steps

Buffer = bytes | bytearray | memoryview

LOOKED_INTO_BYTES: Final = 8 * 1024
"""Longest request that is decoded. A longer one would block other connections."""

CLOSE_CAUSE: Final = "gateway_topic"
CLOSE_REASON: Final = (
    "it contains a gateway topic or is too long to be searched, and no response can carry the error"
)


def _nothing() -> None:
    pass


class Refused(NamedTuple):
    """Refusal of a request for a gateway topic. Without `answer` and `instead`, close the connection."""

    answer: bytes | None = None
    """Frame for the client; nothing goes to the broker."""
    instead: bytes | None = None
    """Frame to forward in place of the request."""
    refusals: tuple[bytes, ...] = ()
    """With `instead`: topics that `add_refusals` adds to its response."""


class GatewayTopics:
    """The gateway topics, shared by all connections of a process. Without names it does nothing."""

    __slots__ = ("_topics", "guarded", "on_learnt", "produced")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._topics = GatewayTopicSet(names)
        self.guarded: frozenset[int] = GUARDED if self._topics else frozenset()
        """API keys of requests to be checked by `check_request`."""
        self.produced: set[bytes] = self._topics.produced
        """Topics refused in Produce requests. The set grows; callers keep a reference to it."""
        self.on_learnt: Callable[[], None] = _nothing
        """Called when another id is refused."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name.decode() for name in self._topics.names)

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Names and ids, none of which a request of a `guarded` API may contain. A new tuple after each change."""
        return self._topics.needles

    @property
    def ids_known(self) -> bool:
        """Whether the id of a gateway topic is known. Until then requests by id are forwarded."""
        return any(True for _ in self._topics.ids)

    def learn_id(self, topic_id: bytes) -> None:
        """Also refuse requests with this topic id (16 bytes)."""
        if self._topics and self._topics.learn_id(topic_id):
            self.on_learnt()

    def may_name(self, buf: bytes | bytearray, start: int, end: int) -> bool:
        """Return whether `check_request` must check a request of a `guarded` API.

        Searches for each name and id, nearly always without a match. True without a search above
        MOST_SEARCHED_BYTES.
        """
        if end - start > MOST_SEARCHED_BYTES:
            return True
        for needle in self._topics.needles:  # noqa: SIM110 - every Fetch comes here: a generator costs more
            if buf.find(needle, start, end) >= 0:
                return True
        return False

    def check_request(self, buf: bytes | bytearray, head: RequestHead) -> Refused | None:
        """Check a request of a `guarded` API; None if it contains no gateway topic.

        Above LOOKED_INTO_BYTES the request is not decoded, and a string equal to a topic's name or id closes
        the connection. Above MOST_SEARCHED_BYTES the connection is closed without a search. Raises
        MalformedFrame.
        """
        topics, api_key, api_version = self._topics, head.api_key, head.api_version
        request_bytes = head.end - head.start
        if request_bytes > MOST_SEARCHED_BYTES:
            return Refused()
        if not topics.is_named_in(buf, head.body, head.end, flexible=is_flexible(api_key, api_version)):
            return None
        if request_bytes > LOOKED_INTO_BYTES:
            return Refused()
        if api_key == METADATA:
            cut = cut_metadata_request(buf, head, topics)
            if cut is None:
                return None
            if api_version > 0 or not cut.is_empty:
                return Refused(instead=cut.request, refusals=cut.refusals)
        try:
            message = names_gateway_topic(buf, head, topics)
        except FrameTooLarge:
            return Refused()
        return None if message is None else Refused(answer=refuse_request(head, message))

    def filtering(self, api_key: int, api_version: int, buf: Buffer, start: int, end: int) -> Steps:
        """Return the framed response buf[start:end] without gateway topics, in steps; None if unchanged."""
        return filtering(api_key, api_version, buf, start, end, self._topics)


def add_refusals(answer: bytes, api_version: int, refusals: tuple[bytes, ...]) -> bytes:
    """Return the framed Metadata response with the topics cut from its request (see Refused)."""
    return with_refusals(answer, 4, len(answer), api_version, refusals)
