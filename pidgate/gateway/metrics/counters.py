"""Plain counters of the hot path: no locks, no library. PURE."""

from bisect import bisect_left
from collections import Counter
from typing import Final

from pidgate.client_faults import CLIENT_FAULTS
from pidgate.protocol.topic_refusals import GUARDED
from pidgate.protocol.versions import SPOKEN
from pidgate.quota.decisions import REFUSALS

API_KEYS: Final = 128
"""Every API key of Kafka (92 in 4.3) and a reserve; larger ones are never forwarded."""


LATENESS_BOUNDS_S: Final[tuple[float, ...]] = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper bounds of the buckets of the event loop's lateness; one more bucket holds larger values."""
WORK_BOUNDS_S: Final[tuple[float, ...]] = (
    0.00001,
    0.00002,
    0.00005,
    0.0001,
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.05,
)
"""Of decisions and forwarding."""
WAIT_BOUNDS_S: Final[tuple[float, ...]] = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 600.0)
"""120 s is Java's delivery timeout."""
BROKER_BOUNDS_S: Final[tuple[float, ...]] = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

GUARDED_APIS: Final = tuple(sorted(SPOKEN[key].name for key in GUARDED))
INIT_REFUSED: Final = "init_producer_id"
"""The reason label of refused InitProducerId requests."""


CLOSE_CAUSES: Final = (
    "acks0_refused", "broker", "client", "drain", "error", "gateway_topic", "idle", "limit", "login", "moved",
    "protocol", "quota", "reset", "session", "unauthenticated", "unreachable", "upstream"
)  # fmt: skip
UPSTREAM_CAUSES: Final = (
    "closed", "login", "open_files", "protocol", "refused", "reset", "resolve", "timeout", "tls", "unreachable"
)  # fmt: skip
DELAYS: Final = ("all", "user")
"""Pauses in accepting, and connections delayed after their login."""
CLOSING_LIMITS: Final = ("address", "handshake", "silent", "user")

NAMES: Final = (
    "broker_answer_s", "broker_times", "broker_up", "buffered_bytes", "bytes_from_brokers", "bytes_from_clients",
    "bytes_to_brokers", "bytes_to_clients", "client_faults", "connections_closed", "connections_delayed",
    "connections_limited", "connections_open", "connections_total", "decision_times", "events_unrecorded",
    "forward_times", "frames_malformed", "frames_too_large", "gateway_topic_refused", "held_times",
    "lane_connections", "lane_requests", "lanes", "late_busy", "late_without_core", "muted_connections",
    "open_files_exhausted", "quota_failed_open", "reads_paused", "requests", "requests_refused", "stalled_seconds",
    "stalls", "tasks", "throttle_times", "upstream_failures"
)  # fmt: skip
"""Names of all counters. Not Counters.__slots__, which a compiled class does not have."""


class Times:
    """A histogram of durations."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        """By bucket; the last one holds what is above all bounds."""
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds


class Counters:
    """Counts of one process since its start: totals, except those documented as levels."""

    __slots__ = NAMES

    def __init__(self) -> None:
        self.requests = [0] * API_KEYS
        """By api key."""
        # A counter by label exists from the start: Prometheus sees no increase in a first value.
        self.requests_refused = Counter[str](dict.fromkeys((INIT_REFUSED, *REFUSALS), 0))
        """Produce requests answered with a refusal, by reason; INIT_REFUSED for an InitProducerId."""
        self.gateway_topic_refused = Counter[str](dict.fromkeys(GUARDED_APIS, 0))
        """Requests that named a topic of the gateway's own, by the name of the API."""
        self.client_faults = Counter({fault.key: 0 for fault in CLIENT_FAULTS})
        """Connections of clients with a fault of client_faults.py, by its key."""
        self.connections_total = 0
        self.connections_open = 0
        """A level."""
        self.connections_closed = Counter(dict.fromkeys(CLOSE_CAUSES, 0))
        self.connections_delayed = Counter(dict.fromkeys(DELAYS, 0))
        self.connections_limited = Counter(dict.fromkeys(CLOSING_LIMITS, 0))
        """Closed above a limit; `silent`: also those that did not log in."""
        self.upstream_failures = Counter(dict.fromkeys(UPSTREAM_CAUSES, 0))
        self.broker_answer_s: dict[int, float] = {}
        """By node id: how long its last answer to the gateway took."""
        self.broker_up: dict[int, int] = {}
        """By node id: 1 while the broker answers."""
        self.events_unrecorded = 0
        """Occurrences without an event: failures, and no room to count. Alarm."""
        self.bytes_from_clients = 0
        self.bytes_to_clients = 0
        self.bytes_from_brokers = 0
        self.bytes_to_brokers = 0
        self.frames_malformed = 0
        self.frames_too_large = 0
        """Of `frames_malformed`: those above limits.frame, or above the limit of a login."""
        self.muted_connections = 0
        """A level: channels muted at this moment (KIP-219)."""
        self.lanes = 0
        """A level: threads of lanes."""
        self.lane_connections = 0
        """A level: connections that a lane carries at this moment."""
        self.lane_requests = 0
        """Of `requests`: those that passed in lanes."""
        self.buffered_bytes = 0
        """A level: frames held in memory over all connections."""
        self.reads_paused = 0
        self.open_files_exhausted = 0
        """Seconds without a free descriptor."""
        self.tasks = 0
        """A level: tasks of the event loop."""
        self.late_busy = Times(LATENESS_BOUNDS_S)
        """Lateness of the event loop while busy."""
        self.late_without_core = Times(LATENESS_BOUNDS_S)
        """Lateness of the event loop while runnable without a core."""
        # A lane observes none of these: it reads no clock for a request.
        self.decision_times = Times(WORK_BOUNDS_S)
        """Of a judgement of a Produce that does not repeat the one before."""
        self.forward_times = Times(WORK_BOUNDS_S)
        """From a read of whole requests to the end of their handling."""
        self.held_times = Times(WAIT_BOUNDS_S)
        """How long the first of held requests waited here."""
        self.throttle_times = Times(WAIT_BOUNDS_S)
        """Mutes, as long as they were imposed."""
        self.broker_times = Times(BROKER_BOUNDS_S)
        """From a request on a connection with nothing in flight to the first bytes of its answer."""
        self.stalls = 0
        """Timers later than lateness.STALL_S."""
        self.stalled_seconds = 0.0
        self.quota_failed_open = 0
        """Produce requests let through because the quota code itself failed."""
