"""Configuration of structlog, done here only, and the names of all log events.

An event is a constant with fixed keys, because log searches rely on both. Never logged: tokens, passwords,
record contents. Per frame nothing above debug. A test (test_logs.py) checks every call against the keys of
its event.
"""

import asyncio
import io
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from enum import StrEnum
from typing import Any, Final, Literal, Self, TextIO, cast

import structlog

from pidgate.gateway.clock import monotonic_s

Format = Literal["json", "console"]
Level = Literal["debug", "info", "warning", "error"]


_CONNECTION: Final = "connection_id listener address user client_id node_id "
_QUOTA_CHANGE: Final = "setting user temporary "
_TOPIC_CREATED: Final = "topic partitions replication_factor wanted"
_TOPIC_UNSAFE: Final = "topic setting value reason remedy"
_TOPIC_UNAVAILABLE: Final = "topic doing cause remedy retry_ms buffered dropped"
_TOPIC_AVAILABLE: Final = "topic doing waited_ms buffered dropped"


class Event(StrEnum):
    """Names of log events, each with the keys it may have and what it means to an operator.

    `log.info(Event.CONNECTION_CLOSED, cause=..., ...)`. docs/reference/logs.md is generated from here.
    """

    keys: frozenset[str]
    means: str

    def __new__(cls, name: str, keys: str, means: str) -> Self:
        event = str.__new__(cls, name)
        event._value_ = name
        event.keys = frozenset(keys.split())
        event.means = means
        return event

    GATEWAY_STARTING = (
        "gateway_starting",
        "version compiled lanes pid config mode bootstrap_servers open_files",
        "The process starts: its version, and which file it read.",
    )
    LISTENING = (
        "listening",
        "listener bind tls node_id advertised",
        "Clients can connect at this address.",
    )
    CONFIG_WARNING = (
        "config_warning",
        "where key text",
        "A setting is allowed, but is probably not what was meant; the text says why.",
    )
    ACCEPTING_PAUSED = (
        "accepting_paused",
        "connections pause_ms",
        "New connections wait: there are as many as allowed, or no descriptor is left.",
    )
    ACCEPTING_FAILED = (
        "accepting_failed",
        "reason retry_ms suppressed_count",
        "The system could not accept a connection; it is tried again.",
    )
    ADMIN_TOKEN_NOT_KEPT = (
        "admin_token_not_kept",
        "path reason",
        "The token for commands on this machine could not be written. Give `admin.token_file`, or correct the folder.",
    )
    ADMIN_REQUEST_UNREADABLE = (
        "admin_request_unreadable",
        "address cause suppressed_count",
        "The admin address received bytes that are no HTTP request.",
    )
    CONFIG_RELOADED = (
        "config_reloaded",
        "config cause changed changes restart_needed seconds",
        "The file was read again, and what changed is in force.",
    )
    CONFIG_PROBLEM = (
        "config_problem",
        "where key text",
        "One problem of a file that was refused, with its line.",
    )
    CONFIG_REFUSED = (
        "config_refused",
        "config cause problems remedy",
        "The changed file is not used; all settings stay as they were. Correct the file.",
    )
    CONFIG_RESTART_NEEDED = (
        "config_restart_needed",
        "key running in_file remedy",
        "A key has changed that only a restart takes up.",
    )
    TLS_RENEWED = (
        "tls_renewed",
        "key",
        "A certificate or key was read again; new connections use it.",
    )
    TLS_NOT_RENEWED = (
        "tls_not_renewed",
        "key reason remedy",
        "A changed certificate or key cannot be used; the old one stays in use.",
    )
    NOTHING_TO_RELOAD = (
        "nothing_to_reload",
        "reason remedy",
        "A reload was asked for, but no file was given at the start.",
    )
    ENFORCING_BEGINS = (
        "enforcing_begins",
        "user users would_refuse remedy",
        "A quota is enforced from now on for users that are above it: their new ids will be refused.",
    )
    CLUSTER_REACHED = (
        "cluster_reached",
        "server node_ids waited_ms",
        "A broker answers.",
    )
    CLUSTER_NOT_REACHED = (
        "cluster_not_reached",
        "cause remedy attempts silent_s",
        "No broker answers: clients cannot do anything. Told at the 1st, 2nd, 4th, 8th ... try.",
    )
    BROKERS_NOT_LEARNT = (
        "brokers_not_learnt",
        "cause remedy",
        "The gateway's own login failed, so the brokers are not known before a client asks for them.",
    )
    NODE_LEARNT = (
        "node_learnt",
        "node_id server",
        "A broker was learnt from the cluster.",
    )
    NODE_WITHOUT_PORT = (
        "node_without_port",
        "node_id listener remedy",
        "A broker has no port here, so its clients go through the bootstrap port. Add it to `listeners.node_ids`.",
    )
    CONNECTION_OPENED = (
        "connection_opened",
        _CONNECTION + "server",
        "A client has connected.",
    )
    CONNECTION_CLOSED = (
        "connection_closed",
        _CONNECTION + "cause reason suppressed_count seconds requests bytes_in bytes_out",
        "A connection has ended; `cause` is one of those in [limits](limits.md#metrics).",
    )
    UPSTREAM_FAILED = (
        "upstream_failed",
        _CONNECTION + "server cause reason in_flight suppressed_count",
        "A client's broker could not be reached, or went away.",
    )
    TOKEN_OWNER_UNKNOWN = (
        "token_owner_unknown",
        "reason remedy suppressed_count",
        "A delegation token's owner is not known here, so the token's own name is its user.",
    )
    PRODUCER_ID_REFUSED = (
        "producer_id_refused",
        _CONNECTION + "producer_id reason throttle_time_ms correlation_id suppressed_count",
        "A new producer id was over its user's quota and was refused.",
    )
    CLIENT_WITH_FAULT = (
        "client_with_fault",
        _CONNECTION + "software version fault breaks remedy suppressed_count",
        "A client's library is known to break at refusals; told once a day and version.",
    )
    BATCH_KEPT_IN_ORDER = (
        "batch_kept_in_order",
        _CONNECTION + "producer_id reason throttle_time_ms suppressed_count",
        "A batch waits behind a refused one of the same producer. It says nothing about the quota.",
    )
    INIT_PRODUCER_ID_REFUSED = (
        "init_producer_id_refused",
        _CONNECTION + "reason throttle_time_ms suppressed_count",
        "A producer was given no id, because its user is over quota.",
    )
    GATEWAY_TOPIC_REFUSED = (
        "gateway_topic_refused",
        _CONNECTION + "api suppressed_count",
        "A client asked for a topic of the gateway's own, which it may not touch.",
    )
    QUOTA_FAILED_OPEN = (
        "quota_failed_open",
        _CONNECTION + "reason suppressed_count exc_info",
        "A defect in the quota's code: the request passed, up to a ceiling. Report it.",
    )
    OPEN_FILES_EXHAUSTED = (
        "open_files_exhausted",
        "connections remedy suppressed_count",
        "No descriptor is left. Raise the limit, or lower `limits.connections`.",
    )
    EVENT_LOOP_HANGS = (
        "event_loop_hangs",
        "seconds stack remedy",
        "The main thread has done nothing for seconds; `stack` shows where. Report it.",
    )
    EVENT_LOOP_STALLED = (
        "event_loop_stalled",
        "stalled_ms without_core_ms suppressed_count",
        "The main thread was busy, or had no core, for so long.",
    )
    METRICS_EXPORTED = (
        "metrics_exported",
        "samples",
        "An OTLP collector has accepted the metrics, for the first time or again.",
    )
    METRICS_NOT_EXPORTED = (
        "metrics_not_exported",
        "cause remedy",
        "The metrics cannot be exported by OTLP. Told once, until an export succeeds again.",
    )
    STATE_LOADED = (
        "state_loaded",
        "path snapshot users written_wall_ms torn_bytes seconds",
        "The state directory was read.",
    )
    STATE_FILE_SET_ASIDE = (
        "state_file_set_aside",
        "path reason kept_as",
        "A file of the state is damaged or of another version, and was renamed.",
    )
    STATE_DIR_UNUSABLE = (
        "state_dir_unusable",
        "path cause remedy",
        "The state directory cannot be read or written; the gateway runs without it.",
    )
    STATE_SAVED = (
        "state_saved",
        "path users size_bytes seconds",
        "The state was written.",
    )
    STATE_NOT_SAVED = (
        "state_not_saved",
        "path cause failures remedy",
        "The state could not be written; it is tried again.",
    )
    STATE_RESTORED = (
        "state_restored",
        "users restored_from waited_ms unreadable",
        "What is remembered is complete: quotas are enforced from now on.",
    )
    STATE_NOT_RESTORED = (
        "state_not_restored",
        "reason remedy",
        "Some of what was remembered cannot be used; the gateway goes on without it.",
    )
    GRACE_BEGAN = (
        "grace_began",
        "reason grace_ms",
        "Little is remembered, so unseen ids pass uncharged for a while.",
    )
    GRACE_ENDED_EARLY = (
        "grace_ended_early",
        "reason",
        "The grace is over before its time.",
    )
    EVENTS_TOPIC_CREATED = (
        "events_topic_created",
        _TOPIC_CREATED,
        "The gateway has created its events topic.",
    )
    EVENTS_TOPIC_UNSAFE = (
        "events_topic_unsafe",
        _TOPIC_UNSAFE,
        "A setting of the events topic may lose events or disorder them.",
    )
    EVENTS_TOPIC_UNAVAILABLE = (
        "events_topic_unavailable",
        _TOPIC_UNAVAILABLE,
        "Events cannot be read or written; they are kept in memory.",
    )
    EVENTS_TOPIC_AVAILABLE = (
        "events_topic_available",
        _TOPIC_AVAILABLE,
        "Events can be read and written again.",
    )
    EVENTS_DROPPED = (
        "events_dropped",
        "topic dropped dropped_total reason",
        "Events were lost for lack of room.",
    )
    EVENTS_OFFSETS_GONE = (
        "events_offsets_gone",
        "topic partition offset earliest",
        "Events that were not read yet are gone from the topic; reading goes on at the earliest.",
    )
    QUOTAS_CHANGED = (
        "quotas_changed",
        _QUOTA_CHANGE + "action value before set_by set_through set_wall_ms until_wall_ms note",
        "A quota was changed at run time, with its author, its way and its end.",
    )
    QUOTA_CHANGE_ENDED = (
        "quota_change_ended",
        _QUOTA_CHANGE + "value before set_by set_through",
        "A change for a time is over; the value before it is back.",
    )
    QUOTA_CHANGE_NOT_KEPT = (
        "quota_change_not_kept",
        _QUOTA_CHANGE + "kept cause remedy",
        "A change is in force here, but could not be written; it does not survive a restart.",
    )
    QUOTA_COMMAND = (
        "quota_command",
        "deed user producer_id set_by set_through",
        "An operator released an id, ended a wait, blocked a user or the like.",
    )
    QUOTAS_TOPIC_READ = (
        "quotas_topic_read",
        "topic changes unreadable waited_ms",
        "The quotas set at run time are known.",
    )
    QUOTAS_TOPIC_UNREADABLE_RECORDS = (
        "quotas_topic_unreadable_records",
        "topic unreadable reason",
        "The quotas topic has records that no gateway wrote; they are passed over.",
    )
    QUOTAS_TOPIC_CREATED = (
        "quotas_topic_created",
        _TOPIC_CREATED,
        "The gateway has created its quotas topic.",
    )
    QUOTAS_TOPIC_UNSAFE = (
        "quotas_topic_unsafe",
        _TOPIC_UNSAFE,
        "A setting of the quotas topic may lose changes.",
    )
    QUOTAS_TOPIC_UNAVAILABLE = (
        "quotas_topic_unavailable",
        _TOPIC_UNAVAILABLE,
        "Quotas set at run time cannot be read or written; those in force stay.",
    )
    QUOTAS_TOPIC_AVAILABLE = (
        "quotas_topic_available",
        _TOPIC_AVAILABLE,
        "The quotas topic can be read and written again.",
    )
    FLEET_MEMBER_SEEN = (
        "fleet_member_seen",
        "gateway_id incarnation",
        "Another gateway of the cluster was seen for the first time.",
    )
    FLEET_MEMBER_GONE = (
        "fleet_member_gone",
        "gateway_id incarnation reason",
        "Another gateway has stopped, or was silent for too long.",
    )
    FLEET_MEMBER_DIFFERS = (
        "fleet_member_differs",
        "gateway_id incarnation setting ours theirs remedy",
        "Two gateways have different settings for one quota; it holds only as well as they agree.",
    )
    DRAINING = (
        "draining",
        "cause connections drain_timeout_ms",
        "The gateway was told to stop, and finishes requests in flight.",
    )
    STOPPED = (
        "stopped",
        "connections_cut seconds",
        "The gateway has stopped.",
    )
    UNEXPECTED_ERROR = (
        "unexpected_error",
        _CONNECTION + "reason suppressed_count exc_info",
        "A defect of the gateway, with its stack. Report it.",
    )


class _Output:
    """The stream of all lines. It never raises: a full disk or an unread pipe must not end a task.

    Failed writes are counted, and the next successful line has their number (`lines_not_written`).
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._not_written = 0

    def write(self, line: str) -> int:
        """Write a line and flush, so that it fails here or not at all."""
        try:
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._not_written += 1
        else:
            self._not_written = 0
        return len(line)

    def flush(self) -> None:
        """Do nothing: every line is flushed when written."""

    def tell(self, _logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Add the number of earlier lines that could not be written."""
        if self._not_written:
            line["lines_not_written"] = self._not_written
        return line


def configure(level: Level, stream: TextIO | None = None, log_format: Format | None = None) -> None:
    """Send all logs, including those of the standard library's loggers, to `stream` (stderr).

    The format is `console` on a terminal and `json` elsewhere, unless `log_format` is given.
    """
    terminal = sys.stderr if stream is None else stream
    log_format = log_format or ("console" if terminal.isatty() else "json")
    output = _Output(terminal)
    shared = [*_shared_processors(), output.tell]
    renderer = _renderer(log_format, terminal)
    structlog.configure(
        processors=[_drop_below_level, *shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger("debug"),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, output)),
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
    set_level(level)
    sys.unraisablehook = _log_unraisable


_least_level = logging.DEBUG
"""Of the lines that are written. Loggers are cached, so the level is not theirs."""


def set_level(level: Level) -> None:
    """Write lines of this level and above from now on."""
    global _least_level
    _least_level = logging.getLevelNamesMapping()[level.upper()]
    # Libraries (asyncio, aiohttp) log their internals at info.
    logging.getLogger().setLevel(max(logging.WARNING, _least_level))


def _drop_below_level(
    _logger: object, method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    if logging.getLevelNamesMapping().get(method.upper(), logging.ERROR) < _least_level:
        raise structlog.DropEvent
    return line


def _shared_processors() -> list[Any]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _in_reading_order,
    ]


def _in_reading_order(
    _logger: object, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Put time, level and event first, for people who read JSON lines."""
    first = {key: line.pop(key) for key in ("timestamp", "level", "event") if key in line}
    return {**first, **line}


def _renderer(log_format: Format, output: TextIO) -> list[Any]:
    if log_format == "json":
        # default=str: a log line must never raise because of its values.
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
            _printable_json,
        ]
    return [
        _printable_values,
        structlog.dev.ConsoleRenderer(
            colors=output.isatty(), exception_formatter=_printable_traceback, pad_event_to=24
        ),
    ]


_OTHERS: Final = re.compile(r"[^ -~]")
"""Characters that may be unprintable: ESC and NUL, C1, changes of text direction, lone surrogates."""


def _printable(text: str, but: str = "") -> str:
    """Escape characters that control a terminal: names chosen by clients must not affect a reader's screen."""
    if text.isprintable():
        return text
    return _OTHERS.sub(lambda found: _shown(found[0]) if found[0] not in but else found[0], text)


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _printable_values(
    _logger: object, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Escape texts. Other values appear as their repr, which escapes too."""
    for key, value in line.items():
        if isinstance(value, str):
            line[key] = _printable(value)
    return line


def _printable_traceback(output: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    """Print a traceback without values of variables, which may hold a secret.

    Its error text may come from a client.
    """
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    output.write(_printable(text.getvalue(), but="\n"))


def _printable_json(_logger: object, _method: str, line: str) -> str:
    """Escape as in JSON, so that readers get the original texts. JSON itself escapes only up to 0x1f."""
    if line.isprintable():
        return line
    return _OTHERS.sub(lambda found: found[0] if found[0].isprintable() else _in_json(found[0]), line)


def _in_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def _log_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Log an exception in a callback that could not be raised, instead of a traceback on stderr.

    Clients can cause some. Python's ssl decodes the client's SNI host name before any code of the gateway
    sees it.
    """
    kind = unraisable.exc_type.__name__
    log_mistake(f"unraisable {kind}", unraisable.exc_value, reason=f"{kind} where it cannot be raised")


def writes_debug() -> bool:
    """Return whether lines at debug are written: collecting the fields of one costs a connection 5 %."""
    return _least_level <= logging.DEBUG


def logger() -> Any:
    """Return a logger for the gateway's events. The first argument of its methods is an Event."""
    return structlog.get_logger()


QUIET_MS: Final = 1_000
MOST_LINES_A_SECOND: Final = 50
"""Lines of one limit: clients can invent any number of users and client ids."""
KEYS_KEPT: Final = 10_000
"""Keys with a remembered last line and number of suppressed ones."""


class LogLimit:
    """Limits log lines that clients can provoke: a storm of requests must not become a storm of lines.

    A key (a user, a cause, a place in the code) has one line in `quiet_ms`, and all keys together
    MOST_LINES_A_SECOND. Suppressed lines are counted, and the key's next line has their number. All times are
    monotonic milliseconds.
    """

    def __init__(self, quiet_ms: int = QUIET_MS) -> None:
        self._quiet_ms = quiet_ms
        self._quiet_until_ms: dict[str | None, int] = {}
        self._left_out: Counter[str | None] = Counter()
        self._second = -1
        self._lines = 0

    def leave_out(self, key: str | None, count: int = 1) -> None:
        """Count suppressed lines."""
        if key in self._left_out or len(self._left_out) < KEYS_KEPT:
            self._left_out[key] += count

    def take(self, key: str | None, now_ms: int) -> int | None:
        """Return the number of lines suppressed since this key's last one. None: suppress this one too."""
        second = now_ms // 1_000
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines >= MOST_LINES_A_SECOND or now_ms < self._quiet_until_ms.get(key, now_ms):
            self.leave_out(key)
            return None
        if len(self._quiet_until_ms) >= KEYS_KEPT:
            self._quiet_until_ms.clear()
            self._left_out.clear()
        self._quiet_until_ms[key] = now_ms + self._quiet_ms
        self._lines += 1
        return self._left_out.pop(key, 0)


_mistakes = LogLimit()


def log_mistake(where: str, error: BaseException | None = None, **about: object) -> None:
    """Log an exception, by default the one being handled, with its traceback, as a defect at this place.

    A client that has found a defect can trigger it at will, so each place logs one traceback a second.
    """
    left_out = _mistakes.take(where, int(monotonic_s() * 1000))
    if left_out is not None:
        log = logger()
        log.exception(
            Event.UNEXPECTED_ERROR,
            exc_info=True if error is None else error,
            suppressed_count=left_out,
            **about,
        )


ANEW_S: Final = 1.0
"""Wait before failed work is restarted."""


async def guarded(where: str, work: Awaitable[object]) -> None:
    """Run the work of a task that is never awaited. A failure is logged, as nothing else would report it."""
    try:
        await work
    except Exception:  # noqa: BLE001 - nothing else would report it
        log_mistake(where, reason=f"a task has ended: {where}")


async def begun_anew(where: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run the work of a task that is never awaited, until it returns.

    A failure is logged, and the work restarts.
    """
    while True:
        try:
            await work()
            return
        except Exception:  # noqa: BLE001 - the gateway needs this work to restart
            log_mistake(where, reason=f"a task has failed and restarts: {where}")
            await asyncio.sleep(ANEW_S)
