"""Events of one process: made here, numbered without gaps, handed on as bytes.

`Recorder` tells what is not about one connection, and keeps what connections share; what a connection does is told
by its `ConnectionRecorder`. The sink neither waits nor raises. Whatever fails in here is counted and reported,
and the traffic goes on.

PURE: clocks and the sink are given. It must not know sockets, or how events travel.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pidgate.events import (
    Event,
    Heard,
    IdUsageEvent,
    LifecycleEvent,
    ProduceErrorEvent,
    RefusalOutcomeEvent,
    TopologyEvent,
    key_of,
    to_json,
)
from pidgate.events.definitions import LifecyclePhase, RestoredFrom
from pidgate.events.redaction import redacted
from pidgate.gateway.recording.config_event import Provenance, config_event
from pidgate.gateway.recording.event_sampler import EventSampler, Summed
from pidgate.gateway.recording.guarded import guarded
from pidgate.gateway.recording.refusal_events import RefusalSamples, RefusedIds
from pidgate.gateway.recording.topology import Topology
from pidgate.gateway.recording.usage import IdUsage, UsageTable
from pidgate.quota.producer_ids import GaveUp
from pidgate.quota.settings import Quotas

if TYPE_CHECKING:
    from pidgate.gateway.recording.connection_recorder import ConnectionRecorder

Sink = Callable[[str, bytes], None]
"""Takes a record's key and the event; neither waits nor raises."""

LONGEST_USAGE_MS: Final = 15 * 60_000
"""What live ids do is told at least this often: a slice of a day's memory is six hours long."""
TOLD_PER_TICK: Final = 1_000
"""Of what leaves at the end of a slice: about 10 ms a second."""
BETWEEN_FAILURES_MS: Final = 10_000
MOST_ERROR_COUNTS: Final = 20_000
"""(connection, id, error code) that are counted at one time."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who tells: the same in every event of a process."""

    gateway_id: str
    incarnation: str
    worker: int = 0


@dataclass(frozen=True, slots=True)
class Clocks:
    """`now_ms` is the one that decisions use (monotonic), `wall_ms` counts from 1970."""

    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """`redact`: envelope fields that leave as hashes. `sampled`: at most ten refusals of a user in a second."""

    redact: tuple[str, ...] = ()
    sampled: bool = False


class Recorder:
    """Everything that is told, goes through `tell`.

    `cluster`: its name until the brokers tell its id. `applied_offsets`: what was applied of the events topic, by
    partition. `heard`: when, since it was asked last. `on_failure` is told what went wrong in here, at most once
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
        heard: Callable[[], list[Heard]] = list,
        on_failure: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        self._sink = sink
        self._identity = identity
        self._settings = settings
        self._on_failure = on_failure
        self.now_ms, self.wall_ms = clocks.now_ms, clocks.wall_ms
        self.cluster = cluster
        self.applied_offsets, self.heard = applied_offsets, heard
        self.topic_name: Callable[[bytes], bytes] = bytes
        """The name of a topic that a batch names by id, where it is known; otherwise what it is given."""
        self.quotas = quotas
        self.quota_version = 0
        """Of the quotas in force; a worker is told by the holder of the state."""
        self._provenance: Mapping[str, Provenance] = {}
        self.seq = 0
        """Of the latest event."""
        self.failures = 0
        self._quiet_until_ms = -BETWEEN_FAILURES_MS
        self.connections: set[ConnectionRecorder] = set()
        self.storms = EventSampler()
        self.usage = UsageTable()
        self.topology = Topology()
        self.refused_ids = RefusedIds()
        self.samples = RefusalSamples()
        self.error_counts = 0
        """How many are kept by all connections together."""
        self.uncounted_errors = 0
        """Error codes that came when MOST_ERROR_COUNTS were kept."""
        self._slice = self._slice_of(self.now_ms())

    @property
    def token_units(self) -> int:
        """What a balance is told in: so many units make one token."""
        return self.quotas.producer_ids.window_ms * 1000

    @property
    def is_sampled(self) -> bool:
        """Not every refusal is told."""
        return self._settings.sampled

    def may_count_error(self) -> bool:
        """Whether there is room for one more count; it is taken."""
        if self.error_counts >= MOST_ERROR_COUNTS:
            self.uncounted_errors += 1
            return False
        self.error_counts += 1
        return True

    @property
    def not_told(self) -> int:
        """What happened and could not be told: failures in here, and what there was no room to count."""
        return self.failures + self.uncounted_errors + self.usage.uncounted_requests

    def failed(self, error: Exception) -> None:
        """Something in here went wrong; never raises."""
        self.failures += 1
        try:
            now_ms = self.now_ms()
            if now_ms >= self._quiet_until_ms:
                self._quiet_until_ms = now_ms + BETWEEN_FAILURES_MS
                self._on_failure(error)
        except Exception:  # noqa: BLE001 - there is nobody left to tell
            self.failures += 1

    # ---- telling ---------------------------------------------------------------------------------------

    def stamp(self, now_ms: int) -> dict[str, Any]:
        """The envelope of an event that is about now; `tell` numbers it."""
        identity = self._identity
        return {
            "cluster": self.topology.cluster_id or self.cluster,
            "gateway_id": identity.gateway_id,
            "incarnation": identity.incarnation,
            "worker": identity.worker,
            "seq": 0,
            "wall_time_ms": self.wall_ms(),
            "decision_time_ms": now_ms,
        }

    def tell(self, event: Event) -> None:
        """Number the event and hand it on. A number is used up once the sink has been called, and only then."""
        if self._settings.redact:
            event = redacted(event, self._settings.redact)
        event.seq = self.seq + 1
        value = to_json(event)
        self.seq += 1
        self._sink(key_of(event), value)

    def tell_unless_storm(self, event: Summed, now_ms: int) -> None:
        if self.storms.may_tell(event, now_ms):
            self.tell(event)

    def name_of(self, topic: bytes) -> str:
        """A batch's topic as it stands in events."""
        name = self.topic_name(topic)
        if name[:1] == b"\x00":
            return base64.urlsafe_b64encode(name[1:]).decode("ascii").rstrip("=")
        return name.decode("utf-8", "replace")

    # ---- of the gateway --------------------------------------------------------------------------------

    @guarded
    def lifecycle(
        self,
        phase: LifecyclePhase,
        *,
        text: str = "",
        grace_until_wall_ms: int | None = None,
        restored_ids: int = 0,
        restored_users: int = 0,
        restored_from: RestoredFrom = "nothing",
        clock_ahead_ms: int | None = None,
        workers: int = 1,
    ) -> None:
        quotas = self.quotas
        self.tell(
            LifecycleEvent(
                **self.stamp(self.now_ms()),
                phase=phase,
                mode=quotas.mode.value,
                window_ms=quotas.producer_ids.window_ms,
                remember_ms=quotas.producer_ids.remember_ms,
                grace_until_wall_ms=grace_until_wall_ms,
                restored_ids=restored_ids,
                restored_users=restored_users,
                restored_from=restored_from,
                clock_ahead_ms=clock_ahead_ms,
                text=text,
                workers=workers,
            )
        )

    @guarded
    def quotas_set(
        self, quotas: Quotas, now_ms: int, provenance: Mapping[str, Provenance] | None = None
    ) -> None:
        """These quotas are in force from now on: at start, and at each change. The next quota version begins.

        `now_ms` is the time that the state was given with them, so that a replay refills by the same millisecond.
        """
        self.quotas = quotas
        self.quota_version += 1
        self._provenance = provenance or {}
        self.quotas_told(now_ms)

    @guarded
    @guarded
    def quotas_told(self, now_ms: int) -> None:
        """The quotas in force once more, for those who read the topic of the latest hours only."""
        self.tell(config_event(self.stamp(now_ms), self.quotas, self.quota_version, self._provenance))

    @guarded
    def gave_up(self, gone: list[GaveUp]) -> None:
        """Refused ids that are not waited for any more."""
        for one in gone:
            known = self.refused_ids.ended(one.user, one.producer_id)
            self.tell(
                RefusalOutcomeEvent(
                    **self.stamp(self.now_ms()),
                    user=one.user or "",
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
        self.topology.broker_learnt(node_id, host, port)

    @guarded
    def metadata_passes(self, answer: memoryview, version: int) -> None:
        """A Metadata answer as the broker wrote it, without its size prefix."""
        if self._tells_topology:
            self.topology.offer(answer, version)

    # ---- once a second ---------------------------------------------------------------------------------

    @guarded
    def tick(self) -> None:
        """Once a second: sums of storms, what changed in the cluster, the end of a slice."""
        now_ms = self.now_ms()
        for event in self.storms.sums(now_ms):
            self.tell(event)
        self._tell_topology(now_ms)
        self._tell_usage(now_ms)

    def flush(self, most: int = TOLD_PER_TICK) -> bool:
        """At drain: tell what has been counted so far, at most so many events. Returns whether there is more: call
        it again after a turn of the event loop.
        """
        self._flush(most)
        return bool(self.usage.leaving)

    @guarded
    def _flush(self, most: int) -> None:
        self._end_slice()
        for event in self.storms.all_sums():
            self.tell(event)
        self.tell_leaving(most)

    @property
    def _tells_topology(self) -> bool:
        return self._identity.worker <= 1  # what one worker sees, all see

    def _tell_topology(self, now_ms: int) -> None:
        if not self._tells_topology:
            return
        self.topology.read()
        change = self.topology.change(now_ms)
        if change is not None:
            brokers, topics = change
            self.tell(TopologyEvent(**self.stamp(now_ms), brokers=brokers, topics=topics))

    def _slice_of(self, now_ms: int) -> int:
        return now_ms // min(self.quotas.producer_ids.slice_ms, LONGEST_USAGE_MS)

    def _tell_usage(self, now_ms: int) -> None:
        current = self._slice_of(now_ms)
        if current != self._slice:
            self._slice = current
            self._end_slice()
        self.tell_leaving(TOLD_PER_TICK)

    def _end_slice(self) -> None:
        self.usage.end_slice()
        for connection in self.connections:
            connection.usages.clear()
            connection.tell_errors()

    def tell_leaving(self, most: int) -> None:
        """Tell at most so many of the ids that are not in use any more."""
        leaving = self.usage.leaving
        while leaving and most > 0:
            self.tell_usage_of(leaving.popleft())
            most -= 1

    def tell_usage_of(self, usage: IdUsage) -> None:
        """One id's record, complete."""
        # From one clock to the other: both are asked now, so that a wall clock that was set meanwhile is believed.
        to_wall_ms = self.wall_ms() - self.now_ms()
        about = usage.caller.about()
        about["user"] = usage.user or ""
        if usage.connections > 1:
            about["connection_id"] = None
        self.tell(
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

    def tell_error(
        self, about: dict[str, Any], producer_id: int, code: int, count: int, node_id: int | None
    ) -> None:
        self.tell(
            ProduceErrorEvent(
                **self.stamp(self.now_ms()),
                **about,
                producer_id=producer_id,
                code=code,
                count=count,
                node_id=node_id,
            )
        )
