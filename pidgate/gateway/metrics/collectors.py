"""Metrics of the quota state, the quotas in force and the configuration file, read from their owners at each
scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pidgate.gateway.metrics.families import counter, gauge
from pidgate.gateway.quotas.reloading import Reloading
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.recording.id_blocks import IdBlocks
from pidgate.gateway.state.manager import QuotaStateManager
from pidgate.quota.fuse import is_by_fuse


class StateCollector(Collector):
    """Metrics of the state, the events topic, the state directory, the fleet and a cold start's grace."""

    def __init__(self, manager: QuotaStateManager, id_blocks: IdBlocks, now_ms: Callable[[], int]) -> None:
        self._manager = manager
        self._id_blocks = id_blocks
        self._now_ms = now_ms

    def collect(self) -> Iterator[Metric]:
        manager = self._manager
        restored = "1 once the state is restored; until then nothing is refused."
        yield gauge("state_restored", restored, int(manager.is_restored))
        left = "Time left in which unseen ids are admitted uncharged after a cold start; 0: no grace."
        yield gauge("grace_left_seconds", left, manager.grace_left_ms / 1000)
        memory = "Memory of the filters of remembered ids, all users."
        table = manager.state.table if manager.is_restored else None
        yield gauge("producer_ids_filter_bytes", memory, table.filter_bytes if table else 0)
        overfull = "Ids added to filters above max_live_ids: false positives may rise."
        yield counter("producer_ids_overfull_inserts", overfull, table.overfull_inserts if table else 0)
        states = "Producer states (pairs of id and partition) forecast at each broker."
        found = manager.state.states.by_broker(self._now_ms())
        yield gauge("producer_states", states, {str(one.node_id): one.count for one in found}, "node_id")
        blocks = "Blocks of 1,000 producer ids that the cluster has handed out, by the highest id given here."
        yield gauge("producer_id_blocks", blocks, self._id_blocks.newest + 1)
        not_noted = "Ids that passed before the state was restored, too many to be noted: new again."
        yield counter("producer_ids_not_noted", not_noted, manager.state.noted.not_noted)
        yield from self._topic()
        yield from self._directory()

    def _topic(self) -> Iterator[Metric]:
        publisher, follower = self._manager.events.publisher, self._manager.events.follower
        if publisher is None or follower is None:
            return
        connected = {"write": int(publisher.is_connected), "read": int(follower.is_connected)}
        yield gauge("events_topic_connected", "1 while the events topic works.", connected, "direction")
        yield counter("events_published", "Events that the brokers acknowledged.", publisher.published)
        dropped = (
            "Events dropped because the topic was slow or unavailable for long: their seq is missing there."
        )
        yield counter("events_dropped", dropped, publisher.dropped)
        yield gauge("events_buffered", "Events not acknowledged yet.", publisher.buffered)
        yield gauge(
            "events_buffered_bytes", "Bytes of the events not acknowledged yet.", publisher.buffered_bytes
        )
        yield counter("events_followed", "Records of the topic that were read.", follower.followed)
        unreadable = "Events of the topic that could not be read: another version, or not a gateway's."
        yield counter("events_unreadable", unreadable, self._manager.unreadable_events)
        yield gauge("fleet_members", "Other gateways present.", len(self._manager.fleet))
        differences = "Settings in which another gateway was found to differ; the log names them."
        yield counter("fleet_differences", differences, self._manager.fleet.differences)

    def _directory(self) -> Iterator[Metric]:
        directory = self._manager.events.state_dir
        if directory is None:
            return
        yield counter("state_saves", "Snapshots taken.", directory.saves)
        yield counter("state_save_failures", "Snapshots that could not be written.", directory.save_failures)
        yield gauge("state_snapshot_bytes", "Size of the newest snapshot file.", directory.snapshot_bytes)


class QuotaStoreCollector(Collector):
    """Metrics of changes made at run time, and of their distribution to the fleet."""

    def __init__(self, store: QuotaStore) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        store = self._store
        changes = "Changes made at run time and kept, including those overruled by the file."
        yield gauge("quota_changes", changes, len(store.in_force.changes))
        version = "Increases whenever the quotas in force change."
        yield gauge("quotas_version", version, store.in_force.version)
        room = "quotas.fuse; 0: none."
        yield gauge("producer_states_capacity", room, store.in_force.quotas.fuse or 0)
        fused = "Users that the fuse enforces now."
        yield gauge("fuse_enforced_users", fused, sum(map(is_by_fuse, store.in_force.changes)))
        read = "1 once the topic of quotas was read to its end, or when there is none."
        yield gauge("quotas_topic_read", read, int(store.is_read))
        failing = "1 while the topic of quotas cannot be read or written; quotas_topic_unavailable says why."
        yield gauge("quotas_topic_failing", failing, int(bool(store.last_failure)))
        unwritten = "Changes not yet in the topic: they apply at this gateway only."
        yield gauge("quota_changes_unwritten", unwritten, store.unwritten)
        unreadable = "Records of the topic that could not be read: another version, or not a gateway's."
        yield counter("quotas_topic_unreadable", unreadable, store.unreadable_records)


class ReloadCollector(Collector):
    """Outcome of the configuration file's reloads; no families without a file."""

    def __init__(self, reloading: Reloading) -> None:
        self._reloading = reloading

    def collect(self) -> Iterator[Metric]:
        reloading = self._reloading
        if reloading.file is None:
            return
        good = "1 if the configuration file was applied at its last read; 0: refused, the old settings apply."
        yield gauge("config_last_reload_successful", good, int(reloading.is_last_good))
        when = "Time of the last successful read of the configuration file, since 1970."
        yield gauge("config_last_reload_timestamp_seconds", when, reloading.last_good_wall_ms / 1000)
        results = {result: reloading.results[result] for result in ("applied", "unchanged", "refused")}
        reads = "Times the configuration file was read again while the gateway runs."
        yield counter("config_reloads", reads, results, "result")
        waiting = "Settings of the file that wait for a restart; config_restart_needed in the log names them."
        yield gauge("config_restart_needed", waiting, len(reloading.restart_needed))
