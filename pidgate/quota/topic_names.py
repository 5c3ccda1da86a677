"""Names of topics by id: a topic by name or by id is the same topic (Produce v13 sends ids). PURE."""

from __future__ import annotations

from typing import Final

MOST_ALIASES = 100_000
"""Topic ids whose names are known; the oldest is forgotten first."""

TOPIC_ID_PREFIX: Final = b"\x00"


class TopicNames:
    """A topic by name or by id is the same topic (Produce v13 sends ids)."""

    __slots__ = ("_id_of", "_name_of")

    def __init__(self) -> None:
        self._name_of: dict[bytes, bytes] = {}
        self._id_of: dict[bytes, bytes] = {}

    def learn(self, name: bytes, topic_id: bytes) -> None:
        """Note that both are one topic. `topic_id`: 16 bytes, or 17 as in a ProducerBatch."""
        topic_id = TOPIC_ID_PREFIX + topic_id if len(topic_id) == 16 else topic_id
        if self._name_of.get(topic_id) == name:
            return
        while len(self._name_of) >= MOST_ALIASES:
            oldest = next(iter(self._name_of))
            forgotten = self._name_of.pop(oldest)
            if self._id_of.get(forgotten) == oldest:
                del self._id_of[forgotten]
        self._name_of[topic_id] = name
        self._id_of[name] = topic_id

    def canonical(self, topic: bytes) -> bytes:
        """Return the name, where it is known."""
        return self._name_of.get(topic, topic)

    def other_form(self, canonical: bytes) -> bytes | None:
        """Return the id under which the topic may have been seen before its name was learnt."""
        return self._id_of.get(canonical)
