"""One client connection: requests in flight, order of answers, what waits for what. PURE.

Requests come in whole, one after the other, through `request`; it says whether the caller forwards the frame
(FORWARD), need not (TAKEN: it was answered here, or is held behind the mute) or closes the connection (CLOSE).
Answers of the broker are matched by position: `expect` names the request that the next answer belongs to,
`answered` is called when it has passed. Answers authored here leave through `out`, in the order of the requests
they answer: behind everything that is still in flight.

A channel is muted until `muted_until_ms` (KIP-219, but with several requests of one connection under way the
throttles may overlap, so the latest deadline says it all). While it is muted nothing is handed on: frames are
held in order, but a Produce that would be refused anyway is answered at once, or each of a pipeline of five
would cost a mute of its own. When the mute ends, `release` goes on with what was held.

When the quota's state lives in another process, a Produce with an id that is new here is held until it has been
asked (`asked`); everything behind it waits, too.

What depends on who asks is held, too, while a SASL request is in flight: a client that does not wait for its
authentication could charge its ids to ANONYMOUS.

Bytes are counted against their rates when a Produce is forwarded and when the answer to a Fetch begins; above the
rate the channel is muted from then on (KIP-13, KIP-219).

An AlterClientQuotas with keys of the gateway's own is held until the broker was asked what it says of it, and the
change was made (`alteration`).

A request that names one of the gateway's own topics is refused here, or another is forwarded for it (INSTEAD).

It must not know sockets, tasks or the clock: time is an argument, and `muted_until_ms` tells when to come back.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from pidgate.gateway.cluster.gateway_topics import CLOSE_CAUSE, CLOSE_REASON, GatewayTopics, Refused
from pidgate.gateway.metrics.counters import INIT_REFUSED, Counters
from pidgate.gateway.proxy.in_flight_requests import Forwarded, InFlightRequests
from pidgate.gateway.proxy.notes import note_of_request
from pidgate.gateway.proxy.treatments import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    PRODUCE,
    SASL_HANDSHAKE,
    SHARE_FETCH,
    TREATMENTS,
    Treatment,
)
from pidgate.gateway.quotas.kafka_api import QuotaExchange
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.protocol import messages
from pidgate.protocol.errors import ErrorCode, MalformedFrame, UnsupportedVersion
from pidgate.protocol.headers import peek_request
from pidgate.protocol.produce import ForbiddenTopic, refusal, walk
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.protocol.sasl import SaslExchange
from pidgate.protocol.throttle import lowered_fetch
from pidgate.protocol.versions import SPOKEN
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota, ClientSensors
from pidgate.quota.byte_rates import Kind
from pidgate.quota.entities import User
from pidgate.quota.settings import Quotas
from pidgate.quota.state import PendingDecision
from pidgate.quota.verdicts import Close, Forward, Refuse, Session
from pidgate.quota.wording import error_message

SIZE_PREFIX_BYTES: Final = 4

HELD_LIMIT_BYTES: Final = 1024 * 1024
"""Read-ahead behind a mute: enough to notice a disconnect and to answer a pipeline of five at once.
The frame that crosses it is still taken whole; then reading stops until the mute ends."""

MOST_BATCHES_NOTED: Final = 8
"""Of a Produce that waits for its answer: which ids they have; of a larger one only the first id is kept."""

_HEAD: Final = Struct(">hhi")

_PRODUCED: Final = Treatment.PRODUCE
_NOTED: Final = Treatment.NOTED

_OF_SOMEBODY: Final = frozenset({PRODUCE, INIT_PRODUCER_ID, ALTER_CLIENT_QUOTAS})
"""What is done with these depends on who asks."""

_FETCHES: Final = frozenset({FETCH, SHARE_FETCH})

NO_METERS: Final[tuple[ClientSensors | None, ClientSensors | None]] = (None, None)

Buffer = bytes | bytearray


class Step(IntEnum):
    """What the caller does with the request it has just handed in."""

    FORWARD = 0
    TAKEN = 1
    CLOSE = 2
    INSTEAD = 3
    """Forward `instead` in its place."""


FORWARD: Final = Step.FORWARD
TAKEN: Final = Step.TAKEN
CLOSE: Final = Step.CLOSE
INSTEAD: Final = Step.INSTEAD

GATEWAY_TOPIC_MESSAGE: Final = "This topic belongs to the gateway."


class Conversation:
    """The state of one connection, from both sides. One instance per client connection."""

    __slots__ = (
        "_admission",
        "_byte_quota",
        "_counters",
        "_gateway_topics",
        "_guarded",
        "_line",
        "_metered_as",
        "_repeated",
        "_sensors",
        "_walk",
        "alteration",
        "asked",
        "close_cause",
        "close_reason",
        "gateway_topic_requests",
        "held",
        "held_bytes",
        "instead",
        "muted_until_ms",
        "out",
        "recorder",
        "refused",
        "sasl",
        "session",
        "to_broker",
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
        self.session = session
        self._admission = admission
        self._byte_quota = byte_quota or ByteQuota(Quotas(), 0)
        self._metered_as: tuple[int, User, str] | None = None
        self._sensors = NO_METERS
        """What this visitor's bytes count against, produced and fetched."""
        self._counters = counters or Counters()
        self._gateway_topics = gateway_topics or GatewayTopics()
        self._guarded = self._gateway_topics.guarded
        self._repeated = RepeatedProduce(self._gateway_topics.produced)
        self._walk = self._repeated.walk
        self.recorder: ConnectionRecorder | None = None
        """Told of what happens here; None: no events are written."""
        self._line = InFlightRequests()
        self.held: list[bytes] = []
        """Frames behind the mute, whole and with their size prefix, in the order they came."""
        self.held_bytes = 0
        self.muted_until_ms = 0
        self.asked: PendingDecision | None = None
        """The question about the first of the held frames; whoever has its answer puts it in, then calls `release`."""
        self.alteration: QuotaExchange | None = None
        """What becomes of the AlterClientQuotas that is the first of the held frames."""
        self.to_broker: list[bytes] = []
        """Framed requests of our own: send and clear."""
        self.wants_attention = False
        """Something is to be sent, logged, timed or paused; whoever sees to it clears this. False for nearly
        every request, and a plain attribute, because every read asks."""
        self.out = self._line.out
        """Framed answers of our own whose turn has come: send and clear."""
        self.refused: list[Refuse] = []
        """Refusals that nobody has logged yet: log and clear."""
        self.gateway_topic_requests: list[int] = []
        """Api keys of requests that named an own topic and that nobody has logged yet: log and clear."""
        self.instead = b""
        """Set with INSTEAD: the frame to forward."""
        self.sasl = SaslExchange()
        """Who is this: fed with the tokens as they pass."""
        self.close_cause = ""
        """A short label for metrics, set with CLOSE."""
        self.close_reason = ""
        """A sentence for the log, set with CLOSE."""

    # ---- from the client -------------------------------------------------------------------------------

    def request(self, buf: Buffer, start: int, end: int, now_ms: int) -> Step:
        """The next whole request: buf[start:end] without its size prefix; the prefix lies before `start`.

        Raises MalformedFrame when the client breaks the protocol and UnsupportedVersion when it asks what
        was never offered: both end this connection, and only this one.
        """
        if self.recorder is not None:
            self.recorder.requests += 1
        if isinstance(buf, bytes) and self._repeats(buf, start, end, now_ms):
            return FORWARD
        if self.held or (self._line.sasl_in_flight and _is_of_somebody(buf, start, end)):
            return self._hold(buf, start, end)
        if now_ms < self.muted_until_ms:
            step = self._refused_behind_mute(buf, start, end, now_ms)
            return self._hold(buf, start, end) if step is None else step
        step = self._next_in_line(buf, start, end, now_ms)
        return self._hold(buf, start, end) if step is None else step

    def release(self, now_ms: int) -> tuple[list[bytes], bool]:
        """Go on with what was held. Returns (frames to forward, in order; whether to close now)."""
        forward: list[bytes] = []
        held, done = self.held, 0
        try:
            while done < len(held) and not self.awaits_decision:
                frame = held[done]
                if self._line.sasl_in_flight and _is_of_somebody(frame, SIZE_PREFIX_BYTES, len(frame)):
                    break
                step = self._released(frame, now_ms)
                if step is None:
                    break
                if step is CLOSE:
                    return forward, True
                if step is FORWARD:
                    forward.append(frame)
                elif step is INSTEAD:
                    forward.append(self.instead)
                done += 1
                self.held_bytes -= len(frame)
            return forward, False
        finally:
            del held[:done]

    def _released(self, frame: bytes, now_ms: int) -> Step | None:
        """What becomes of the first of the held frames; None: it stays there."""
        if now_ms < self.muted_until_ms:
            return self._refused_behind_mute(frame, SIZE_PREFIX_BYTES, len(frame), now_ms)
        return self._next_in_line(frame, SIZE_PREFIX_BYTES, len(frame), now_ms)

    def drop_held(self) -> int:
        """The client has gone: what it sent behind the mute reaches nobody. Returns the bytes dropped."""
        dropped = self.held_bytes
        self.asked = self.alteration = None
        self.held.clear()
        self.held_bytes = 0
        return dropped

    @property
    def awaits_decision(self) -> bool:
        """What is held waits for the answer to `asked`, or for what becomes of `alteration`."""
        if self.asked is not None:
            return self.asked.answer is None
        return self.alteration is not None and not self.alteration.is_over

    @property
    def awaits_answer(self) -> bool:
        """What is held waits for no time to pass, but for the quota's answer, or for a SASL answer of the broker."""
        return bool(self.held) and (self._line.sasl_in_flight > 0 or self.awaits_decision)

    @property
    def wants_no_more(self) -> bool:
        """The read-ahead is full: stop reading until the mute ends."""
        return self.held_bytes >= HELD_LIMIT_BYTES

    # ---- from the broker -------------------------------------------------------------------------------

    def expect(self, correlation_id: int) -> Forwarded:
        """The request that the broker's next answer belongs to. Raises MalformedFrame: see InFlightRequests.expect."""
        return self._line.expect(correlation_id)

    def next_alone(self) -> Forwarded | None:
        """The request that the broker answers next, if no answer of our own waits right behind it."""
        return self._line.next_alone()

    def answered(self) -> None:
        """The answer of the request at the head has passed; answers of ours behind it have their turn now."""
        self._line.answered()

    @property
    def is_quiet(self) -> bool:
        """Nothing is in flight: the connection can be closed without losing an answer."""
        return not len(self._line) and self.asked is None and self.alteration is None

    def fetched(self, sensors: ClientSensors, answer_bytes: int, now_ms: int) -> int:
        """An answer to a Fetch begins. Returns how long the channel is muted from now on, in ms."""
        return self._mute_for(sensors.record(answer_bytes, now_ms), now_ms)

    def mute_left_ms(self, now_ms: int) -> int:
        return max(0, self.muted_until_ms - now_ms)

    def alteration_answered(self) -> None:
        """The broker has answered `alteration`, or its changes were made: its next step."""
        exchange = self.alteration
        if exchange is None:
            return  # the client has gone
        self.wants_attention = True
        frame = exchange.next_frame()
        if frame is not None:
            self.to_broker.append(frame)
            api_key, api_version, correlation_id = _HEAD.unpack_from(frame, SIZE_PREFIX_BYTES)
            self._awaits(Forwarded(correlation_id, Treatment.ALTER_QUOTAS, api_key, api_version, exchange))

    @property
    def in_flight_count(self) -> int:
        return len(self._line)

    # ---- inside ----------------------------------------------------------------------------------------

    def _repeats(self, frame: bytes, start: int, end: int, now_ms: int) -> bool:
        """The hot path: a Produce like the one before it, of an id that is known, on a connection where nothing waits.

        Does all that `_next_in_line` would have done with it, or nothing at all.
        """
        if self.held or now_ms < self.muted_until_ms or self._line.sasl_in_flight or self._byte_quota.is_on:
            return False
        repeated, recorder = self._repeated, self.recorder
        if not repeated.recognises(frame, start, end) or not self._admission.knows(
            self.session,
            repeated.producer_id,
            repeated.epoch,
            repeated.topic,
            repeated.partitions,
            now_ms,
        ):
            return False
        if recorder is not None:
            if not recorder.is_introduced:
                return False
            recorder.repeated(repeated, end - start, now_ms)
        self._counters.requests[PRODUCE] += 1
        if repeated.acks:
            note = None if recorder is None else repeated.producer_id
            self._awaits(Forwarded(repeated.correlation_id, _PRODUCED, PRODUCE, repeated.version, note))
        return True

    def _next_in_line(self, buf: Buffer, start: int, end: int, now_ms: int) -> Step | None:
        """None: hold it, the quota's state has been asked."""
        if end - start < _HEAD.size:
            raise MalformedFrame("a request of less than 8 bytes")
        api_key, api_version, correlation_id = _HEAD.unpack_from(buf, start)
        treatment = TREATMENTS.get(api_key << 16 | api_version & 0xFFFF)
        if treatment is None:
            return self._unspoken(api_key, api_version, correlation_id)
        if self.asked is None and self.alteration is None:
            self._counters.requests[api_key] += 1
        if not self.session.client_id:
            self.session.client_id = peek_request(buf, start, end).client_id or ""
        recorder = self.recorder
        if recorder is not None and not recorder.is_introduced and treatment < _NOTED:
            recorder.introduced()
        if api_key == PRODUCE:
            return self._produce(buf, start, end, api_version, correlation_id, now_ms)
        if treatment > _NOTED:
            return self._noted(buf, start, end, treatment, now_ms)
        note: object = None
        step = FORWARD
        if api_key in self._guarded:
            named = self._gateway_topics.look(api_key, api_version, buf, start, end)
            if named is not None:
                step = self._refuse_gateway_topic(api_key, named)
                if step is not INSTEAD:
                    return step
                note = named.refusals
        if api_key in _FETCHES and self._byte_quota.is_on:
            sensors = self._meters_now(now_ms)[1]
            if sensors is not None:
                treatment, note = Treatment.METERED, sensors
                step = self._fetch_less(sensors, buf, start, end)
        self._awaits(Forwarded(correlation_id, treatment, api_key, api_version, note))
        return step

    def _noted(self, buf: Buffer, start: int, end: int, treatment: Treatment, now_ms: int) -> Step | None:
        """A request whose answer says something only together with it."""
        api_key, api_version, correlation_id = _HEAD.unpack_from(buf, start)
        if treatment is Treatment.ALTER_QUOTAS:
            done = self._alter_quotas(buf, start, end)
            if done is FORWARD:
                self._awaits(Forwarded(correlation_id, Treatment.PASS, api_key, api_version, None))
            return done
        if treatment is Treatment.INIT_PRODUCER_ID:
            return self._init_producer_id(buf, start, end, api_version, correlation_id, now_ms)
        note = note_of_request(treatment, self.sasl, buf, start, end)
        recorder = self.recorder
        if recorder is not None and treatment is Treatment.API_VERSIONS and isinstance(note, tuple):
            recorder.software = note
        self._awaits(Forwarded(correlation_id, treatment, api_key, api_version, note))
        return FORWARD

    def _fetch_less(self, sensors: ClientSensors, buf: Buffer, start: int, end: int) -> Step:
        """One answer may bring as much as the rate allows in its whole window, as Kafka has it."""
        lowered = lowered_fetch(buf, start, end, sensors.window_bytes) if sensors.throttles else None
        if lowered is None:
            return FORWARD
        self.instead = lowered
        return INSTEAD

    def _alter_quotas(self, buf: Buffer, start: int, end: int) -> Step | None:
        """FORWARD: nothing of ours is in it; None: it is held until it has been decided."""
        if self.alteration is None:
            self.alteration = QuotaExchange.begin(buf, start, end, self.session.user, 0)
            if self.alteration is None:
                return FORWARD
            self.alteration_answered()
        if not self.alteration.is_over:
            return None
        exchange, self.alteration = self.alteration, None
        self._answer(exchange.answer())
        return TAKEN

    def _produce(
        self, buf: Buffer, start: int, end: int, api_version: int, correlation_id: int, now_ms: int
    ) -> Step | None:
        asked, self.asked = self.asked, None
        try:
            acks, transactional, batches = self._walk(buf, start, end)
        except ForbiddenTopic as forbidden:
            return self._produced_to_gateway_topic(buf, start, end, forbidden.acks)
        note: object = None
        if batches:
            verdict = self._admission.judge(
                self.session, batches, transactional=transactional, now_ms=now_ms, pending=asked
            )
            if not isinstance(verdict, Forward):
                if isinstance(verdict, PendingDecision):
                    self.asked = verdict
                    return None
                return self._stop(verdict, buf, start, end, acks, now_ms)
            recorder = self.recorder
            if recorder is not None:
                if verdict.decisions:
                    recorder.decided(verdict.decisions, buf, start, end, now_ms)
                recorder.forwarded(batches, self._repeated.record_counts, end - start, now_ms)
                # The id alone, as a rule: what waits for an answer should be small.
                note = batches[0][0] if not 1 < len(batches) <= MOST_BATCHES_NOTED else batches
        treatment = _PRODUCED
        if self._byte_quota.is_on:
            sensors = self._meters_now(now_ms)[0]
            if sensors is not None and self._mute_for(sensors.record(end - start, now_ms), now_ms):
                treatment = Treatment.PRODUCE_THROTTLED
        if acks != 0:
            self._awaits(Forwarded(correlation_id, treatment, PRODUCE, api_version, note))
        return FORWARD

    def _meters_now(self, now_ms: int) -> tuple[ClientSensors | None, ClientSensors | None]:
        quota, session = self._byte_quota, self.session
        metered_as = (quota.generation, session.user, session.client_id)
        if metered_as != self._metered_as:
            self._metered_as = metered_as
            produce, fetch = (
                quota.sensors(kind, session.user, session.client_id, now_ms)
                for kind in (Kind.PRODUCE, Kind.FETCH)
            )
            self._sensors = produce, fetch
        return self._sensors

    def _mute_for(self, throttle_ms: int, now_ms: int) -> int:
        """Nothing more is handed on for so long; returns the mute that is in force, 0 without a throttle."""
        if not throttle_ms:
            return 0
        self.muted_until_ms = max(self.muted_until_ms, now_ms + throttle_ms)
        return self.muted_until_ms - now_ms

    def _init_producer_id(
        self, buf: Buffer, start: int, end: int, api_version: int, correlation_id: int, now_ms: int
    ) -> Step | None:
        asked, self.asked = self.asked, None
        note = messages.init_producer_id_request(buf, start, end)
        # Without a transactional id a broker hands out a new id, whichever id the request names (Kafka's
        # TransactionCoordinator.handleInitProducerId); with one it knows the producer, and mostly its id stays.
        if note.transactional_id is None:
            verdict = self._admission.judge_new_id(self.session, now_ms, asked)
            if isinstance(verdict, PendingDecision):
                self.asked = verdict
                return None
            if isinstance(verdict, Refuse):
                return self._refuse_new_id(verdict, note, api_version, correlation_id, now_ms)
        self._awaits(
            Forwarded(correlation_id, Treatment.INIT_PRODUCER_ID, INIT_PRODUCER_ID, api_version, note)
        )
        return FORWARD

    def _refuse_new_id(
        self,
        verdict: Refuse,
        request: messages.InitProducerIdRequest,
        api_version: int,
        correlation_id: int,
        now_ms: int,
    ) -> Step:
        throttle_time_ms = verdict.throttle_time_ms
        if self.recorder is not None:
            self.recorder.producer_id_withheld(request, now_ms)
        self._counters.requests_refused[INIT_REFUSED] += 1
        self.refused.append(verdict)
        self.muted_until_ms = max(self.muted_until_ms, now_ms + throttle_time_ms)
        self._answer(messages.init_producer_id_refused(correlation_id, api_version, throttle_time_ms))
        return TAKEN

    def _awaits(self, forwarded: Forwarded) -> None:
        if self._line.forwarded(forwarded):
            self.wants_attention = True

    def _refused_behind_mute(self, buf: Buffer, start: int, end: int, now_ms: int) -> Step | None:
        """First in line behind the mute: answered at once when it is refused anyway; None: hold it."""
        if end - start < _HEAD.size:
            raise MalformedFrame("a request of less than 8 bytes")
        api_key, api_version, _correlation_id = _HEAD.unpack_from(buf, start)
        if api_key != PRODUCE or (api_key << 16 | api_version & 0xFFFF) not in TREATMENTS:
            return None
        acks, transactional, batches = walk(buf, start, end)
        if not batches:
            return None
        verdict = self._admission.judge_while_muted(
            self.session, batches, transactional=transactional, now_ms=now_ms
        )
        if verdict is None:
            return None
        self._counters.requests[PRODUCE] += 1
        return self._stop(verdict, buf, start, end, acks, now_ms)

    def _stop(
        self, verdict: Refuse | Close, buf: Buffer, start: int, end: int, acks: int, now_ms: int
    ) -> Step:
        """Answer a refusal and mute, or close where nothing can be answered."""
        if isinstance(verdict, Close):
            return self._close("quota", verdict.reason)
        if self.recorder is not None:
            self.recorder.decided(verdict.decisions, buf, start, end, now_ms)
        if acks == 0:
            # As Kafka does on an error with acks=0: there is no answer that could carry it.
            return self._close(
                "acks0_refused", "a refused Produce with acks=0 can be answered by closing only"
            )
        self._counters.requests_refused[verdict.reason] += 1
        self.refused.append(verdict)
        until_ms = now_ms + verdict.throttle_time_ms
        if verdict.rearms_mute or now_ms >= self.muted_until_ms:
            self.muted_until_ms = max(self.muted_until_ms, until_ms)
        text = error_message(verdict, self._admission.quotas.help_url)
        self._answer(refusal(buf, start, end, verdict.throttle_time_ms, text, ErrorCode.NOT_ENOUGH_REPLICAS))
        return TAKEN

    def _produced_to_gateway_topic(self, buf: Buffer, start: int, end: int, acks: int) -> Step:
        """Refused as a whole and at no cost: neither quota nor mute knows of it."""
        self._count_gateway_topic(PRODUCE)
        if acks == 0:
            return self._close(CLOSE_CAUSE, CLOSE_REASON)
        self._answer(refusal(buf, start, end, 0, GATEWAY_TOPIC_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return TAKEN

    def _refuse_gateway_topic(self, api_key: int, named: Refused) -> Step:
        self._count_gateway_topic(api_key)
        if named.answer is not None:
            self._answer(named.answer)
            return TAKEN
        if named.instead is None:
            return self._close(CLOSE_CAUSE, CLOSE_REASON)
        self.instead = named.instead
        return INSTEAD

    def _count_gateway_topic(self, api_key: int) -> None:
        self._counters.gateway_topic_refused[SPOKEN[api_key].name] += 1
        self.gateway_topic_requests.append(api_key)
        self.wants_attention = True

    def _unspoken(self, api_key: int, api_version: int, correlation_id: int) -> Step:
        """A version that was not offered. Two of them have an answer that every client understands."""
        if api_key == API_VERSIONS:
            self._answer(messages.too_new_api_versions(correlation_id))
            return TAKEN
        if api_key == SASL_HANDSHAKE and api_version == 0:
            # v0 goes on in raw tokens without Kafka's headers, in which nobody could find the frames again.
            self._answer(messages.sasl_handshake_refused(correlation_id, api_version))
            return TAKEN
        raise UnsupportedVersion(api_key, api_version)

    def _answer(self, payload: bytes) -> None:
        self.wants_attention = True
        self._line.own(payload)

    def _hold(self, buf: Buffer, start: int, end: int) -> Step:
        frame = bytes(buf[start - SIZE_PREFIX_BYTES : end])
        self.wants_attention = True
        self.held.append(frame)
        self.held_bytes += len(frame)
        return TAKEN

    def _close(self, cause: str, reason: str) -> Step:
        self.close_cause = cause
        self.close_reason = reason
        return CLOSE


def _is_of_somebody(buf: Buffer, start: int, end: int) -> bool:
    return end - start >= _HEAD.size and _HEAD.unpack_from(buf, start)[0] in _OF_SOMEBODY
