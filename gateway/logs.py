"""The only place that configures structlog, and the names of all log events.

An event is a constant with fixed keys: whoever searches logs relies on both. Never logged: tokens, passwords,
record contents. Per frame nothing above debug. `tests/unit/gateway/test_logs.py` holds every call to KEYS.
"""

import logging
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, Final, Literal, TextIO

import structlog

Format = Literal["json", "console"]
Level = Literal["debug", "info", "warning", "error"]


class Event(StrEnum):
    """Names of log events: `log.info(Event.CONNECTION_CLOSED, cause=..., ...)`."""

    GATEWAY_STARTING = "gateway_starting"
    LISTENING = "listening"
    CONFIG_WARNING = "config_warning"
    CONFIG_RELOADED = "config_reloaded"
    CONFIG_PROBLEM = "config_problem"
    CONFIG_REFUSED = "config_refused"
    CONFIG_RESTART_NEEDED = "config_restart_needed"
    NOTHING_TO_RELOAD = "nothing_to_reload"
    ENFORCING_BEGINS = "enforcing_begins"
    CLUSTER_REACHED = "cluster_reached"
    CLUSTER_NOT_REACHED = "cluster_not_reached"
    NODE_LEARNT = "node_learnt"
    NODE_WITHOUT_PORT = "node_without_port"
    CONNECTION_OPENED = "connection_opened"
    CONNECTION_CLOSED = "connection_closed"
    UPSTREAM_FAILED = "upstream_failed"
    PRODUCER_ID_REFUSED = "producer_id_refused"
    INIT_PRODUCER_ID_REFUSED = "init_producer_id_refused"
    GATEWAY_TOPIC_REFUSED = "own_topic_refused"
    QUOTA_FAILED_OPEN = "quota_failed_open"
    EVENT_LOOP_STALLED = "event_loop_stalled"
    STATE_LOADED = "state_loaded"
    STATE_FILE_SET_ASIDE = "state_file_set_aside"
    STATE_DIR_UNUSABLE = "state_dir_unusable"
    STATE_SAVED = "state_saved"
    STATE_NOT_SAVED = "state_not_saved"
    STATE_JOURNAL_FAILED = "state_journal_failed"
    STATE_JOURNAL_RECOVERED = "state_journal_recovered"
    HOLDER_CONNECTED = "holder_connected"
    HOLDER_LOST = "holder_lost"
    WORKER_CONNECTED = "worker_connected"
    WORKER_LOST = "worker_lost"
    BYTE_CELLS_MISSING = "byte_cells_missing"
    PROCESS_STARTED = "process_started"
    PROCESS_ENDED = "process_ended"
    STATE_RESTORED = "state_restored"
    STATE_NOT_RESTORED = "state_not_restored"
    GRACE_BEGAN = "grace_began"
    GRACE_ENDED_EARLY = "grace_ended_early"
    EVENTS_TOPIC_CREATED = "events_topic_created"
    EVENTS_TOPIC_UNSAFE = "events_topic_unsafe"
    EVENTS_TOPIC_UNAVAILABLE = "events_topic_unavailable"
    EVENTS_TOPIC_AVAILABLE = "events_topic_available"
    EVENTS_DROPPED = "events_dropped"
    EVENTS_OFFSETS_GONE = "events_offsets_gone"
    QUOTAS_CHANGED = "quotas_changed"
    QUOTA_CHANGE_ENDED = "quota_change_ended"
    QUOTA_CHANGE_NOT_KEPT = "quota_change_not_kept"
    QUOTA_COMMAND = "quota_command"
    QUOTAS_TOPIC_READ = "quotas_topic_read"
    QUOTAS_TOPIC_UNREADABLE_RECORDS = "quotas_topic_unreadable_records"
    QUOTAS_TOPIC_CREATED = "quotas_topic_created"
    QUOTAS_TOPIC_UNSAFE = "quotas_topic_unsafe"
    QUOTAS_TOPIC_UNAVAILABLE = "quotas_topic_unavailable"
    QUOTAS_TOPIC_AVAILABLE = "quotas_topic_available"
    FLEET_MEMBER_SEEN = "fleet_member_seen"
    FLEET_MEMBER_GONE = "fleet_member_gone"
    FLEET_MEMBER_DIFFERS = "fleet_member_differs"
    DRAINING = "draining"
    STOPPED = "stopped"
    UNEXPECTED_ERROR = "unexpected_error"


_CONNECTION: Final = frozenset({"connection_id", "listener", "address", "user", "client_id", "node_id"})
_TOPIC_CREATED: Final = frozenset({"topic", "partitions", "replication_factor", "wanted"})
_TOPIC_UNSAFE: Final = frozenset({"topic", "setting", "value", "reason", "remedy"})
_TOPIC_AVAILABLE: Final = frozenset({"topic", "doing", "waited_ms", "buffered", "dropped"})
_TOPIC_UNAVAILABLE: Final = frozenset(
    {"topic", "doing", "cause", "remedy", "retry_ms", "buffered", "dropped"}
)
_QUOTA_CHANGE: Final = frozenset({"setting", "user", "temporary"})

KEYS: Final[dict[Event, frozenset[str]]] = {
    Event.GATEWAY_STARTING: frozenset(
        {"version", "compiled", "pid", "config", "mode", "bootstrap_servers", "open_files"}
    ),
    Event.LISTENING: frozenset({"listener", "bind", "node_id", "advertised"}),
    Event.CONFIG_WARNING: frozenset({"where", "key", "text"}),
    Event.CONFIG_RELOADED: frozenset({"config", "cause", "changed", "changes", "restart_needed", "seconds"}),
    Event.CONFIG_PROBLEM: frozenset({"where", "key", "text"}),
    Event.CONFIG_REFUSED: frozenset({"config", "cause", "problems", "remedy"}),
    Event.CONFIG_RESTART_NEEDED: frozenset({"key", "running", "in_file", "remedy"}),
    Event.NOTHING_TO_RELOAD: frozenset({"reason", "remedy"}),
    Event.ENFORCING_BEGINS: frozenset({"user", "users", "would_refuse", "remedy"}),
    Event.CLUSTER_REACHED: frozenset({"server", "node_ids", "waited_ms"}),
    Event.CLUSTER_NOT_REACHED: frozenset({"server", "cause", "retry_ms"}),
    Event.NODE_LEARNT: frozenset({"node_id", "server"}),
    Event.NODE_WITHOUT_PORT: frozenset({"node_id", "listener", "remedy"}),
    Event.CONNECTION_OPENED: _CONNECTION | {"server"},
    Event.CONNECTION_CLOSED: _CONNECTION
    | {"cause", "reason", "suppressed_count", "seconds", "requests", "bytes_in", "bytes_out"},
    Event.UPSTREAM_FAILED: _CONNECTION | {"server", "cause", "in_flight"},
    Event.PRODUCER_ID_REFUSED: _CONNECTION
    | {"producer_id", "reason", "throttle_time_ms", "correlation_id", "suppressed_count"},
    Event.INIT_PRODUCER_ID_REFUSED: _CONNECTION | {"reason", "throttle_time_ms", "suppressed_count"},
    Event.GATEWAY_TOPIC_REFUSED: _CONNECTION | {"api", "suppressed_count"},
    Event.QUOTA_FAILED_OPEN: _CONNECTION | {"reason", "suppressed_count", "exc_info"},
    Event.EVENT_LOOP_STALLED: frozenset({"stalled_ms"}),
    Event.STATE_LOADED: frozenset({"path", "snapshot", "users", "written_wall_ms", "seconds"}),
    Event.STATE_FILE_SET_ASIDE: frozenset({"path", "reason", "kept_as"}),
    Event.STATE_DIR_UNUSABLE: frozenset({"path", "cause", "remedy"}),
    Event.STATE_SAVED: frozenset({"path", "users", "size_bytes", "seconds"}),
    Event.STATE_NOT_SAVED: frozenset({"path", "cause", "failures", "remedy"}),
    Event.STATE_JOURNAL_FAILED: frozenset({"path", "cause", "buffered_bytes", "remedy"}),
    Event.STATE_JOURNAL_RECOVERED: frozenset({"path", "dropped"}),
    Event.HOLDER_CONNECTED: frozenset({"worker"}),
    Event.HOLDER_LOST: frozenset({"worker", "reason"}),
    Event.WORKER_CONNECTED: frozenset({"worker", "pid"}),
    Event.WORKER_LOST: frozenset({"worker", "pid"}),
    Event.BYTE_CELLS_MISSING: frozenset({"worker", "reason"}),
    Event.PROCESS_STARTED: frozenset({"role", "pid"}),
    Event.PROCESS_ENDED: frozenset({"role", "pid", "exit_code", "restart_in_ms"}),
    Event.STATE_RESTORED: frozenset({"users", "restored_from", "waited_ms", "unreadable"}),
    Event.STATE_NOT_RESTORED: frozenset({"reason", "remedy"}),
    Event.GRACE_BEGAN: frozenset({"reason", "grace_ms"}),
    Event.GRACE_ENDED_EARLY: frozenset({"reason"}),
    Event.EVENTS_TOPIC_CREATED: _TOPIC_CREATED,
    Event.EVENTS_TOPIC_UNSAFE: _TOPIC_UNSAFE,
    Event.EVENTS_TOPIC_UNAVAILABLE: _TOPIC_UNAVAILABLE,
    Event.EVENTS_TOPIC_AVAILABLE: _TOPIC_AVAILABLE,
    Event.EVENTS_DROPPED: frozenset({"topic", "dropped", "dropped_total", "reason"}),
    Event.EVENTS_OFFSETS_GONE: frozenset({"topic", "partition", "offset", "earliest"}),
    Event.QUOTAS_CHANGED: _QUOTA_CHANGE
    | {"action", "value", "before", "set_by", "set_through", "set_wall_ms", "until_wall_ms", "note"},
    Event.QUOTA_CHANGE_ENDED: _QUOTA_CHANGE | {"value", "before", "set_by", "set_through"},
    Event.QUOTA_CHANGE_NOT_KEPT: _QUOTA_CHANGE | {"kept", "cause", "remedy"},
    Event.QUOTA_COMMAND: frozenset({"deed", "user", "producer_id", "set_by", "set_through"}),
    Event.QUOTAS_TOPIC_READ: frozenset({"topic", "changes", "unreadable", "waited_ms"}),
    Event.QUOTAS_TOPIC_UNREADABLE_RECORDS: frozenset({"topic", "unreadable", "reason"}),
    Event.QUOTAS_TOPIC_CREATED: _TOPIC_CREATED,
    Event.QUOTAS_TOPIC_UNSAFE: _TOPIC_UNSAFE,
    Event.QUOTAS_TOPIC_UNAVAILABLE: _TOPIC_UNAVAILABLE,
    Event.QUOTAS_TOPIC_AVAILABLE: _TOPIC_AVAILABLE,
    Event.FLEET_MEMBER_SEEN: frozenset({"gateway_id", "incarnation"}),
    Event.FLEET_MEMBER_GONE: frozenset({"gateway_id", "incarnation", "reason"}),
    Event.FLEET_MEMBER_DIFFERS: frozenset(
        {"gateway_id", "incarnation", "setting", "ours", "theirs", "remedy"}
    ),
    Event.DRAINING: frozenset({"cause", "connections", "drain_timeout_ms"}),
    Event.STOPPED: frozenset({"connections_cut", "seconds"}),
    Event.UNEXPECTED_ERROR: _CONNECTION | {"reason", "exc_info"},
}


def configure(log_format: Format, level: Level, stream: TextIO | None = None) -> None:
    """Send everything, the standard library's loggers included, to `stream` (stderr) in one format."""
    output = sys.stderr if stream is None else stream
    shared = _shared_processors()
    renderer = _renderer(log_format, output)
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries (asyncio, aiohttp) log their own workings at info.
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))


def _shared_processors() -> list[Any]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _in_reading_order,
    ]


def _in_reading_order(
    _logger: object, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Put time, level and event first; people read JSON lines too."""
    first = {key: line.pop(key) for key in ("timestamp", "level", "event") if key in line}
    return {**first, **line}


def _renderer(log_format: Format, output: TextIO) -> list[Any]:
    if log_format == "json":
        # default=str: a log line must never raise because of what it holds.
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
        ]
    # Plain tracebacks: the coloured ones print local variables, and those may hold a secret.
    return [
        structlog.dev.ConsoleRenderer(
            colors=output.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=24
        )
    ]


def logger() -> Any:
    """Return a logger for the gateway's own events; the first argument of its methods is an Event."""
    return structlog.get_logger()
