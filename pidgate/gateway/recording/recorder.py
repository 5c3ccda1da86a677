"""The events of one process: made, numbered without gaps and passed to a sink as bytes. PURE.

`Recorder` records events not tied to one connection and holds state shared by connections.
`ConnectionRecorder` records one connection. The sink neither waits nor raises. A failure of the recorder is
counted and reported, and traffic continues. Clocks and the sink are passed in. This module must not know
sockets or the transport of events.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pidgate.events.definitions import (
    Event,
    IdUsageEvent,
    LifecycleEvent,
    LifecyclePhase,
    RefusalOutcomeEvent,
    TopologyEvent,
)
from pidgate.events.redaction import redacted
from pidgate.events.writing import key_of, to_json
from pidgate.gateway.cluster.seen_answers import Answer
from pidgate.gateway.recording.config_event import Provenance, config_event
from pidgate.gateway.recording.guarded import guarded
from pidgate.gateway.recording.id_blocks import IdBlocks
from pidgate.gateway.recording.sampling import EventSampler, RefusedIds, Summed
from pidgate.gateway.recording.topology import Topology
from pidgate.gateway.recording.usage import IdUsage, Pair, RecordedConnection, UsageTable
from pidgate.quota.decisions import Client, GaveUp
from pidgate.quota.settings import Quotas

Sink = Callable[[str, bytes], None]
"""Sink for a record's key and the event. Neither waits nor raises."""

OnPair = Callable[[Client, int, bytes, int, Sequence[int], int], None]
"""(client, producer id, topic, partition, brokers, now_ms): the pair was used."""

LONGEST_USAGE_MS: Final = 15 * 60_000
"""The usage of live ids is published at least this often; otherwise a slice of a day's memory is six hours
long."""
LEAVING_PER_TICK: Final = 1_000
"""Most events published per second of those left by the end of a slice or of connections: about 10 ms a
second."""
BETWEEN_FAILURES_MS: Final = 10_000
MOST_ERROR_COUNTS: Final = 20_000
"""Most (connection, id, error code) counted at the same time."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The process as named in the envelope of each event."""

    gateway_id: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Clocks:
    """`now_ms`: monotonic, as in decisions. `wall_ms`: since 1970."""

    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """`redact`: envelope fields published as hashes."""

    redact: tuple[str, ...] = ()


class Recorder:
    """Makes every event of the process. `publish` numbers an event and passes it to the sink.

    `cluster`: the configured name, until a broker names the cluster id. `applied_offsets`: the next offset of
    the events topic to apply, by partition. `on_failure` is called with a failure of the recorder, at most once
    in ten seconds.
    """

    def __init__(
        self,
        sink: Sink,
        identity: Identity,
        clocks: Clocks,
        settings: RecorderSettings,
        quotas: Quotas,
        *,
        cluster: str = "",
        applied_offsets: Callable[[], list[int]] = list,
        on_failure: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        self._sink = sink
        self._identity = identity
        self._settings = settings
        self._on_failure = on_failure
        self.now_ms, self.wall_ms = clocks.now_ms, clocks.wall_ms
        self.cluster = cluster
        self.applied_offsets = applied_offsets
        self.topic_name: Callable[[bytes], bytes] = bytes
        """Returns the name of a topic that a batch names by id, if known; otherwise its argument."""
        self.quotas = quotas
        self.quota_version = 0
        """Of the quotas in force."""
        self._provenance: Mapping[str, Provenance] = {}
        self.seq = 0
        """seq of the latest event."""
        self.failures = 0
        self._quiet_until_ms = -BETWEEN_FAILURES_MS
        self.in_slice: dict[RecordedConnection, None] = {}
        """Connections with usages or error counts of this slice."""
        self.sampler = EventSampler()
        self.usage = UsageTable()
        self.on_pair: OnPair | None = None
        self.id_blocks = IdBlocks()
        self.topology = Topology()
        self.producer_id_expiration_ms: int | None = None
        self.refused_ids = RefusedIds()
        self.later: deque[Callable[[], None]] = deque()
        """Events to publish when there is time; the oldest on the left."""
        self.error_counts = 0
        """Error counts held by all connections together, including those in `later`."""
        self.uncounted_errors = 0
        """Error codes that arrived while MOST_ERROR_COUNTS were held."""
        self._slice = self._slice_of(self.now_ms())

    @property
    def token_units(self) -> int:
        """Units per token; balances in events are in units."""
        return self.quotas.producer_ids.window_ms * 1000

    def may_count_error(self) -> bool:
        """Reserve one more error count. Returns False when there is no room."""
        if self.error_counts >= MOST_ERROR_COUNTS:
            self.uncounted_errors += 1
            return False
        self.error_counts += 1
        return True

    @property
    def unrecorded(self) -> int:
        """Occurrences without an event: recorder failures, and occurrences without room to be counted."""
        return self.failures + self.uncounted_errors + self.usage.uncounted_requests

    def failed(self, error: Exception) -> None:
        """Count and report a failure of the recorder; never raises."""
        self.failures += 1
        try:
            now_ms = self.now_ms()
            if now_ms >= self._quiet_until_ms:
                self._quiet_until_ms = now_ms + BETWEEN_FAILURES_MS
                self._on_failure(error)
        except Exception:  # noqa: BLE001 - no further place to report it
            self.failures += 1

    # ---- publishing ------------------------------------------------------------------------------------

    def stamp(self, now_ms: int) -> dict[str, Any]:
        """Return the envelope of an event at this time. `publish` numbers it."""
        identity = self._identity
        return {
            "cluster": self.topology.cluster_id or self.cluster,
            "gateway_id": identity.gateway_id,
            "incarnation": identity.incarnation,
            "seq": 0,
            "wall_time_ms": self.wall_ms(),
            "decision_time_ms": now_ms,
        }

    def publish(self, event: Event) -> None:
        """Number the event and pass it to the sink. Only an event that could be encoded uses up a number."""
        if self._settings.redact:
            event = redacted(event, self._settings.redact)
        event.seq = self.seq + 1
        value = to_json(event)
        self.seq += 1
        self._sink(key_of(event), value)

    def publish_sampled(self, event: Summed, now_ms: int) -> None:
        """Publish the event, or add it to the sum of a client above its sampling rate."""
        if self.sampler.may_publish(event, now_ms):
            self.publish(event)

    def name_of(self, topic: bytes) -> str:
        """Return a batch's topic as written in events: its name, or its id in base64."""
        name = self.topic_name(topic)
        if name[:1] == b"\x00":
            return base64.urlsafe_b64encode(name[1:]).decode("ascii").rstrip("=")
        return name.decode("utf-8", "replace")

    # ---- of the gateway --------------------------------------------------------------------------------

    @guarded
    def lifecycle(self, /, phase: LifecyclePhase, **fields: Any) -> None:
        """Publish a lifecycle phase of this gateway. `fields`: other fields of the event."""
        quotas = self.quotas
        self.publish(
            LifecycleEvent(
                **self.stamp(self.now_ms()),
                phase=phase,
                mode=quotas.mode.value,
                window_ms=quotas.producer_ids.window_ms,
                remember_ms=quotas.producer_ids.remember_ms,
                **fields,
            )
        )

    @guarded
    def quotas_set(
        self, quotas: Quotas, now_ms: int, provenance: Mapping[str, Provenance] | None = None
    ) -> None:
        """Start the next quota version with these quotas and publish it; at start, and at each change.

        `now_ms`: the time at which the state received them, so that a replay refills at the same millisecond.
        """
        self.quotas = quotas
        self.quota_version += 1
        self._provenance = provenance or {}
        self.publish_quotas(now_ms)

    @guarded
    def publish_quotas(self, now_ms: int) -> None:
        """Publish the quotas in force again, for readers of the topic's latest hours."""
        self.publish(config_event(self.stamp(now_ms), self.quotas, self.quota_version, self._provenance))

    def pairs_used(self, client: Client, node_id: int | None, pairs: list[Pair], now_ms: int) -> None:
        """Pass pairs on to `on_pair`, with the brokers that have a replica of the partition, as far as known."""
        if self.on_pair is None:
            return
        for producer_id, topic, partition in pairs:
            name = self.topic_name(topic)
            node_ids = self.topology.replicas_of(name, partition) or (() if node_id is None else (node_id,))
            self.on_pair(client, producer_id, name, partition, node_ids, now_ms)

    @guarded
    def gave_up(self, gone: list[GaveUp]) -> None:
        """Publish the outcome of refused ids whose retries have ended."""
        self.later.extend(partial(self._publish_gave_up, one) for one in gone)

    def _publish_gave_up(self, one: GaveUp) -> None:
        known = self.refused_ids.ended(one.user, one.producer_id)
        self.publish(
            RefusalOutcomeEvent(
                **self.stamp(self.now_ms()),
                user=one.user,
                client_id=known.client_id if known else "",
                address=known.address if known else "",
                producer_id=one.producer_id,
                attempts=max(one.attempts, known.attempts if known else 0),
                waited_ms=one.waited_ms,
                outcome="gave_up",
            )
        )

    @guarded
    def broker_learnt(self, node_id: int, host: str, port: int) -> None:
        """Pass a broker's address to the topology."""
        self.topology.broker_learnt(node_id, host, port)

    @guarded
    def metadata_passes(self, answer: Answer, version: int, hashed: int) -> None:
        """Offer a Metadata answer, as the broker wrote it without its size prefix, to the topology; see TopicNames."""
        self.topology.offer(answer, version, hashed)

    # ---- once a second ---------------------------------------------------------------------------------

    @guarded
    def tick(self) -> None:
        """Publish sums of sampled events, cluster changes, and usages of an ended slice.

        Called once a second.
        """
        now_ms = self.now_ms()
        for event in self.sampler.sums(now_ms):
            self.publish(event)
        self._publish_topology(now_ms)
        current = self._slice_of(now_ms)
        if current != self._slice:
            self._slice = current
            self._end_slice()
        self.publish_leaving(LEAVING_PER_TICK)

    def flush(self, most: int = LEAVING_PER_TICK) -> bool:
        """Publish counts so far, at most `most` events, when draining.

        Returns whether there is more: call it again after a turn of the event loop.
        """
        self._flush(most)
        return bool(self.later or self.usage.leaving)

    @guarded
    def _flush(self, most: int) -> None:
        self._end_slice()
        for event in self.sampler.all_sums():
            self.publish(event)
        self._publish_topology(self.now_ms(), ends=True)
        self.publish_leaving(most)

    @guarded
    def expiration_learnt(self, expiration_ms: int) -> None:
        """Publish the brokers' producer.id.expiration.ms with the brokers."""
        self.producer_id_expiration_ms = expiration_ms
        self.topology.publish_again()

    def _publish_topology(self, now_ms: int, *, ends: bool = False) -> None:
        self.topology.read()
        change = self.topology.change(now_ms, ends=ends)
        if change is not None:
            brokers, topics = change
            self.publish(
                TopologyEvent(
                    **self.stamp(now_ms),
                    brokers=brokers,
                    topics=topics,
                    producer_id_expiration_ms=self.producer_id_expiration_ms,
                )
            )

    def _slice_of(self, now_ms: int) -> int:
        return now_ms // min(self.quotas.producer_ids.slice_ms, LONGEST_USAGE_MS)

    def _end_slice(self) -> None:
        self.usage.end_slice()
        in_slice, self.in_slice = self.in_slice, {}
        for connection in in_slice:
            connection.end_slice()

    def publish_leaving(self, most: int) -> None:
        """Publish at most `most` of the waiting events and of the ids that have left the table."""
        later, leaving = self.later, self.usage.leaving
        while later and most > 0:
            try:
                later.popleft()()
            except Exception as error:  # noqa: BLE001 - counted and reported there
                self.failed(error)
            most -= 1
        while leaving and most > 0:
            self._publish_usage(leaving.popleft())
            most -= 1

    def _publish_usage(self, usage: IdUsage) -> None:
        # Both clocks are read now, so that an adjustment of the wall clock is taken into account.
        to_wall_ms = self.wall_ms() - self.now_ms()
        about = usage.first_user.about()
        about["user"] = usage.user
        if usage.connections > 1:
            about["connection_id"] = None
        self.publish(
            IdUsageEvent(
                **self.stamp(self.now_ms()),
                **about,
                producer_id=usage.producer_id,
                epoch=usage.epoch,
                requests=usage.requests,
                batches=usage.batches,
                records=usage.records,
                bytes=usage.bytes,
                partitions=usage.partitions,
                first_ms=usage.first_ms + to_wall_ms,
                last_ms=usage.last_ms + to_wall_ms,
                connections=usage.connections,
            )
        )
