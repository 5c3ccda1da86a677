"""A session without sockets: scripts of frames in, and all that its actions would have sent, logged or asked."""

from __future__ import annotations

from typing import Any

from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.cluster.token_owners import TokenOwners
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.actions import (
    PASS_FRAME,
    Action,
    AlterQuotas,
    AskBroker,
    End,
    FindOwner,
    LogGatewayTopic,
    LogRefusal,
    ToBroker,
    ToClient,
    WakeAt,
)
from pidgate.gateway.proxy.apis.api import (
    CLOSE,
    FORWARD,
    TAKEN,
    ApiContext,
    InFlightRequest,
    Login,
    Request,
    Step,
    Surroundings,
)
from pidgate.gateway.proxy.apis.responses import Response
from pidgate.gateway.proxy.session import Session
from pidgate.gateway.quotas.administration import Kept
from pidgate.gateway.quotas.kafka_api import QuotaExchange
from pidgate.protocol.messages import API_VERSIONS, Question
from pidgate.protocol.oauthbearer import DEFAULT_CLAIM
from pidgate.protocol.versions import SPOKEN
from pidgate.protocol.work import Walk
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota
from pidgate.quota.decisions import Client, Refuse
from pidgate.quota.entities import User
from tests.support import raw


def whole(frame: bytes, now_ms: int = 0) -> Response:
    """Return a framed answer of the broker as handlers get it."""
    response = Response()
    response.buf, response.start, response.end = bytearray(frame), 4, len(frame)
    response.may_be_kept, response.now_ms = False, now_ms
    return response


def answer_to(question: Question) -> bytes:
    """Return the answer of a broker that has all APIs and mechanisms, without its size prefix."""
    ranges = [
        {"api_key": key, "min_version": api.min_version, "max_version": api.max_version}
        for key, api in SPOKEN.items()
    ]
    mechanisms = ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"]
    body = {"api_keys": ranges} if question.api_key == API_VERSIONS else {"mechanisms": mechanisms}
    return raw.response(question.api_key, question.api_version, body)[4:]


class Talk:
    """One session. `finds_owners`: owners of tokens are being looked up until the test calls `owner_found`."""

    def __init__(self, admission: Admission, client: Client, **surroundings: Any) -> None:
        usual = {
            **{"counters": Counters(), "gateway_topics": GatewayTopics(), "token_owners": TokenOwners()},
            "byte_quota": ByteQuota(admission.state.in_force),
            "authentication": Authentication(required=False),
            "translate": lambda node_id, host, port: (host, port),
            "node_is_known": lambda: False,
            "learn_topics": lambda answer, api_version, hashed: None,
            "principal_claim": DEFAULT_CLAIM,
            "gateway_logs_in": False,
            "hosts": lambda: (),
            "clock_s": lambda: 0.0,
        }
        self.at = Surroundings(admission, **{**usual, **surroundings})
        self.session = Session(self.at, client)
        self.finds_owners = False
        self.out: list[bytes] = []
        """Own answers whose turn has come."""
        self.to_broker: list[bytes | bytearray] = []
        """Frames to the broker that are not the received ones."""
        self.refused: list[Refuse] = []
        self.gateway_topic_requests: list[int] = []
        self.tokens: list[str] = []
        """Tokens whose owner was asked for."""
        self.questions: list[Question] = []
        """Questions to the broker before the login."""
        self.finds_answers = False
        """Answers to them are not known until the test calls `broker_answered`."""
        self.wakes_ms: list[int] = []
        """When the session wanted to be woken."""
        self.alterations: list[QuotaExchange] = []
        """Exchanges whose changes are to be checked or made: the test calls `altered` for each."""
        self.end: End | None = None

    @property
    def context(self) -> ApiContext:
        return self.session.context

    @property
    def held(self) -> list[Request]:
        return self.session.held

    @property
    def muted_until_ms(self) -> int:
        return self.session.context.muted_until_ms

    def require_login(self, authentication: Authentication) -> None:
        """Begin again on a listener with this authentication."""
        self.at.authentication = authentication
        self.context.login = Login(self.at)

    def request(self, buf: bytes | bytearray, start: int, end: int, now_ms: int) -> Step:
        """Receive a request: FORWARD if it is forwarded as it is, CLOSE if the connection ends."""
        actions = self.session.receive(buf, start, end, now_ms)
        self.perform(actions)
        if not actions or actions[0] is PASS_FRAME:
            return FORWARD
        return TAKEN if self.end is None else CLOSE

    def release(self, now_ms: int) -> tuple[list[bytes | bytearray], bool]:
        """Wake the session in a new turn; the frames that go to the broker, and whether the connection ends."""
        self.context.account.spent = 0
        before = len(self.to_broker)
        self.perform(self.session.wake(now_ms))
        frames = self.to_broker[before:]
        del self.to_broker[before:]
        return frames, self.end is not None

    def expect(self, correlation_id: int) -> InFlightRequest:
        return self.context.in_flight.expect(correlation_id)

    def answered(self) -> None:
        """The answer to the first request in flight has passed."""
        self.perform(self.session.answer_passed())

    def broker_answers(self, frame: bytes, now_ms: int = 0) -> bytes | None:
        """A framed answer of the broker passes, to the first request in flight; return what replaces it."""
        request = self.expect(int.from_bytes(frame[4:8], "big"))
        result = request.api.handle_response(self.context, request, whole(frame, now_ms))
        self.answered()
        return result.finish() if isinstance(result, Walk) else result

    def authentication_learnt(self) -> None:
        self.perform(self.session.authentication_learnt())

    def certified(self, user: User, *, is_login: bool) -> None:
        self.perform(self.session.certified(user, is_login=is_login))

    @property
    def close_cause(self) -> str:
        return "" if self.end is None else self.end.cause

    @property
    def close_reason(self) -> str:
        return "" if self.end is None else self.end.reason

    def altered(self, problems: list[str | None] | None = None) -> None:
        """The changes of the first exchange were checked or made; without `problems`, nobody knows."""
        self.perform(self.session.quotas_altered(self.alterations.pop(0), problems, Kept.TOPIC))

    def broker_answered(self, answer: bytes) -> None:
        """The broker's answer to the last question is found."""
        self.perform(self.session.broker_answered(answer))
        self.perform(self.session.wake(0))

    def owner_found(self) -> None:
        self.perform(self.session.owner_found())

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case ToClient(answer):
                    self.out.append(answer)
                case ToBroker(frame):
                    self.to_broker.append(frame)
                case LogRefusal(refusal):
                    self.refused.append(refusal)
                case LogGatewayTopic(api_key):
                    self.gateway_topic_requests.append(api_key)
                case FindOwner(token_id):
                    self.tokens.append(token_id)
                    if not self.finds_owners:
                        self.owner_found()
                case AskBroker(question):
                    self.questions.append(question)
                    if not self.finds_answers:
                        self.broker_answered(answer_to(question))
                case WakeAt(when_ms):
                    self.wakes_ms.append(when_ms)
                case AlterQuotas(exchange):
                    self.alterations.append(exchange)
                case End():
                    self.end = action
                case _:
                    pass
