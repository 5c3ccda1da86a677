"""The gateway's own login at a broker, before the client's requests: what is said, what is taken, and what ends it."""

from collections.abc import Generator, Iterator

import pytest

from pidgate.gateway.proxy.broker_channel import BrokerChannel
from pidgate.gateway.proxy.broker_login import MOST_ANSWER_BYTES, BrokerLogin
from pidgate.gateway.proxy.client_channel import ClientChannel
from pidgate.gateway.proxy.connection_age import AgeLimits, ConnectionAge
from pidgate.protocol.errors import FrameTooLarge
from pidgate.protocol.logins import Build, LoginRefused, log_in
from pidgate.protocol.producer_requests import SASL_AUTHENTICATE_VERSION, SASL_HANDSHAKE_VERSION
from tests.support import raw
from tests.support.paper_transport import PaperTransport
from tests.support.scene import Scene, heartbeat

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
LIFETIME_MS = 60_000


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.loop.close()


class Login:
    """One login over a socket that the test plays."""

    def __init__(self, scene: Scene, header: bytes = b"") -> None:
        self.channel = ClientChannel(scene.context, lambda *_: None)
        self.client = PaperTransport(self.channel)
        self.exchange: Generator[Build, bytes, int] = log_in("PLAIN", "gw", "secret", "nonce")
        self.reader = BrokerLogin(self.channel.connection, self.exchange, header)
        self.broker = PaperTransport(self.reader)

    def error(self) -> BaseException | None:
        return self.reader.done.exception() if self.reader.done.done() else None


def handshake(error_code: int = 0) -> bytes:
    body = {"error_code": error_code, "mechanisms": ["PLAIN"]}
    return raw.response(SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION, body, correlation_id=1)


def authenticated(error_code: int = 0) -> bytes:
    body = {
        **{"error_code": error_code, "error_message": None, "auth_bytes": b""},
        "session_lifetime_ms": LIFETIME_MS,
    }
    return raw.response(SASL_AUTHENTICATE, SASL_AUTHENTICATE_VERSION, body, correlation_id=2)


@pytest.mark.parametrize("most", [1, 7, 1 << 20])
def test_after_the_last_answer_the_socket_is_the_broker_s_channel(scene: Scene, most: int) -> None:
    """However the answers are cut."""
    login = Login(scene, header=b"PROXY")
    said = login.broker.sent()
    assert said.startswith(b"PROXY")
    assert said[9:11] == SASL_HANDSHAKE.to_bytes(2, "big")
    login.broker.receive(handshake() + authenticated(), most)
    assert b"\0gw\0secret" in login.broker.sent()
    assert login.reader.done.result() == LIFETIME_MS
    assert isinstance(login.channel.connection.broker.channel, BrokerChannel)
    before = len(login.broker.sent())
    login.client.receive(heartbeat(5))
    assert login.broker.sent()[before:] == heartbeat(5)


@pytest.mark.parametrize(
    "answers", [handshake(33), handshake() + authenticated(58)], ids=["mechanism", "credentials"]
)
def test_a_refusal_of_the_broker_ends_the_login_and_its_socket(scene: Scene, answers: bytes) -> None:
    login = Login(scene)
    login.broker.receive(answers)
    assert isinstance(login.error(), LoginRefused)
    assert login.broker.aborted
    assert login.channel.connection.broker.channel is None


def test_an_answer_too_long_for_a_login_ends_it(scene: Scene) -> None:
    login = Login(scene)
    login.broker.receive((MOST_ANSWER_BYTES + 1).to_bytes(4, "big"))
    assert isinstance(login.error(), FrameTooLarge)
    assert login.broker.aborted


def test_a_broker_that_closes_during_the_login_is_an_error_of_the_login(scene: Scene) -> None:
    login = Login(scene)
    login.broker.receive(handshake()[:-1])
    login.broker.lost()
    assert isinstance(login.error(), ConnectionResetError)


def test_a_login_that_nobody_waits_for_any_more_opens_no_channel(scene: Scene) -> None:
    login = Login(scene)
    login.reader.done.cancel()
    login.broker.receive(handshake() + authenticated())
    assert login.channel.connection.broker.channel is None


def test_a_connection_ends_before_the_gateway_s_session_at_the_broker_does() -> None:
    """At three quarters of it, and once: the client reconnects."""
    age, limits = ConnectionAge(0), AgeLimits(idle_ms=10**9)
    age.logged_in(LIFETIME_MS, 1_000)

    def overdue(now_ms: int) -> str | None:
        found = age.overdue(now_ms, limits, awaits_login=False)
        return None if found is None else found[0]

    at_ms = 1_000 + LIFETIME_MS * 3 // 4
    assert [overdue(at_ms), overdue(at_ms + 1), overdue(at_ms + 2)] == [None, "session", None]
    age.logged_in(0, at_ms)
    assert overdue(10**8) is None, "a broker without an end of sessions"
