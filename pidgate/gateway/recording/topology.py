"""Brokers and partition leaders of the cluster, from passing Metadata answers. PURE.

Only new answers are kept. They are parsed in parts, once a second: a large cluster's Metadata has a hundred
thousand partitions. Topics and partitions are bounded; those beyond the bound are not published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from pidgate.events.definitions import BrokerPlace, TopicPlaces
from pidgate.gateway.cluster.seen_answers import Answer, SeenAnswers
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.metadata_places import Broker, Cluster, TopicPartitions, places

PARTITIONS_PER_READ: Final = 1_000
"""About 2 ms."""
MOST_TOPICS: Final = 5_000
MOST_PARTITIONS: Final = 50_000
PARTITIONS_PER_EVENT: Final = 2_000
"""About 100 KB; the rest follows in the next event."""
MOST_WAITING_BYTES: Final = 16 * 1024 * 1024
BETWEEN_CHANGES_MS: Final = 10_000

_Places = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]


class Topology:
    """Call `offer` with passing answers, and `read` and `change` once a second."""

    def __init__(self) -> None:
        self.cluster_id = ""
        """From a Metadata answer of version 2 or later; empty before the first."""
        self._brokers: dict[int, Broker] = {}
        self._topics: dict[str, _Places] = {}
        self._partitions = 0
        self._changed_topics: dict[str, None] = {}
        self._brokers_changed = False
        self._waiting: deque[Iterator[Cluster | TopicPartitions]] = deque()
        self._waiting_bytes = 0
        self._sizes: deque[int] = deque()
        self._seen = SeenAnswers()
        self._published_ms: int | None = None

    def offer(self, answer: Answer, version: int, hashed: int) -> None:
        """Queue a Metadata answer, as sent by the broker, with its hash_of."""
        if self._waiting_bytes + len(answer) > MOST_WAITING_BYTES or not self._seen.is_new(hashed):
            return
        self._waiting.append(places(answer, 0, len(answer), version))
        self._sizes.append(len(answer))
        self._waiting_bytes += len(answer)

    def broker_learnt(self, node_id: int, host: str, port: int) -> None:
        """Record a broker from another answer."""
        known = self._brokers.get(node_id)
        self._learn_broker(Broker(node_id, host, port, known.rack if known else ""))

    def publish_again(self) -> None:
        """Have the brokers published once more."""
        self._brokers_changed = True

    def replicas_of(self, topic: bytes, partition: int) -> tuple[int, ...]:
        """Return the brokers with a replica of the partition; empty: unknown."""
        known = self._topics.get(topic.decode("utf-8", "replace"))
        return known[1][partition] if known is not None and 0 <= partition < len(known[1]) else ()

    def read(self) -> None:
        """Parse about PARTITIONS_PER_READ more partitions of the queued answers."""
        left = PARTITIONS_PER_READ
        while self._waiting and left > 0:
            try:
                for part in self._waiting[0]:
                    left -= self._learn(part)
                    if left <= 0:
                        return
            except KafkaProtocolError:
                pass  # malformed: the part read so far is valid
            self._waiting.popleft()
            self._waiting_bytes -= self._sizes.popleft()

    def change(
        self, now_ms: int, *, ends: bool = False
    ) -> tuple[list[BrokerPlace], list[TopicPlaces]] | None:
        """Return (all brokers, new or changed topics), at most once in BETWEEN_CHANGES_MS. None: nothing new.

        `ends`: the process ends, so return what is left now.
        """
        if not self._brokers_changed and not self._changed_topics:
            return None
        if not ends and self._published_ms is not None and now_ms - self._published_ms < BETWEEN_CHANGES_MS:
            return None
        self._published_ms = now_ms
        self._brokers_changed = False
        brokers = [
            BrokerPlace(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack) for b in self._in_order()
        ]
        topics: list[TopicPlaces] = []
        left = PARTITIONS_PER_EVENT
        for name in list(self._changed_topics):
            leaders, replicas = self._topics[name]
            if topics and len(leaders) > left:
                break
            left -= len(leaders)
            del self._changed_topics[name]
            topics.append(TopicPlaces(topic=name, leaders=list(leaders), replicas=list(map(list, replicas))))
        return brokers, topics

    def _in_order(self) -> list[Broker]:
        return [self._brokers[node_id] for node_id in sorted(self._brokers)]

    def _learn(self, part: Cluster | TopicPartitions) -> int:
        """Apply a part of an answer; return its number of partitions."""
        if isinstance(part, TopicPartitions):
            self._learn_topic(part)
            return len(part.leaders) + 1
        self.cluster_id = part.cluster_id or self.cluster_id
        listed = {broker.node_id: broker for broker in part.brokers}
        if self._brokers.keys() - listed.keys():
            self._brokers_changed = True
            self._brokers = {
                node_id: self._brokers[node_id] for node_id in self._brokers if node_id in listed
            }
        for broker in part.brokers:
            self._learn_broker(broker)
        return 1

    def _learn_broker(self, broker: Broker) -> None:
        if self._brokers.get(broker.node_id) != broker:
            self._brokers[broker.node_id] = broker
            self._brokers_changed = True

    def _learn_topic(self, topic: TopicPartitions) -> None:
        known = self._topics.get(topic.name)
        found = (topic.leaders, topic.replicas)
        if known == found:
            return
        partitions = self._partitions + len(topic.leaders) - (len(known[0]) if known else 0)
        if partitions > MOST_PARTITIONS or (known is None and len(self._topics) >= MOST_TOPICS):
            return
        self._partitions = partitions
        self._topics[topic.name] = found
        self._changed_topics[topic.name] = None
