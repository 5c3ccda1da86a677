"""What keeps the quota's state, as metrics: the events topic, the state directory, the fleet, a cold start's grace."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pidgate.gateway.metrics.families import counter, gauge
from pidgate.gateway.state.manager import QuotaStateManager


class KeeperCollector(Collector):
    """Families of one keeper, put together when somebody asks."""

    def __init__(self, keeper: QuotaStateManager) -> None:
        self._keeper = keeper

    def collect(self) -> Iterator[Metric]:
        keeper = self._keeper
        restored = "1 once what is remembered is restored; until then nothing is refused."
        yield gauge("state_restored", restored, int(keeper.is_restored))
        left = "How long unseen ids are still admitted uncharged after a cold start; 0: no grace."
        yield gauge("grace_left_seconds", left, keeper.grace_left_ms / 1000)
        memory = "Memory of the filters of remembered ids, all users."
        yield gauge("producer_ids_filter_bytes", memory, keeper.state.filter_bytes)
        overfull = "Ids put into filters beyond what max_live_ids allows: false positives may rise."
        yield counter("producer_ids_overfull_inserts", overfull, keeper.state.overfull_inserts)
        yield from self._topic()
        yield from self._directory()

    def _topic(self) -> Iterator[Metric]:
        keeper = self._keeper
        publisher, follower = keeper.publisher, keeper.follower
        if publisher is None or follower is None:
            return
        connected = {"write": int(publisher.is_connected), "read": int(follower.is_connected)}
        yield gauge("events_topic_connected", "1 while the events topic works.", connected, "direction")
        yield counter("events_published", "Events that the brokers acknowledged.", publisher.published)
        dropped = "Events given up because the topic was slow or gone for long: their seq is missing there."
        yield counter("events_dropped", dropped, publisher.dropped)
        yield gauge("events_buffered", "Events not acknowledged yet.", publisher.buffered)
        yield gauge("events_buffered_bytes", "The same in bytes.", publisher.buffered_bytes)
        yield counter("events_followed", "Records of the topic that were read.", follower.followed)
        unreadable = "Events of the topic that could not be read: another version, or not a gateway's."
        yield counter("events_unreadable", unreadable, keeper.unreadable_events)
        yield gauge("fleet_members", "Other gateways that are there.", len(keeper.fleet))

    def _directory(self) -> Iterator[Metric]:
        directory = self._keeper.state_dir
        if directory is None:
            return
        yield counter("state_saves", "Snapshots taken.", directory.saves)
        yield counter("state_save_failures", "Snapshots that could not be written.", directory.save_failures)
        yield counter("state_dropped", "Decisions that went into no journal.", directory.dropped)
        yield gauge(
            "state_journal_bytes", "What a restart reads beside the snapshot.", directory.journal_bytes
        )
        yield gauge("state_snapshot_bytes", "Size of the newest snapshot.", directory.snapshot_bytes)
