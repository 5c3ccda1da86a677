"""The handler of an API, the requests in flight, and the state and operations that handlers have. PURE.

A request arrives as `Request` with its header parsed; `Api.handle_request` decides what happens next. A request
forwarded to the broker stays in flight as the same object until `Api.handle_response` has seen the answer, or until
the answer has streamed through. The classes are in one file because each of them refers to the next.

This module must not know which APIs exist (table.py), nor which request is next (session.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from enum import IntEnum
from struct import Struct
from typing import Final

from pidgate.client_faults import ClientFault, find_faults, traits_of
from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.gateway_topics import CLOSE_CAUSE, CLOSE_REASON, GatewayTopics
from pidgate.gateway.cluster.seen_answers import Answer
from pidgate.gateway.cluster.token_owners import TokenOwners
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.actions import (
    WAITING,
    Action,
    AskBroker,
    End,
    LogClient,
    LogGatewayTopic,
    LogRefusal,
    OwnQuestion,
    ToBroker,
    ToClient,
    WakeAt,
)
from pidgate.gateway.proxy.apis.responses import UNREAD, Buffer, Passing, Response
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES
from pidgate.gateway.proxy.turns import Account
from pidgate.gateway.proxy.waits import Wait, Why, why_refused
from pidgate.gateway.quotas.kafka_api import QuotaExchange
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.protocol.errors import MalformedFrame
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.logins import Build, introduce
from pidgate.protocol.messages import Question
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.protocol.sasl import SaslExchange
from pidgate.protocol.versions import SPOKEN
from pidgate.protocol.work import ANSWERED_BYTES_FOR_ONE, DECIDED_FOR, NAMED_FOR_BYTE, Walk
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteBucket, ByteQuota, ClientSensors, Kind, terms_of
from pidgate.quota.decisions import (
    NO_PRODUCER_ID,
    Client,
    Close,
    Forward,
    ProducerBatch,
    Refuse,
    Verdict,
)
from pidgate.quota.entities import User
from pidgate.quota.settings import Quotas

SIZE_PREFIX_BYTES: Final = 4
_HEAD: Final = Struct(">hhi")


class Step(IntEnum):
    """A handler's decision about a request."""

    FORWARD = 0
    """Forward it unchanged."""
    TAKEN = 1
    """It was answered here, or another frame was forwarded in its place: see the actions."""
    CLOSE = 2
    """The connection is closed: no later request is handled."""
    HOLD = 3
    """Hold the request and all later ones until it is decided."""


FORWARD: Final = Step.FORWARD
TAKEN: Final = Step.TAKEN
CLOSE: Final = Step.CLOSE
HOLD: Final = Step.HOLD


class Api:
    """An API in a range of versions.

    This base class forwards the request, unless it names a gateway topic, and streams the answer through unread.
    """

    passing: Passing = UNREAD
    needs_identity: bool = True
    """Handling depends on the user: the request waits for an authentication in progress."""
    waits_for_size: bool = False
    """The request waits while `ApiContext.awaits_size`. Later requests wait too, as brokers serve them in
    order."""
    paid_by: Kind | None = None
    """The byte rate that pays for its bytes."""
    is_repeatable: bool = False
    """Requests and answers pass unchanged, with nothing done but what a lane does (gateway/lane)."""
    introduces: bool = True
    """From this request on the client is known well enough to be recorded."""

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Decide about the next request in order, on a channel that is not muted.

        Raises KafkaProtocolError when the client breaks the protocol.
        """
        step = context.refuse_if_guarded(request)
        return context.forward(request) if step is None else step

    def handle_while_muted(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Decide about the first request behind a mute: HOLD, unless it would be refused anyway."""
        return HOLD

    def handle_in_debt(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        """Decide about a request while the account of its bytes is in debt."""
        return self.handle_while_muted(context, request, now_ms)

    def note_held(self, context: ApiContext, request: Request, now_ms: int) -> None:
        """Note that the request waits.

        Must not raise: errors in the request are reported when its turn comes.
        """

    def begin_response(self, context: ApiContext, request: InFlightRequest, response: Response) -> Passing:
        """Return how to pass on an answer of which only the beginning has arrived."""
        return self.passing

    def handle_response(
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

    def copy_frame(self) -> int:
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


LONG_POLLS: Final = frozenset({1, 11, 14, 78})
"""Fetch, JoinGroup, SyncGroup, ShareFetch: their answers may come after minutes, and nothing is lost without them."""

MOST_IN_FLIGHT: Final = 4096
"""Most unanswered requests; above it reading pauses. Brokers work on one at a time (KIP-219)."""
COUNTED_IN_FLIGHT: Final = 16
"""Unanswered requests take memory in groups of so many. Clients have five."""
NO_ANSWERS: Final[list[bytes]] = []


class InFlightRequests:
    """Unanswered requests of one connection in order, with the gateway's own answers in between.

    The broker's answers are matched by position. An answer of the gateway's own leaves after all earlier ones.
    """

    __slots__ = ("_in_order", "own_bytes", "written_s")

    def __init__(self) -> None:
        # A list, because few connections have more than five and an empty deque takes 700 bytes of every idle
        # one.
        self._in_order: list[InFlightRequest | bytes] = []
        self.own_bytes = 0
        """Bytes of the gateway's own answers that wait for their turn."""
        self.written_s = 0.0
        """When the only request in flight was written to the broker. 0: not measured."""

    def __len__(self) -> int:
        return len(self._in_order)

    @property
    def has_prompt_answers(self) -> bool:
        """Return whether an answer is outstanding, or of the gateway's own, that is not to a long poll."""
        return any(isinstance(one, bytes) or one.api_key not in LONG_POLLS for one in self._in_order)

    @property
    def is_one_prompt(self) -> bool:
        """Return whether one request is in flight, and nothing else, whose answer may not take minutes."""
        in_order = self._in_order
        if len(in_order) != 1:
            return False
        only = in_order[0]
        return isinstance(only, InFlightRequest) and only.api_key not in LONG_POLLS

    def requests(self) -> list[InFlightRequest | bytes]:
        """Return all in order. Do not change the list."""
        return self._in_order

    def lend(self) -> None:
        """Forget all: a lane matches their answers."""
        self._in_order = []
        self.written_s = 0.0

    def take_back(self, requests: list[InFlightRequest]) -> None:
        """Expect the answers to these, which a lane has left."""
        self._in_order = [*requests]

    def add(self, request: InFlightRequest) -> bool:
        """Add a request sent to the broker. Returns whether their number has to be counted: see ReadAhead."""
        in_order = self._in_order
        in_order.append(request)
        return len(in_order) % COUNTED_IN_FLIGHT == 0

    def add_own_answer(self, answer: bytes) -> bool:
        """Add a framed answer of the gateway's own. Returns False if nothing is in flight: it is next."""
        if not self._in_order:
            return False
        self._in_order.append(answer)
        self.own_bytes += len(answer)
        return True

    def expect(self, correlation_id: int) -> InFlightRequest:
        """Return the request of the broker's next answer.

        Raises MalformedFrame when there is none, or when the correlation id differs: frame boundaries are
        lost then, and no later byte can be trusted.
        """
        head = self._in_order[0] if self._in_order else None
        if not isinstance(head, InFlightRequest) or head.correlation_id != correlation_id:
            raise MalformedFrame(
                f"the broker answered {correlation_id}, which is not the next request in flight"
            )
        return head

    def next_alone(self) -> InFlightRequest | None:
        """Return the request of the broker's next answer, unless an own answer waits directly behind it."""
        in_order = self._in_order
        if not in_order or (len(in_order) > 1 and isinstance(in_order[1], bytes)):
            return None
        head = in_order[0]
        return head if isinstance(head, InFlightRequest) else None

    def remove_answered(self) -> list[bytes]:
        """Remove the request whose answer has passed. Returns the gateway's own answers that are next."""
        in_order = self._in_order
        in_order.pop(0)
        if not in_order or isinstance(in_order[0], InFlightRequest):
            return NO_ANSWERS
        answers: list[bytes] = []
        while in_order:
            answer = in_order[0]
            if isinstance(answer, InFlightRequest):
                break
            answers.append(answer)
            self.own_bytes -= len(answer)
            in_order.pop(0)
        return answers

    def drop_own_answers(self) -> None:
        """Drop the gateway's own waiting answers: the client is gone."""
        self._in_order = [one for one in self._in_order if isinstance(one, InFlightRequest)]
        self.own_bytes = 0


class Surroundings:
    """What the sessions of one listening port share.

    `translate`: learn a broker's node id and real address, return this listener's advertised address.
    `node_is_known`: whether this port stands for one known broker. `learn_topics`: gets every Metadata
    answer, with its version and its hash.
    """

    def __init__(
        self,
        admission: Admission,
        *,
        counters: Counters,
        gateway_topics: GatewayTopics,
        byte_quota: ByteQuota,
        authentication: Authentication,
        token_owners: TokenOwners,
        translate: Callable[[int, str, int], tuple[str, int]],
        node_is_known: Callable[[], bool],
        learn_topics: Callable[[Answer, int, int], None],
        principal_claim: str,
        gateway_logs_in: bool,
        hosts: Callable[[], Collection[str]],
        clock_s: Callable[[], float],
    ) -> None:
        """`gateway_logs_in`: the gateway logs in at the brokers for every client. `hosts`: those of brokers.

        `clock_s`: measures decisions, and decides nothing.
        """
        self.admission = admission
        self.counters = counters
        self.gateway_topics = gateway_topics
        self.byte_quota = byte_quota
        self.authentication = authentication
        self.token_owners = token_owners
        self.translate = translate
        self.node_is_known = node_is_known
        self.learn_topics = learn_topics
        self.principal_claim = principal_claim
        self.gateway_logs_in = gateway_logs_in
        self.hosts = hosts
        self.clock_s = clock_s


class Login:
    """The login of one connection.

    Before its first token ApiVersions and SaslHandshake are answered as its broker answered them to another
    connection, and no broker is dialled. `introduction` repeats them to the broker.
    """

    __slots__ = (
        "asked",
        "awaits_owner",
        "found",
        "is_at_broker",
        "is_gateways",
        "is_missing",
        "mechanism_told",
        "named_user",
        "sasl",
        "sasl_in_flight",
        "versions_told",
    )

    def __init__(self, at: Surroundings) -> None:
        self.sasl = SaslExchange()
        """Fed with the tokens as they pass; knows the user afterwards."""
        self.sasl.principal_claim = at.principal_claim
        self.is_gateways = at.gateway_logs_in
        """The gateway logs in at the broker for this client, whose own login and credentials are refused."""
        self.sasl_in_flight = 0
        """SASL requests in flight."""
        self.is_missing = at.authentication.required is not False
        """The client has not logged in, and a login is required or may be required."""
        self.awaits_owner = False
        """Logged in by a delegation token whose owner is still being looked up."""
        self.named_user = False
        """The client's user comes from a login: SASL, or a certificate that counts as one."""
        self.is_at_broker = False
        """A token was forwarded: the broker answers everything from here on."""
        self.asked: Question | None = None
        """The question of the first held request. None: it waits for no answer of the broker."""
        self.found: bytes | None = None
        """The broker's answer to that question. None: not found yet."""
        self.versions_told: tuple[Question, bytes] | None = None
        """The last ApiVersions answered here, and the broker's answer. None: there was none."""
        self.mechanism_told = ""
        """The mechanism of the last SaslHandshake accepted here."""

    @property
    def is_answered_here(self) -> bool:
        """Return whether ApiVersions and SaslHandshake are answered without a broker connection."""
        return self.is_missing and not self.is_at_broker

    @property
    def awaits_broker(self) -> bool:
        return self.asked is not None and self.found is None

    def introduction(self) -> Generator[Build, bytes, int] | None:
        """Return the exchange that repeats to the broker what was answered here. None: nothing was."""
        if self.versions_told is None and not self.mechanism_told:
            return None
        return introduce(self.versions_told, self.mechanism_told)


LONGEST_UNTOLD_MS: Final = 10_000
"""A client that is not told its throttle takes a request as lost after 30 s."""
NO_PRODUCE: Final = RepeatedProduce()
"""Before the first Produce of a connection; most connections never send one. It recognises nothing."""
NEVER: Final = 1 << 62
NO_SENSORS: Final[tuple[ClientSensors | None, ClientSensors | None]] = (None, None)


class ApiContext:
    """One connection as seen by the handlers of APIs. Operations append to `actions`."""

    __slots__ = (
        "_sensors",
        "_sensors_of",
        "account",
        "actions",
        "admission",
        "alteration",
        "at",
        "awaited_account",
        "awaits_size",
        "byte_quota",
        "client",
        "counters",
        "faults",
        "guarded",
        "held_since_ms",
        "in_flight",
        "lend_after",
        "login",
        "means_node",
        "muted_until_ms",
        "recorder",
        "repeated",
        "software",
        "streak",
        "wait",
        "waits_under",
    )

    def __init__(self, at: Surroundings, client: Client) -> None:
        self.at = at
        self.client = client
        self.actions: list[Action] = []
        """Actions not yet returned by the session."""
        self.account = Account("")
        """Pays for the time of the event loop (turns.py)."""
        # Flat attributes, because the hot path reads them for every request.
        self.admission = at.admission
        self.counters = at.counters
        self.byte_quota = at.byte_quota
        self.recorder: ConnectionRecorder | None = None
        """None: no events are written."""
        self.in_flight = InFlightRequests()
        self.login = Login(at)
        self.repeated = NO_PRODUCE
        self.guarded = at.gateway_topics.guarded
        """API keys of requests that may name a gateway topic."""
        self._sensors_of: tuple[int, User, str] | None = None
        self._sensors = NO_SENSORS
        self.waits_under: Quotas | None = None
        """The quotas in force when the channel was muted, or began to wait for a byte account."""
        self.streak = 0
        """Requests in a row that needed no decision: a lane would have passed them."""
        self.lend_after = NEVER
        """Lend the connection to a lane after so many in a row."""
        self.muted_until_ms = 0
        """Several requests are under way at once, so throttles may overlap: the latest deadline applies."""
        self.wait: Wait | None = None
        """The latest mute, or delay after the login. None: there was none."""
        self.held_since_ms = 0
        """Since when the first held request waits."""
        self.software = ("", "")
        """Name and version of the client library, from ApiVersions."""
        self.awaits_size = False
        """An answer in flight counts against a byte rate, and its size is unknown until its head arrives."""
        self.awaited_account: ByteBucket | None = None
        """The account that the first held request waits for."""
        self.alteration: QuotaExchange | OwnQuestion | None = None
        """The exchange about the client quotas request at the head of the held requests."""
        self.faults: tuple[ClientFault, ...] | None = None
        """Of the client's library, by its name in ApiVersions. None: no request has shown whether it has a name."""
        self.means_node = False
        """The client sent the NodeId of ApiVersions (KIP-1242): no other broker may be substituted for this
        port's node."""

    def take_actions(self) -> list[Action]:
        """Return the actions collected since the last call. Do not change the list."""
        actions = self.actions
        if actions:
            self.actions = []
        return actions

    # ---- decisions about a request ---------------------------------------------------------------------

    def judge(self, batches: list[ProducerBatch], *, transactional: bool, now_ms: int) -> Verdict:
        """Judge the request's batches (Admission.judge) and count them for the turn."""
        clock_s = self.at.clock_s
        began_s = clock_s()
        verdict = self.admission.judge(self.client, batches, transactional=transactional, now_ms=now_ms)
        self.counters.decision_times.observe(clock_s() - began_s)
        decided = verdict.decisions if isinstance(verdict, Forward) else batches
        self.account.spent += len(batches) + DECIDED_FOR * len(decided)
        return verdict

    def knows_repeated(self, now_ms: int) -> bool:
        """Return whether the Produce that `repeated` has just recognised would be forwarded: its ids are known."""
        repeated = self.repeated
        return self.admission.knows(
            self.client,
            repeated.producer_id,
            repeated.epoch,
            repeated.topics,
            repeated.partitions,
            repeated.transactional,
            now_ms,
        )

    def judge_while_muted(
        self, batches: list[ProducerBatch], *, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        """Judge a request read ahead behind a mute (Admission.judge_while_muted) and count it for the turn."""
        verdict = self.admission.judge_while_muted(
            self.client, batches, transactional=transactional, now_ms=now_ms
        )
        self.account.spent += len(batches) if verdict is None else DECIDED_FOR * len(batches)
        return verdict

    def forward(self, request: InFlightRequest) -> Step:
        """Forward the request unchanged and expect its answer. Returns FORWARD."""
        if isinstance(request, Request):
            request.release()
        if self.in_flight.add(request):
            self.actions.append(WAITING)
        return FORWARD

    def forward_instead(self, request: Request, frame: bytes) -> Step:
        """Forward this frame in the request's place and expect its answer. Returns TAKEN."""
        self.actions.append(ToBroker(frame))
        self.forward(request)
        return TAKEN

    def ask_broker(self, question: Question) -> Step:
        """Hold the request until the broker's answer to a question before the login is found. Returns HOLD."""
        self.login.asked = question
        self.actions.append(AskBroker(question))
        return HOLD

    def take_broker_answer(self) -> tuple[Question, bytes] | None:
        """Return the question of the held request with the broker's answer. None: the request has to ask, or waits."""
        login = self.login
        question, found = login.asked, login.found
        if question is None or found is None:
            return None
        login.asked = login.found = None
        return question, found

    def respond(self, answer: bytes) -> Step:
        """Send a framed answer of the gateway's own in its turn. Returns TAKEN."""
        self.account.spent += len(answer) // ANSWERED_BYTES_FOR_ONE
        self.actions.append(WAITING if self.in_flight.add_own_answer(answer) else ToClient(answer))
        return TAKEN

    def refuse(self, refusal: Refuse, label: str, now_ms: int, *, rearms_mute: bool = True) -> None:
        """Count and log a refusal, and mute the channel. The answer is the caller's."""
        self.counters.requests_refused[label] += 1
        self.actions.append(LogRefusal(refusal))
        if rearms_mute or now_ms >= self.muted_until_ms:
            why = why_refused(refusal)
            self.mute_for(self.mute_for_ms(refusal.throttle_time_ms), why, now_ms, refusal.producer_id)

    def mute_for(self, for_ms: int, why: Why, now_ms: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Mute the channel for so long, and note why, unless a longer mute is in force."""
        self.counters.throttle_times.observe(for_ms / 1_000)
        until_ms = now_ms + for_ms
        if until_ms >= self.muted_until_ms:
            self.note_wait(why, now_ms, until_ms, producer_id)
        self.mute(until_ms)

    def mute(self, until_ms: int) -> None:
        """Forward nothing until `until_ms`, or until a longer mute in force ends, while the quotas stay the same."""
        self.muted_until_ms = max(self.muted_until_ms, until_ms)
        self.waits_under = self.admission.quotas
        self.actions.append(WakeAt(self.muted_until_ms))

    def note_wait(self, why: Why, now_ms: int, until_ms: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Note why and until when the client waits from now on."""
        wait = self.wait
        if wait is not None and wait.goes_on(why, producer_id, now_ms):
            wait.until_ms = until_ms
        else:
            self.wait = Wait(why, now_ms, until_ms, producer_id)

    @property
    def are_quotas_changed(self) -> bool:
        """Return whether the client's quotas are no longer those under which its wait began."""
        before, after, client = self.waits_under, self.admission.quotas, self.client
        if before is None or before is after:
            return False
        user, client_id = client.user, client.client_id
        return terms_of(before, user, client_id) != terms_of(after, user, client_id)

    def close(self, cause: str, reason: str) -> Step:
        """End the connection; earlier answers still leave. Returns CLOSE."""
        self.actions.append(End(cause, reason))
        return CLOSE

    def refuse_if_guarded(self, request: Request) -> Step | None:
        """Refuse a request that names a gateway topic. None: it names none."""
        topics = self.at.gateway_topics
        if request.api_key not in self.guarded or not topics.may_name(
            request.buf, request.start, request.end
        ):
            return None
        self.account.spent += NAMED_FOR_BYTE * (request.end - request.start)
        named = topics.check_request(request.buf, request.head)
        if named is None:
            return None
        if named.instead is None:
            return self.refuse_gateway_topic(request.api_key, named.answer)
        self.count_gateway_topic(request.api_key)
        request.note = named.refusals
        return self.forward_instead(request, named.instead)

    def refuse_gateway_topic(self, api_key: int, answer: bytes | None) -> Step:
        """Answer a request that names a gateway topic, or close (None).

        It counts against no quota and does not mute.
        """
        self.count_gateway_topic(api_key)
        return self.close(CLOSE_CAUSE, CLOSE_REASON) if answer is None else self.respond(answer)

    def count_gateway_topic(self, api_key: int) -> None:
        """Count and log a request that named a gateway topic."""
        self.counters.gateway_topic_refused[SPOKEN[api_key].name] += 1
        self.actions.append(LogGatewayTopic(api_key))

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

    def account_in_debt(self, kind: Kind, now_ms: int) -> ByteBucket | None:
        """Return the account that the next request has to wait for. None: it passes, and ends the connection's turn."""
        if not self.byte_quota.is_on:
            return None
        sensors = self.sensors(now_ms)[0 if kind is Kind.PRODUCE else 1]
        if sensors is None or not sensors.throttles:
            return None
        account = sensors.bucket(now_ms)
        if not account.may_pass(self.client.connection_id, now_ms):
            return account
        account.end_turn()
        return None

    def record_bytes(self, sensors: ClientSensors, nbytes: int, now_ms: int) -> bool:
        """Count bytes; mute the channel and return True above the rate."""
        throttle_ms = sensors.record(nbytes, now_ms)
        if throttle_ms:
            why = Why.PRODUCED_BYTES if sensors.kind is Kind.PRODUCE else Why.FETCHED_BYTES
            self.mute_for(self.mute_for_ms(throttle_ms), why, now_ms)
        return bool(throttle_ms)

    def told_ms(self, throttle_ms: int) -> int:
        """Return the throttle_time_ms that this client is told for a throttle."""
        return throttle_ms if self.client.traits.is_told_throttle else 0

    def mute_for_ms(self, throttle_ms: int) -> int:
        """Return how long this client's channel is muted for a throttle."""
        return throttle_ms if self.client.traits.is_told_throttle else min(throttle_ms, LONGEST_UNTOLD_MS)

    def mute_left_to_tell_ms(self, now_ms: int) -> int:
        """Return what is left of the mute, as far as this client is told of it."""
        return self.told_ms(max(0, self.muted_until_ms - now_ms))

    def note_software(self, name: str, version: str) -> None:
        """Note what a client calls itself in ApiVersions, and what that library does not survive."""
        self.software = name, version
        if self.recorder is not None:
            self.recorder.software = name, version
        client_id = self.client.client_id
        faults, before = find_faults(name, version, client_id), self.faults
        self.faults, self.client.traits = faults, traits_of(name, version, client_id)
        if faults and faults != before:
            for fault in faults:
                self.counters.client_faults[fault.key] += 1
            self.actions.append(LogClient(name, version, faults))
