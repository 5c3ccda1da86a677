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

A Produce is held, too, while a SASL request is in flight: nobody knows yet whose it is, and a client that does not
wait for its authentication could charge its ids to ANONYMOUS.

A request that names one of the gateway's own topics is refused here, or another is forwarded for it (INSTEAD).

It must not know sockets, tasks or the clock: time is an argument, and `muted_until_ms` tells when to come back.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from struct import Struct
from typing import Final

from gateway.connection_recorder import ConnectionRecorder
from gateway.counters import Counters
from gateway.notes import note_of_request
from gateway.own_topics import CLOSE_CAUSE, CLOSE_REASON, OwnTopics
from gateway.treatments import API_VERSIONS, PRODUCE, SASL_HANDSHAKE, TREATMENTS, Treatment
from protocol import messages
from protocol.errors import ErrorCode, MalformedFrame, UnsupportedVersion
from protocol.headers import peek_request
from protocol.produce import ForbiddenTopic, refusal, walk
from protocol.repeated_produce import RepeatedProduce
from protocol.sasl import SaslExchange
from protocol.versions import SPOKEN
from quota.admission import Admission, Ask, Close, Forward, Refuse, Visitor
from quota.wording import error_message

SIZE_PREFIX_BYTES: Final = 4

HELD_LIMIT_BYTES: Final = 1024 * 1024
"""Read-ahead behind a mute: enough to notice a disconnect and to answer a pipeline of five at once.
The frame that crosses it is still taken whole; then reading stops until the mute ends."""

MOST_IN_FLIGHT: Final = 4096
"""Requests that wait for an answer; beyond it reading pauses. Brokers work on one at a time (KIP-219)."""

MOST_BATCHES_NOTED: Final = 8
"""Of a Produce that waits for its answer: which ids they have; of a larger one only the first id is kept."""

_HEAD: Final = Struct(">hhi")

_SASL: Final = (Treatment.SASL_HANDSHAKE, Treatment.SASL_AUTHENTICATE)

Buffer = bytes | bytearray

InFlight = tuple[int, Treatment, int, int, object]
"""A forwarded request: correlation id, treatment of its answer, api key, api version, note from the request."""


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

DISGUISED: Final = "disguised"
"""The note of a request for which another one was forwarded."""

OWN_TOPIC_MESSAGE: Final = "This topic belongs to the gateway."


class Conversation:
    """The state of one connection, from both sides. One instance per client connection."""

    __slots__ = (
        "_admission",
        "_counters",
        "_guarded",
        "_help_url",
        "_in_flight",
        "_own_topics",
        "_repeated",
        "_sasl_in_flight",
        "_walk",
        "asked",
        "close_cause",
        "close_reason",
        "held",
        "held_bytes",
        "instead",
        "muted_until_ms",
        "out",
        "own_topic_requests",
        "recorder",
        "refused",
        "sasl",
        "visitor",
        "wants_attention",
    )

    def __init__(
        self,
        admission: Admission,
        visitor: Visitor,
        help_url: str = "",
        counters: Counters | None = None,
        own_topics: OwnTopics | None = None,
    ) -> None:
        self.visitor = visitor
        self._admission = admission
        self._help_url = help_url
        self._counters = counters or Counters()
        self._own_topics = own_topics or OwnTopics()
        self._guarded = self._own_topics.guarded
        self._repeated = RepeatedProduce(self._own_topics.produced)
        self._walk = self._repeated.walk
        self.recorder: ConnectionRecorder | None = None
        """Told of what happens here; None: no events are written."""
        self._in_flight: deque[InFlight | bytes] = deque()
        self._sasl_in_flight = 0
        self.held: deque[bytes] = deque()
        """Frames behind the mute, whole and with their size prefix, in the order they came."""
        self.held_bytes = 0
        self.muted_until_ms = 0
        self.asked: Ask | None = None
        """The question about the first of the held frames; whoever has its answer puts it in, then calls `release`."""
        self.wants_attention = False
        """Something is to be sent, logged, timed or paused; whoever sees to it clears this. False for nearly
        every request, and a plain attribute, because every read asks."""
        self.out: list[bytes] = []
        """Framed answers of our own whose turn has come: send and clear."""
        self.refused: list[Refuse] = []
        """Refusals that nobody has logged yet: log and clear."""
        self.own_topic_requests: list[int] = []
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
        if self.held or (self._sasl_in_flight and _is_produce(buf, start, end)):
            return self._hold(buf, start, end)
        if now_ms < self.muted_until_ms:
            step = self._refused_behind_mute(buf, start, end, now_ms)
            return self._hold(buf, start, end) if step is None else step
        step = self._next_in_line(buf, start, end, now_ms)
        return self._hold(buf, start, end) if step is None else step

    def release(self, now_ms: int) -> tuple[list[bytes], bool]:
        """Go on with what was held. Returns (frames to forward, in order; whether to close now)."""
        forward: list[bytes] = []
        held = self.held
        while held and not self.awaits_decision:
            frame = held[0]
            if self._sasl_in_flight and _is_produce(frame, SIZE_PREFIX_BYTES, len(frame)):
                break
            if now_ms < self.muted_until_ms:
                refused = self._refused_behind_mute(frame, SIZE_PREFIX_BYTES, len(frame), now_ms)
                if refused is None:
                    break
                step = refused
            else:
                decided = self._next_in_line(frame, SIZE_PREFIX_BYTES, len(frame), now_ms)
                if decided is None:
                    break
                step = decided
            if step is CLOSE:
                return forward, True
            if step is FORWARD:
                forward.append(frame)
            elif step is INSTEAD:
                forward.append(self.instead)
            held.popleft()
            self.held_bytes -= len(frame)
        return forward, False

    def drop_held(self) -> int:
        """The client has gone: what it sent behind the mute reaches nobody. Returns the bytes dropped."""
        dropped = self.held_bytes
        self.asked = None
        self.held.clear()
        self.held_bytes = 0
        return dropped

    @property
    def awaits_decision(self) -> bool:
        """What is held waits for the answer to `asked`."""
        return self.asked is not None and self.asked.answer is None

    @property
    def awaits_answer(self) -> bool:
        """What is held waits for no time to pass, but for the quota's answer, or for a SASL answer of the broker."""
        return bool(self.held) and (self._sasl_in_flight > 0 or self.awaits_decision)

    @property
    def wants_no_more(self) -> bool:
        """The read-ahead is full: stop reading until the mute ends."""
        return self.held_bytes >= HELD_LIMIT_BYTES

    # ---- from the broker -------------------------------------------------------------------------------

    def expect(self, correlation_id: int) -> InFlight:
        """The request that the broker's next answer belongs to.

        Raises MalformedFrame when there is none, or when it carries another correlation id: the two sides
        no longer agree where frames begin, and nothing after this point could be trusted.
        """
        head = self._in_flight[0] if self._in_flight else None
        if not isinstance(head, tuple) or head[0] != correlation_id:
            raise MalformedFrame(
                f"the broker answered {correlation_id}, which is not the next request in flight"
            )
        return head

    def answered(self) -> None:
        """The answer of the request at the head has passed; answers of ours behind it have their turn now."""
        in_flight = self._in_flight
        head = in_flight.popleft()
        if self._sasl_in_flight and head[1] in _SASL:
            self._sasl_in_flight -= 1
        while in_flight:
            answer = in_flight[0]
            if isinstance(answer, tuple):
                return
            self.out.append(answer)
            in_flight.popleft()

    @property
    def is_quiet(self) -> bool:
        """Nothing is in flight: the connection can be closed without losing an answer."""
        return not self._in_flight and self.asked is None

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    # ---- inside ----------------------------------------------------------------------------------------

    def _next_in_line(self, buf: Buffer, start: int, end: int, now_ms: int) -> Step | None:
        """None: hold it, the quota's state has been asked."""
        if end - start < _HEAD.size:
            raise MalformedFrame("a request of less than 8 bytes")
        api_key, api_version, correlation_id = _HEAD.unpack_from(buf, start)
        treatment = TREATMENTS.get(api_key << 16 | api_version & 0xFFFF)
        if treatment is None:
            return self._unspoken(api_key, api_version, correlation_id)
        if self.asked is None:
            self._counters.requests[api_key] += 1
        if not self.visitor.client_id:
            self.visitor.client_id = peek_request(buf, start, end).client_id or ""
        recorder = self.recorder
        if recorder is not None and not recorder.is_introduced and treatment < Treatment.NOTED:
            recorder.introduced()
        if api_key == PRODUCE:
            return self._produce(buf, start, end, api_version, correlation_id, now_ms)
        note: object = None
        step = FORWARD
        if treatment > Treatment.NOTED:
            note = note_of_request(treatment, self.sasl, buf, start, end)
            if treatment in _SASL:
                self._sasl_in_flight += 1
            elif recorder is not None and treatment is Treatment.API_VERSIONS and isinstance(note, tuple):
                recorder.software = note
        elif api_key in self._guarded:
            step = self._look_for_own_topic(api_key, api_version, buf, start, end)
            if step is TAKEN or step is CLOSE:
                return step
            if step is INSTEAD:
                note = DISGUISED
        self._awaits((correlation_id, treatment, api_key, api_version, note))
        return step

    def _produce(
        self, buf: Buffer, start: int, end: int, api_version: int, correlation_id: int, now_ms: int
    ) -> Step | None:
        asked, self.asked = self.asked, None
        try:
            acks, transactional, batches = self._walk(buf, start, end)
        except ForbiddenTopic as forbidden:
            return self._produced_to_own_topic(buf, start, end, forbidden.acks)
        note: object = None
        if batches:
            verdict = self._admission.judge(
                self.visitor, batches, transactional=transactional, now_ms=now_ms, asked=asked
            )
            if not isinstance(verdict, Forward):
                if isinstance(verdict, Ask):
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
        if acks != 0:
            self._awaits((correlation_id, Treatment.PRODUCE, PRODUCE, api_version, note))
        return FORWARD

    def _awaits(self, forwarded: InFlight) -> None:
        in_flight = self._in_flight
        in_flight.append(forwarded)
        if len(in_flight) >= MOST_IN_FLIGHT:
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
            self.visitor, batches, transactional=transactional, now_ms=now_ms
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
        text = error_message(verdict, self._help_url)
        self._answer(refusal(buf, start, end, verdict.throttle_time_ms, text, ErrorCode.NOT_ENOUGH_REPLICAS))
        return TAKEN

    def _produced_to_own_topic(self, buf: Buffer, start: int, end: int, acks: int) -> Step:
        """Refused as a whole and at no cost: neither quota nor mute knows of it."""
        self._count_own_topic(PRODUCE)
        if acks == 0:
            return self._close(CLOSE_CAUSE, CLOSE_REASON)
        self._answer(refusal(buf, start, end, 0, OWN_TOPIC_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return TAKEN

    def _look_for_own_topic(self, api_key: int, api_version: int, buf: Buffer, start: int, end: int) -> Step:
        named = self._own_topics.look(api_key, api_version, buf, start, end)
        if named is None:
            return FORWARD
        self._count_own_topic(api_key)
        if named.answer is not None:
            self._answer(named.answer)
            return TAKEN
        if named.instead is None:
            return self._close(CLOSE_CAUSE, CLOSE_REASON)
        self.instead = named.instead
        return INSTEAD

    def _count_own_topic(self, api_key: int) -> None:
        self._counters.own_topic_refused[SPOKEN[api_key].name] += 1
        self.own_topic_requests.append(api_key)
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
        if self._in_flight:
            self._in_flight.append(payload)
        else:
            self.out.append(payload)

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


def _is_produce(buf: Buffer, start: int, end: int) -> bool:
    return end - start >= _HEAD.size and _HEAD.unpack_from(buf, start)[0] == PRODUCE
