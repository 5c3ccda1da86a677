"""Availability of a gateway topic, logged once per change with cause and remedy.

aiokafka logs at every retry, several times per second while a broker is down, so its log is suppressed. Its
exceptions say only that no bootstrap server worked; the reason is in the log. The last message is therefore
kept.
"""

from __future__ import annotations

import asyncio
import logging
import re
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple

from pidgate.gateway.clock import monotonic_s
from pidgate.gateway.config.password_file import CredentialsUnreadable
from pidgate.gateway.logs import Event, logger

log = logger()

SAY_AGAIN_S: Final = 60.0
FIRST_RETRY_S: Final = 0.2
LONGEST_RETRY_S: Final = 5.0
RECENT_S: Final = 60.0
UNEXPECTED_EVERY_S: Final = 60.0

Doing = Literal["writing", "reading", "creating"]

_PERMISSIONS: Final[dict[Doing, str]] = {
    "writing": "Write and Describe",
    "reading": "Read and Describe",
    "creating": "Create and Describe",
}
_NOT_REACHED: Final = (
    "check cluster.bootstrap_servers and own_client: the brokers and the addresses they advertise must be "
    "reachable from here"
)


_SAYING_LITTLE: Final = frozenset((
    "KafkaConnectionError", "KafkaTimeoutError", "TimeoutError", "RequestTimedOutError", "NodeNotReadyError",
    "UnknownTopicOrPartitionError", "LeaderNotAvailableError", "NotLeaderForPartitionError"
))  # fmt: skip
"""Errors without a cause; the cause is in the library's log."""


_TLS: Final = ("CERTIFICATE_VERIFY_FAILED", "[SSL", "certificate verify failed")
"""Substrings in the messages of Python's ssl module."""
_CHECK_TLS: Final = (
    "check cluster.tls (ca_file, cert_file); the ports of bootstrap_servers must be TLS listeners"
)


class Cause(NamedTuple):
    """Cause of a failure and its remedy, as text."""

    cause: str
    remedy: str


def explain_error(error: BaseException, doing: Doing, topic: str) -> Cause:
    """Return the cause of an aiokafka error, using its last log message if the error has no details."""
    text = _text(error)
    name = type(error).__name__
    if isinstance(error, CredentialsUnreadable):
        return Cause(text, "make the file readable by the gateway; the next attempt reads it again")
    if any(sign in text for sign in _TLS):
        return Cause(text, _CHECK_TLS)
    if name == "TopicAuthorizationFailedError" or "not authorized" in text:
        return Cause(text, f"allow the gateway's principal {_PERMISSIONS[doing]} on topic {topic}")
    if "Authenticat" in text or "[Error 33]" in text or "[Error 34]" in text or "[Error 58]" in text:
        return Cause(text, "check own_client: mechanism, username and password_file")
    if name == "UnknownTopicOrPartitionError" or "not found" in text:
        return Cause(text, f"create topic {topic}, or allow the gateway's principal Create on it")
    if name in ("NotEnoughReplicasError", "NotEnoughReplicasAfterAppendError"):
        return Cause(
            text, "too few replicas in sync: bring brokers back or lower the topic's min.insync.replicas"
        )
    if name in ("UnsupportedCodecError", "CorruptRecordException"):
        return Cause(text, "set compression.type of the topic to producer, gzip or uncompressed")
    return Cause(text, _NOT_REACHED)


_PYTHON_ADDRESS: Final = re.compile(r"\('?([^',()]+)'?, (\d+)(?:, <AddressFamily[^>]*>|, \d+)*\)")
"""An address as asyncio and aiokafka write it into their messages."""


def _text(error: BaseException) -> str:
    return _PYTHON_ADDRESS.sub(r"\1:\2", _own_text(error))


def _own_text(error: BaseException) -> str:
    own = str(error) or type(error).__name__
    if type(error).__name__ in _SAYING_LITTLE:
        complaint = last_complaint()
        return f"{own}; {complaint}" if complaint and complaint not in own else own
    return own


class Availability:
    """State of one direction (write or read) of a topic, and the delay before the next attempt."""

    def __init__(
        self,
        topic: str,
        doing: Doing,
        unavailable: Event = Event.EVENTS_TOPIC_UNAVAILABLE,
        available: Event = Event.EVENTS_TOPIC_AVAILABLE,
    ) -> None:
        self._topic = topic
        self._unavailable = unavailable
        self._available = available
        self._doing = doing
        self._failed_at_s: float | None = None
        self._logged: Cause | None = None
        self._logged_at_s = 0.0
        self._retry_s = FIRST_RETRY_S

    @property
    def last_failure(self) -> str:
        """The cause as text; empty while the topic works."""
        return self._logged.cause if self._logged is not None else ""

    def record_failure(self, cause: Cause, *, buffered: int = 0, dropped: int = 0) -> float:
        """Log a new cause, and a persistent one every minute; return the seconds until the next attempt."""
        now_s = monotonic_s()
        retry_s, self._retry_s = self._retry_s, min(self._retry_s * 2, LONGEST_RETRY_S)
        if self._failed_at_s is None:
            self._failed_at_s = now_s
        is_known = self._logged is not None and self._logged.remedy == cause.remedy
        self._logged = cause
        if not is_known or now_s - self._logged_at_s >= SAY_AGAIN_S:
            self._logged_at_s = now_s
            log.warning(
                self._unavailable,
                topic=self._topic,
                doing=self._doing,
                cause=cause.cause,
                remedy=cause.remedy,
                retry_ms=round(retry_s * 1000),
                buffered=buffered,
                dropped=dropped,
            )
        return retry_s

    def record_success(self, *, buffered: int = 0, dropped: int = 0) -> None:
        """Record a successful write or read."""
        if self._failed_at_s is None:
            return
        waited_ms = round((monotonic_s() - self._failed_at_s) * 1000)
        self._failed_at_s, self._logged, self._retry_s = None, None, FIRST_RETRY_S
        log.info(
            self._available,
            topic=self._topic,
            doing=self._doing,
            waited_ms=waited_ms,
            buffered=buffered,
            dropped=dropped,
        )


async def stop_client(client: Any, within_s: float) -> None:
    """Stop an aiokafka producer or consumer, with a time limit."""
    stopping = asyncio.ensure_future(client.stop())
    try:
        done, _ = await asyncio.wait([stopping], timeout=within_s)
    except asyncio.CancelledError:
        stopping.cancel()
        raise
    if not done:
        stopping.cancel()
    elif not stopping.cancelled():
        # Retrieved so that asyncio does not log it; a client whose stop failed has stopped.
        stopping.exception()


class _LastComplaint(logging.Handler):
    """Handler that keeps the last message.

    A message with a traceback is a bug in the library and logged, rate-limited.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self._emitted_at_s = 0.0
        self._passed_on_at_s: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        now_s = monotonic_s()
        self.text, self._emitted_at_s = record.getMessage(), now_s
        passed_on_s = self._passed_on_at_s
        if record.exc_info and (passed_on_s is None or now_s - passed_on_s > UNEXPECTED_EVERY_S):
            self._passed_on_at_s = now_s
            logging.getLogger().handle(record)

    def recent(self) -> str:
        return self.text if monotonic_s() - self._emitted_at_s < RECENT_S else ""


_last_complaint = _LastComplaint()


def quieten_aiokafka() -> None:
    """Suppress aiokafka's log. May be called again."""
    library = logging.getLogger("aiokafka")
    library.propagate = False
    library.setLevel(logging.WARNING)
    library.handlers[:] = [_last_complaint]


async def load() -> None:
    """Import aiokafka in a thread, with its log suppressed; it takes a quarter of a second."""
    quieten_aiokafka()
    for module in ("aiokafka", "aiokafka.admin", "aiokafka.partitioner"):
        await asyncio.to_thread(import_module, module)


def last_complaint() -> str:
    """Return aiokafka's last message if it is at most a minute old, otherwise an empty string."""
    return _last_complaint.recent()
