"""The handler of an API, a request in flight, and the operations that handlers have on their connection.
PURE.

A request arrives as `Request` with its header parsed; `Api.request` decides what happens next. A request
forwarded to the broker stays in flight as the same object until `Api.response` has seen the answer, or until
the answer has streamed through.

This module must not know which APIs exist (table.py), nor in which order answers leave (conversation.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.gateway_topics import CLOSE_CAUSE, CLOSE_REASON, GatewayTopics
from pidgate.gateway.cluster.seen_answers import Answer
from pidgate.gateway.cluster.token_owners import NOTHING_KNOWN
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.apis.responses import UNREAD, Buffer, Passing, Response
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES
from pidgate.gateway.quotas.kafka_api import QuotaExchange
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.protocol.sasl import SaslExchange
from pidgate.protocol.versions import SPOKEN
from pidgate.protocol.work import DECIDED_FOR, Walk
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota, ClientSensors, Kind
from pidgate.quota.decisions import Client, Close, Forward, ProducerBatch, Refuse, Verdict
from pidgate.quota.entities import User

SIZE_PREFIX_BYTES: Final = 4
_HEAD: Final = Struct(">hhi")


class Step(IntEnum):
    """The caller's next step with a request."""

    FORWARD = 0
    TAKEN = 1
    """Nothing: the request was answered here, or is held."""
    CLOSE = 2
    """Close the connection."""
    INSTEAD = 3
    """Forward `instead` in its place."""
    HOLD = 4
    """Hold the request and all later ones until it is decided. Never returned by Conversation.request."""


FORWARD: Final = Step.FORWARD
TAKEN: Final = Step.TAKEN
CLOSE: Final = Step.CLOSE
INSTEAD: Final = Step.INSTEAD
HOLD: Final = Step.HOLD


class Api:
    """An API in a range of versions.

    This base class forwards the request and streams the answer through unread.
    """

    def __init__(self, passing: Passing = UNREAD) -> None:
        self.passing = passing
        self.needs_identity = True
        """Handling depends on the user: the request waits for an authentication in progress."""
        self.waits_for_size = False
        """The request waits while `ApiContext.awaits_size`. Later requests wait too, as brokers serve them in
        order."""
        self.authenticates = False
        """Its answer identifies the user."""
        self.introduces = True
        """From this request on the client is known well enough to be recorded."""

    def request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Decide about the next request in order, on a channel that is not muted.

        Raises KafkaProtocolError when the client breaks the protocol.
        """
        return context.forward(request)

    def while_muted(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Decide about the first request behind a mute: HOLD, unless it would be refused anyway."""
        return HOLD

    def held(self, context: ApiContext, request: Request, now_ms: int) -> None:
        """Note that the request waits.

        Must not raise: errors in the request are reported when its turn comes.
        """

    def begins(self, context: ApiContext, request: InFlightRequest, response: Response) -> Passing:
        """Return how to pass on an answer of which only the beginning has arrived."""
        return self.passing

    def response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        """Process one whole answer.

        Returns a framed replacement for the client; None to pass the answer on as it is in the buffer now; or
        a Walk that reaches this decision over several turns. An API that returns a Walk may be called again
        with the same answer, so side effects belong behind the Walk's last step. Raises MalformedFrame.
        """
        return None


class InFlightRequest:
    """A request to be answered by the broker."""

    __slots__ = ("api", "api_key", "api_version", "correlation_id", "note")

    def __init__(
        self, api: Api, api_key: int, api_version: int, correlation_id: int, note: object = None
    ) -> None:
        self.api = api
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.note = note
        """State of the API, kept until the answer arrives."""


class Request(InFlightRequest):
    """A whole request, buf[start:end]. Its size prefix lies before `start`."""

    __slots__ = ("_head", "buf", "end", "start")

    def __init__(self, buf: Buffer, start: int, end: int, api: Api) -> None:
        """Read the API key, the version and the correlation id.

        Raises MalformedFrame when the frame is too short for them.
        """
        if end - start < _HEAD.size:
            raise MalformedFrame("a request of less than 8 bytes")
        self.api_key, self.api_version, self.correlation_id = _HEAD.unpack_from(buf, start)
        self.api = api
        self.note = None
        self.buf = buf
        self.start = start
        self.end = end
        self._head: RequestHead | None = None

    @property
    def head(self) -> RequestHead:
        """The request header, parsed on first use: most requests are forwarded without.

        Raises MalformedFrame.
        """
        head = self._head
        if head is None:
            head = self._head = peek_request(self.buf, self.start, self.end)
        return head

    def keep(self) -> int:
        """Copy the frame with its size prefix out of the buffer; return its bytes.

        A frame larger than the shared buffer has a buffer of its own, which is kept without a copy: copying
        100 MB takes 80 ms.
        """
        if self.start == SIZE_PREFIX_BYTES and self.end == len(self.buf) > READ_BUFFER_BYTES:
            return self.end
        with memoryview(self.buf) as view:
            frame = bytes(view[self.start - SIZE_PREFIX_BYTES : self.end])
        if self._head is not None:
            self._head = self._head.moved(SIZE_PREFIX_BYTES - self.start)
        self.buf, self.start, self.end = frame, SIZE_PREFIX_BYTES, len(frame)
        return len(frame)

    def release(self) -> None:
        """Release the frame and its header, to keep requests in flight small."""
        self.buf = b""
        self._head = None


NO_LOGIN: Final = Authentication(required=False)
NO_SENSORS: Final[tuple[ClientSensors | None, ClientSensors | None]] = (None, None)


class ApiContext(ABC):
    """One connection as seen by the handlers of APIs: its state, and the operations on it."""

    __slots__ = (
        "_sensors",
        "_sensors_of",
        "admission",
        "alteration",
        "authentication",
        "awaits_owner",
        "awaits_size",
        "byte_quota",
        "client",
        "close_cause",
        "close_reason",
        "counters",
        "find_owner",
        "gateway_topic_requests",
        "gateway_topics",
        "guarded",
        "identified",
        "instead",
        "judged",
        "learn_topics",
        "login_missing",
        "login_over",
        "may_mean_node",
        "muted_until_ms",
        "named_by_login",
        "passed",
        "pending",
        "recorder",
        "refused",
        "repeated",
        "sasl",
        "to_broker",
        "token_owners",
        "translate",
        "wants_attention",
    )

    def __init__(
        self,
        admission: Admission,
        client: Client,
        counters: Counters | None = None,
        gateway_topics: GatewayTopics | None = None,
        byte_quota: ByteQuota | None = None,
    ) -> None:
        self.admission = admission
        self.client = client
        self.counters = counters or Counters()
        self.gateway_topics = gateway_topics or GatewayTopics()
        self.byte_quota = byte_quota or ByteQuota(admission.state.in_force)
        self.authentication = NO_LOGIN
        """The listener's authentication. Set by Conversation.require_login."""
        self.login_missing = False
        """The client has not logged in, and a login is required or may be required."""
        self.login_over: Callable[[], None] = _nothing
        """Called when `login_missing` has become False."""
        self.named_by_login = False
        """The client's user comes from a login: SASL, or a certificate that counts as one."""
        self.sasl = SaslExchange()
        """Fed with the tokens as they pass; knows the user afterwards."""
        self.token_owners = NOTHING_KNOWN
        """Owners of delegation tokens, learnt from brokers' answers."""
        self.find_owner: Callable[[str], bool] | None = None
        """Asks a broker for a token's owner, then calls Conversation.owner_found. False: no broker can be
        asked."""
        self.awaits_owner = False
        """Logged in, but the token's owner is still being looked up: requests that need an identity are held."""
        self.recorder: ConnectionRecorder | None = None
        """None: no events are written."""
        self.translate: Callable[[int, str, int], tuple[str, int]] = _as_it_is
        """Callback that learns a broker's real address and returns this listener's advertised address."""
        self.may_mean_node: Callable[[], bool] = _no
        """Callback that returns whether this port's node is known. If so, it binds the connection to that
        node."""
        self.identified: Callable[[], None] = _nothing
        """Called when the client's user has changed."""
        self.learn_topics: Callable[[Answer, int, int], None] = _learn_nothing
        """Callback for every Metadata answer, with its version and its hash."""
        self.repeated = RepeatedProduce(self.gateway_topics.produced)
        self.guarded = self.gateway_topics.guarded
        """API keys of requests that may name a gateway topic."""
        self._sensors_of: tuple[int, User, str] | None = None
        self._sensors = NO_SENSORS
        self.muted_until_ms = 0
        self.awaits_size = False
        """An answer in flight counts against a byte rate, and its size is unknown until its head arrives."""
        self.alteration: QuotaExchange | None = None
        """The exchange about the AlterClientQuotas at the head of the held requests."""
        self.to_broker: list[bytes] = []
        """Framed requests of the gateway's own, to be sent and cleared."""
        self.wants_attention = False
        """Something has to be sent, logged, timed or paused; the code that does so clears this. Checked on
        every read."""
        self.refused: list[Refuse] = []
        """Refusals to be logged and cleared."""
        self.judged = 0
        """Batches judged so far. Other expensive work counts as several batches. Bounds a turn
        (JUDGED_PER_TURN)."""
        self.gateway_topic_requests: list[int] = []
        """API keys of requests that named a gateway topic, to be logged and cleared."""
        self.instead = b""
        """The frame to forward, set with INSTEAD."""
        self.close_cause = ""
        """A short label for metrics, set with CLOSE."""
        self.close_reason = ""
        """A sentence for the log, set with CLOSE."""

    # ---- decisions about a request ---------------------------------------------------------------------

    @abstractmethod
    def in_flight(self, request: InFlightRequest) -> None:
        """Register a forwarded request: the broker will answer it."""

    @abstractmethod
    def respond(self, answer: bytes) -> Step:
        """Send a framed answer of the gateway's own in its turn. Returns TAKEN."""

    @abstractmethod
    def mute(self, until_ms: int) -> None:
        """Forward nothing until `until_ms`, or until a longer mute in force ends."""

    def judge(self, batches: list[ProducerBatch], *, transactional: bool, now_ms: int) -> Verdict:
        """Judge the request's batches (Admission.judge) and count them for the turn."""
        verdict = self.admission.judge(self.client, batches, transactional=transactional, now_ms=now_ms)
        decided = verdict.decisions if isinstance(verdict, Forward) else batches
        self.judged += len(batches) + DECIDED_FOR * len(decided)
        return verdict

    def judge_while_muted(
        self, batches: list[ProducerBatch], *, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        """Judge a request read ahead behind a mute (Admission.judge_while_muted) and count it for the turn."""
        verdict = self.admission.judge_while_muted(
            self.client, batches, transactional=transactional, now_ms=now_ms
        )
        self.judged += len(batches) if verdict is None else DECIDED_FOR * len(batches)
        return verdict

    def forward(self, request: Request) -> Step:
        """Forward the request unchanged and expect its answer. Returns FORWARD."""
        request.release()
        self.in_flight(request)
        return FORWARD

    def forward_instead(self, request: Request, frame: bytes) -> Step:
        """Forward this frame in the request's place and expect its answer. Returns INSTEAD."""
        self.instead = frame
        self.forward(request)
        return INSTEAD

    def close(self, cause: str, reason: str) -> Step:
        """End the connection; earlier answers still leave. Returns CLOSE."""
        self.close_cause = cause
        self.close_reason = reason
        return CLOSE

    def refuse_gateway_topic(self, api_key: int, answer: bytes | None) -> Step:
        """Answer a request that names a gateway topic, or close (None).

        It counts against no quota and does not mute.
        """
        self.count_gateway_topic(api_key)
        return self.close(CLOSE_CAUSE, CLOSE_REASON) if answer is None else self.respond(answer)

    def count_gateway_topic(self, api_key: int) -> None:
        """Count and log a request that named a gateway topic."""
        self.counters.gateway_topic_refused[SPOKEN[api_key].name] += 1
        self.gateway_topic_requests.append(api_key)
        self.wants_attention = True

    # ---- bytes per second ------------------------------------------------------------------------------

    def sensors(self, now_ms: int) -> tuple[ClientSensors | None, ClientSensors | None]:
        """Return this client's sensors for produced and fetched bytes. None: no rate is set."""
        quota, client = self.byte_quota, self.client
        sensors_of = (quota.in_force.version, client.user, client.client_id)
        if sensors_of != self._sensors_of:
            self._sensors_of = sensors_of
            produce, fetch = (
                quota.sensors(kind, client.user, client.client_id, now_ms)
                for kind in (Kind.PRODUCE, Kind.FETCH)
            )
            self._sensors = produce, fetch
        return self._sensors

    def record_bytes(self, sensors: ClientSensors, nbytes: int, now_ms: int) -> int:
        """Count bytes and mute the channel above the rate.

        Returns the rest of the mute in ms, 0 without a throttle.
        """
        throttle_ms = sensors.record(nbytes, now_ms)
        if not throttle_ms:
            return 0
        self.mute(now_ms + throttle_ms)
        return self.muted_until_ms - now_ms

    def mute_left_ms(self, now_ms: int) -> int:
        return max(0, self.muted_until_ms - now_ms)


def _no() -> bool:
    return False


def _as_it_is(_node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


def _nothing() -> None:
    pass


def _learn_nothing(_answer: Answer, _api_version: int, _hashed: int) -> None:
    pass
