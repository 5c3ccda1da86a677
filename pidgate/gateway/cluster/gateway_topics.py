"""Requests that name a topic of the gateway's own, and answers that list one. PURE.

A client that may write events could admit ids and charge users in all gateways. The brokers' ACLs are the first line of
defence; this is the second, for clusters without them: see "The events topic" in docs/operating.md.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from pidgate.protocol.topic_refusals import GUARDED, names_gateway_topic, refused
from pidgate.protocol.work import MOST_SEARCHED_BYTES, Steps

Buffer = bytes | bytearray | memoryview

LOOKED_INTO_BYTES: Final = 8 * 1024
"""Longest request that is decoded: one for thousands of topics and a gateway topic may not stall others."""

CLOSE_CAUSE: Final = "gateway_topic"
CLOSE_REASON: Final = (
    "it names a topic of the gateway's own, or is too long to be searched; no answer can say so"
)


class Refused(NamedTuple):
    """The refusal of a request that names a gateway topic; without `answer` and `instead`: close the connection."""

    answer: bytes | None = None
    """Framed: send it to the client, and nothing to the broker."""
    instead: bytes | None = None
    """Framed: forward it instead of the request."""
    refusals: tuple[bytes, ...] = ()
    """With `instead`: what `add_refusals` puts into its answer."""


class GatewayTopics:
    """The topics of one process, for all its connections. Without names it does nothing."""

    __slots__ = ("_topics", "guarded", "produced")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._topics = GatewayTopicSet(names)
        self.guarded: frozenset[int] = GUARDED if self._topics else frozenset()
        """API keys of requests that `look` has to see."""
        self.produced: set[bytes] = self._topics.produced
        """Topics that a Produce request may not be for. Grows: keep this very set."""

    @property
    def names(self) -> frozenset[str]:
        """Names of the topics."""
        return frozenset(name.decode() for name in self._topics.names)

    @property
    def ids_known(self) -> bool:
        """True once the id of a gateway topic is known: until then requests by id pass."""
        return any(True for _ in self._topics.ids)

    def learn_id(self, topic_id: bytes) -> None:
        """Refuse requests that name a topic by this id (16 bytes) from now on, too."""
        if self._topics:
            self._topics.learn_id(topic_id)

    def may_name(self, buf: bytes | bytearray, start: int, end: int) -> bool:
        """Return whether `look` has to see a request whose API is in `guarded`, from its bytes alone.

        One search per name and id, nearly always in vain. A request of more than MOST_SEARCHED_BYTES is not searched.
        """
        if end - start > MOST_SEARCHED_BYTES:
            return True
        for needle in self._topics.needles:  # noqa: SIM110 - every Fetch comes here: a generator costs more
            if buf.find(needle, start, end) >= 0:
                return True
        return False

    def look(self, buf: bytes | bytearray, head: RequestHead) -> Refused | None:
        """Look at a request whose API is in `guarded`; None: it names none of these topics.

        Above LOOKED_INTO_BYTES nothing is decoded: a string that is exactly a topic's name, or its id, is enough there
        to close; above MOST_SEARCHED_BYTES not even that is looked for. Raises MalformedFrame.
        """
        topics, api_key, api_version = self._topics, head.api_key, head.api_version
        request_bytes = head.end - head.start
        if request_bytes > MOST_SEARCHED_BYTES:
            return Refused()
        if not topics.is_held(buf, head.body, head.end, flexible=is_flexible(api_key, api_version)):
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
        return None if message is None else Refused(answer=refused(head, message))

    def filtering(self, api_key: int, api_version: int, buf: Buffer, start: int, end: int) -> Steps:
        """The framed answer without these topics, in place of buf[start:end]; None: as it came. In steps."""
        return filtering(api_key, api_version, buf, start, end, self._topics)


def add_refusals(answer: bytes, api_version: int, refusals: tuple[bytes, ...]) -> bytes:
    """The framed Metadata answer with what was cut out of its request (see Refused)."""
    return with_refusals(answer, 4, len(answer), api_version, refusals)
