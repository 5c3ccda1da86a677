"""An API as the gateway handles it, a request on its way through, and what handlers may do with their connection. PURE.

A request arrives as `Request`, its head parsed; `Api.request` says what becomes of it. One that the broker will answer
stays in flight as the same object until `Api.response` has seen the answer, or until it has streamed through.

It must not know which APIs there are (table.py), nor in which order answers leave (conversation.py).
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
from pidgate.quota.byte_quota import ByteQuota, ClientSensors
from pidgate.quota.byte_rates import Kind
from pidgate.quota.decisions import Close, Forward, ProducerBatch, Refuse, Session, Verdict
from pidgate.quota.entities import User

SIZE_PREFIX_BYTES: Final = 4
_HEAD: Final = Struct(">hhi")


class Step(IntEnum):
    """The next step of the caller with a request."""

    FORWARD = 0
    TAKEN = 1
    """Nothing: it was answered here, or is held."""
    CLOSE = 2
    """Close the connection."""
    INSTEAD = 3
    """Forward `instead` in its place."""
    HOLD = 4
    """Keep it, and all that comes behind it, until it is decided. Never returned by Conversation.request."""


FORWARD: Final = Step.FORWARD
TAKEN: Final = Step.TAKEN
CLOSE: Final = Step.CLOSE
INSTEAD: Final = Step.INSTEAD
HOLD: Final = Step.HOLD


class Api:
    """One API in some of its versions. This one: forwarded, and its answer streams through unread."""

    def __init__(self, passing: Passing = UNREAD) -> None:
        self.passing = passing
        self.needs_identity = True
        """It is handled by who asks: it waits for an authentication that is under way."""
        self.waits_for_size = False
        """It waits while `ApiContext.awaits_size`, and what is behind it waits too, as brokers serve them."""
        self.authenticates = False
        """Its answer identifies the user."""
        self.introduces = True
        """With it the connection's client is known well enough to be recorded."""

    def request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Decide about the next request in order, on a channel that is not muted.

        Raises KafkaProtocolError when the client breaks the protocol.
        """
        return context.forward(request)

    def while_muted(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Decide about the first request behind a mute: HOLD, unless it is refused anyway."""
        return HOLD

    def held(self, context: ApiContext, request: Request, now_ms: int) -> None:
        """Note that the request waits. Must not raise: what is wrong with it counts when its turn comes."""

    def begins(self, context: ApiContext, request: InFlightRequest, response: Response) -> Passing:
        """Return how an answer passes of which only the beginning is there."""
        return self.passing

    def response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        """Look at one whole answer.

        Returns what the client gets in its place, framed; None: as it is in the buffer now; or the Walk that finds
        that out, in turns. Whoever returns a Walk may be asked again about the same answer: what is to happen once
        happens behind its last step. Raises MalformedFrame.
        """
        return None


class InFlightRequest:
    """A request that the broker will answer."""

    __slots__ = ("api", "api_key", "api_version", "correlation_id", "note")

    def __init__(
        self, api: Api, api_key: int, api_version: int, correlation_id: int, note: object = None
    ) -> None:
        self.api = api
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.note = note
        """Kept by its api until its answer comes."""


class Request(InFlightRequest):
    """The whole request buf[start:end], without its size prefix, which lies before `start`."""

    __slots__ = ("_head", "buf", "end", "start")

    def __init__(self, buf: Buffer, start: int, end: int, api: Api) -> None:
        """Read the numbers that say which API it is. Raises MalformedFrame when it is shorter than they are."""
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
        """Its header, parsed once, when it is first asked for: most requests pass without. Raises MalformedFrame."""
        head = self._head
        if head is None:
            head = self._head = peek_request(self.buf, self.start, self.end)
        return head

    def keep(self) -> int:
        """Hold on to the frame with its size prefix, whatever becomes of the buffer; returns its bytes.

        A frame too large for the shared buffer has one of its own, which is kept: copying 100 MB takes 80 ms.
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
        """Let the frame and its header go: what waits for its answer should be small."""
        self.buf = b""
        self._head = None


NO_LOGIN: Final = Authentication(required=False)
NO_SENSORS: Final[tuple[ClientSensors | None, ClientSensors | None]] = (None, None)


class ApiContext(ABC):
    """One connection as the handlers of APIs see it: what they know of it, and what they may do."""

    __slots__ = (
        "_sensors",
        "_sensors_of",
        "admission",
        "alteration",
        "authentication",
        "awaits_owner",
        "awaits_size",
        "byte_quota",
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
        "session",
        "to_broker",
        "token_owners",
        "translate",
        "wants_attention",
    )

    def __init__(
        self,
        admission: Admission,
        session: Session,
        counters: Counters | None = None,
        gateway_topics: GatewayTopics | None = None,
        byte_quota: ByteQuota | None = None,
    ) -> None:
        self.admission = admission
        self.session = session
        self.counters = counters or Counters()
        self.gateway_topics = gateway_topics or GatewayTopics()
        self.byte_quota = byte_quota or ByteQuota(admission.state.in_force)
        self.authentication = NO_LOGIN
        """Of the listener. Set by Conversation.require_login."""
        self.login_missing = False
        """Nobody is logged in where somebody has to be, or where it is unknown whether somebody has to be."""
        self.login_over: Callable[[], None] = _nothing
        """Called when `login_missing` has become False."""
        self.named_by_login = False
        """The session's user is the name of a login: by SASL, or by a certificate that is one."""
        self.sasl = SaslExchange()
        """Fed with the tokens as they pass; knows the user then."""
        self.token_owners = NOTHING_KNOWN
        """Of delegation tokens, which brokers' answers show."""
        self.find_owner: Callable[[str], bool] | None = None
        """Asks a broker for the owner of a token, then calls Conversation.owner_found. False: none can be asked."""
        self.awaits_owner = False
        """It is logged in, and the owner of its token is being asked for: what needs an identity is held."""
        self.recorder: ConnectionRecorder | None = None
        """None: no events are written."""
        self.translate: Callable[[int, str, int], tuple[str, int]] = _as_it_is
        """Callback that learns a broker's real address, and returns what this listener's clients are shown."""
        self.may_mean_node: Callable[[], bool] = _no
        """Callback that returns whether this port's node is known, and has the connection reach no other if so."""
        self.identified: Callable[[], None] = _nothing
        """Called when the session's user has changed."""
        self.learn_topics: Callable[[Answer, int, int], None] = _learn_nothing
        """Callback for every Metadata answer, its version and its hash."""
        self.repeated = RepeatedProduce(self.gateway_topics.produced)
        self.guarded = self.gateway_topics.guarded
        """API keys of requests that may name a gateway topic."""
        self._sensors_of: tuple[int, User, str] | None = None
        self._sensors = NO_SENSORS
        self.muted_until_ms = 0
        self.awaits_size = False
        """The size of an answer under way that counts against a byte rate is unknown: its head is not here yet."""
        self.alteration: QuotaExchange | None = None
        """The exchange about the AlterClientQuotas that is the first of the held requests."""
        self.to_broker: list[bytes] = []
        """Framed requests of our own: send and clear."""
        self.wants_attention = False
        """Something is to be sent, logged, timed or paused; whoever sees to it clears this. Every read asks for it."""
        self.refused: list[Refuse] = []
        """Refusals that nobody has logged yet: log and clear."""
        self.judged = 0
        """Batches so far, and what is as dear, counted for as many: by it a turn ends (JUDGED_PER_TURN)."""
        self.gateway_topic_requests: list[int] = []
        """Api keys of requests that named a gateway topic and that nobody has logged yet: log and clear."""
        self.instead = b""
        """Set with INSTEAD: the frame to forward."""
        self.close_cause = ""
        """A short label for metrics, set with CLOSE."""
        self.close_reason = ""
        """A sentence for the log, set with CLOSE."""

    # ---- what becomes of a request ---------------------------------------------------------------------

    @abstractmethod
    def in_flight(self, request: InFlightRequest) -> None:
        """Wait for the broker's answer to a request that goes to it."""

    @abstractmethod
    def respond(self, answer: bytes) -> Step:
        """Send a framed answer of our own in its turn. Returns TAKEN."""

    @abstractmethod
    def mute(self, until_ms: int) -> None:
        """Hand nothing on until then, or for as long as the channel is muted already."""

    def judge(self, batches: list[ProducerBatch], *, transactional: bool, now_ms: int) -> Verdict:
        """Judge the request's batches (Admission.judge), and count them for the turn."""
        verdict = self.admission.judge(self.session, batches, transactional=transactional, now_ms=now_ms)
        decided = verdict.decisions if isinstance(verdict, Forward) else batches
        self.judged += len(batches) + DECIDED_FOR * len(decided)
        return verdict

    def judge_while_muted(
        self, batches: list[ProducerBatch], *, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        """Judge a request read ahead behind a mute (Admission.judge_while_muted), and count it for the turn."""
        verdict = self.admission.judge_while_muted(
            self.session, batches, transactional=transactional, now_ms=now_ms
        )
        self.judged += len(batches) if verdict is None else DECIDED_FOR * len(batches)
        return verdict

    def forward(self, request: Request) -> Step:
        """Send the request as it is and wait for its answer. Returns FORWARD."""
        request.release()
        self.in_flight(request)
        return FORWARD

    def forward_instead(self, request: Request, frame: bytes) -> Step:
        """Send this frame in the request's place and wait for its answer. Returns INSTEAD."""
        self.instead = frame
        self.forward(request)
        return INSTEAD

    def close(self, cause: str, reason: str) -> Step:
        """End the connection; what was answered before still leaves. Returns CLOSE."""
        self.close_cause = cause
        self.close_reason = reason
        return CLOSE

    def refuse_gateway_topic(self, api_key: int, answer: bytes | None) -> Step:
        """Answer a request that names a gateway topic, or close (None). Neither quota nor mute knows of it."""
        self.count_gateway_topic(api_key)
        return self.close(CLOSE_CAUSE, CLOSE_REASON) if answer is None else self.respond(answer)

    def count_gateway_topic(self, api_key: int) -> None:
        """Count and log a request that named a gateway topic."""
        self.counters.gateway_topic_refused[SPOKEN[api_key].name] += 1
        self.gateway_topic_requests.append(api_key)
        self.wants_attention = True

    # ---- bytes per second ------------------------------------------------------------------------------

    def sensors(self, now_ms: int) -> tuple[ClientSensors | None, ClientSensors | None]:
        """Return the sensors of this client's bytes, produced and fetched; None: no rate is set."""
        quota, session = self.byte_quota, self.session
        sensors_of = (quota.in_force.version, session.user, session.client_id)
        if sensors_of != self._sensors_of:
            self._sensors_of = sensors_of
            produce, fetch = (
                quota.sensors(kind, session.user, session.client_id, now_ms)
                for kind in (Kind.PRODUCE, Kind.FETCH)
            )
            self._sensors = produce, fetch
        return self._sensors

    def record_bytes(self, sensors: ClientSensors, nbytes: int, now_ms: int) -> int:
        """Count bytes; mute when they are too many. Returns the rest of the mute in ms, 0 without throttle."""
        throttle_ms = sensors.record(nbytes, now_ms)
        if not throttle_ms:
            return 0
        self.mute(now_ms + throttle_ms)
        return self.muted_until_ms - now_ms

    def mute_left_ms(self, now_ms: int) -> int:
        """Return the rest of the mute in ms."""
        return max(0, self.muted_until_ms - now_ms)


def _no() -> bool:
    return False


def _as_it_is(_node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


def _nothing() -> None:
    pass


def _learn_nothing(_answer: Answer, _api_version: int, _hashed: int) -> None:
    pass
