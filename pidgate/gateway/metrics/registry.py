"""The gateway's Prometheus metrics, built at each scrape from counters and snapshots of users.

None of this code runs on the request path. Metrics per user have KIP-936's names (group ProducerIds, tag
user).
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.metrics.families import LABELLED_ROWS, counter, gauge, histogram
from pidgate.gateway.metrics.turns import SeesManyRows
from pidgate.gateway.metrics.users import UserFamilies, UserRows
from pidgate.protocol.versions import SPOKEN
from pidgate.quota.counters import UserSnapshot
from pidgate.quota.decisions import KEEPS_ORDER

__all__ = ["Counters", "GatewayCollector", "MetricsRegistry"]


class GatewayCollector(Collector, SeesManyRows[UserRows]):
    """Metrics of counters and users. `users` is called at each scrape."""

    def __init__(
        self,
        counters: Counters,
        users: Callable[[], Iterable[UserSnapshot]],
        is_ready: Callable[[], bool],
        version: str,
        labelled_users: int = LABELLED_ROWS,
    ) -> None:
        self._counters = counters
        self._users = users
        self._is_ready = is_ready
        self._version = version
        self._user_families = UserFamilies(labelled_users)

    def _begin(self) -> tuple[UserRows, Iterator[None]]:
        rows = self._user_families.rows()
        return rows, map(rows.add, self._users())

    def collect(self) -> Iterator[Metric]:
        yield gauge("build_info", "The running version; always 1.", {self._version: 1}, "version")
        yield gauge(
            "ready",
            "1 while a broker answers, the state is restored and the gateway does not drain.",
            int(self._is_ready()),
        )
        yield from self._requests()
        yield from self._connections()
        yield from self._flow()
        yield from self._times()
        yield from self._user_families.collect(self._rows())

    def _requests(self) -> Iterator[Metric]:
        counts = enumerate(self._counters.requests)
        by_api = {
            SPOKEN[key].name if key in SPOKEN else str(key): count
            for key, count in counts
            if count or key in SPOKEN
        }
        yield counter("requests", "Requests received from clients.", by_api, "api")
        refused, in_order = dict(self._counters.requests_refused), dict[str, int]()
        for reason in KEEPS_ORDER & refused.keys():
            in_order[reason] = refused.pop(reason)
        yield counter("requests_refused", "Requests that the quota of new ids refused.", refused, "reason")
        kept = "Requests refused to keep batches in order, whatever the quota."
        yield counter("requests_kept_in_order", kept, in_order, "reason")
        own = self._counters.gateway_topic_refused
        yield counter(
            "gateway_topic_refused", "Requests that named a topic of the gateway's own.", own, "api"
        )
        failed = self._counters.quota_failed_open
        yield counter("quota_failed_open", "Requests admitted because the quota code failed.", failed)

        lost = "Occurrences without an event: a defect, or no room to count."
        yield counter("events_not_told", lost, self._counters.events_unrecorded)

    def _connections(self) -> Iterator[Metric]:
        counters = self._counters
        yield counter("connections", "Client connections accepted.", counters.connections_total)
        yield gauge("connections", "Client connections open now.", counters.connections_open)
        faults = "Connections of clients with a fault that a refusal or throttle triggers (docs/reference/clients.md)."
        yield counter("client_faults", faults, counters.client_faults, "fault")
        closed, failures = counters.connections_closed, counters.upstream_failures
        yield counter("connections_closed", "Client connections closed.", closed, "cause")
        delayed, limited = counters.connections_delayed, counters.connections_limited
        yield counter(
            "connections_delayed", "Pauses in accepting, and delays after a login.", delayed, "limit"
        )
        yield counter("connections_limited", "Connections closed above a limit.", limited, "limit")
        yield counter("upstream_failures", "Broker connections that failed.", failures, "cause")
        up = {str(node_id): value for node_id, value in counters.broker_up.items()}
        yield gauge("broker_up", "1 while the broker answers, asked every 5 s.", up, "node_id")
        answer_s = {str(node_id): value for node_id, value in counters.broker_answer_s.items()}
        answered = "How long the broker's last answer to the gateway's own question took."
        yield gauge("broker_answer_seconds", answered, answer_s, "node_id")
        muted = counters.muted_connections
        yield gauge("connections_muted", "Client connections muted after a refusal (KIP-219).", muted)
        yield gauge("lanes", "Threads that carry what needs no decision.", counters.lanes)
        yield gauge(
            "lane_connections", "Client connections that a lane carries now.", counters.lane_connections
        )
        yield counter("lane_requests", "Requests that passed in lanes.", counters.lane_requests)
        yield from self._frames()

    def _frames(self) -> Iterator[Metric]:
        counters = self._counters
        yield counter("frames_malformed", "Frames that broke the protocol.", counters.frames_malformed)
        too_large = "Of these, frames above limits.frame, or above the limit of a login."
        yield counter("frames_too_large", too_large, counters.frames_too_large)

    def _flow(self) -> Iterator[Metric]:
        counters = self._counters
        by_direction = {
            "from_clients": counters.bytes_from_clients,
            "to_clients": counters.bytes_to_clients,
            "from_brokers": counters.bytes_from_brokers,
            "to_brokers": counters.bytes_to_brokers,
        }
        yield counter("bytes", "Bytes moved.", by_direction, "direction")
        yield gauge("buffered_bytes", "Frames held in memory, all connections.", counters.buffered_bytes)
        yield counter("reads_paused", "Times reading from a peer was paused.", counters.reads_paused)
        late = "Lateness of a timer that runs ten times a second."
        by_cause = {"busy": counters.late_busy, "no_core": counters.late_without_core}
        yield histogram("event_loop_lateness_seconds", late, by_cause, "cause")
        yield counter(
            "event_loop_stalls", "Times the event loop was late by more than 0.1 s.", counters.stalls
        )
        yield counter(
            "event_loop_stalled_seconds",
            "Sum of the delays of the event loop above 0.1 s.",
            counters.stalled_seconds,
        )
        yield gauge("event_loop_tasks", "Tasks of the event loop.", counters.tasks)
        exhausted = "Seconds without a free descriptor: connections are closed without an answer."
        yield counter("open_files_exhausted", exhausted, counters.open_files_exhausted)

    def _times(self) -> Iterator[Metric]:
        counters = self._counters
        decided = "Time of the quota's judgement of a Produce that does not repeat the one before."
        yield histogram("decision_seconds", decided, counters.decision_times)
        forwarded = (
            "Time from a read of whole requests to the end of their handling: decided, and written to the broker, "
            "answered or held. Without requests in lanes, and without the event loop's lateness before the read."
        )
        yield histogram("forward_seconds", forwarded, counters.forward_times)
        waited = (
            "held: how long the first of held requests waited here, when it goes on; throttle: mutes of clients, as "
            "long as they were imposed."
        )
        by_kind = {"held": counters.held_times, "throttle": counters.throttle_times}
        yield histogram("wait_seconds", waited, by_kind, "kind")
        answered = (
            "Time from writing a request to a broker to the first bytes of its answer, where no other was in flight. "
            "Without long polls, and without requests in lanes."
        )
        yield histogram("broker_seconds", answered, counters.broker_times)


class MetricsRegistry(CollectorRegistry):
    """A registry of these collectors. `refresh` before each `collect`."""

    def __init__(self, *collectors: Collector, on_refresh: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._own = collectors
        self._on_refresh = on_refresh
        for collector in collectors:
            self.register(collector)

    async def refresh(self) -> None:
        """Take the next values of users and buckets, in turns with the traffic."""
        self._on_refresh()
        for collector in self._own:
            if isinstance(collector, SeesManyRows):
                await collector.collect_rows()
