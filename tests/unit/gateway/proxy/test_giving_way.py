"""Who gives way where all connections are taken: whoever asked for no broker yet, or has not logged in where he has to.

Before a login a connection costs nothing but itself: one ApiVersions must not buy the place of a user.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pidgate.gateway.cluster.nodes import NodePorts
from pidgate.gateway.proxy.broker_channel import BrokerChannel
from pidgate.gateway.proxy.buffers import LITTLE
from pidgate.gateway.proxy.client_channel import ClientChannel
from pidgate.gateway.proxy.connection import ConnectionContext
from pidgate.gateway.proxy.connection_quotas import BROKERS_TURN_MS, UNDISTURBED_MS, ConnectionLimits
from tests.support import raw
from tests.support.paper_transport import PaperTransport
from tests.support.rules import rule
from tests.support.scene import LISTENER, MiB, Scene, heartbeat

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
REFUSED = 58


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.loop.close()


class Client:
    """A connection to a listener where a login is required, is not, or nobody knows (None)."""

    def __init__(self, scene: Scene, required: bool | None = True) -> None:
        context = ConnectionContext(scene.shared, NodePorts(LISTENER), None, requires_login=required)
        context.now_ms = lambda: scene.time_ms
        self.channel = ClientChannel(context, lambda *_: None)
        self._client = PaperTransport(self.channel)
        self._broker: PaperTransport | None = None

    def asks(self, api_key: int, version: int, body: raw.Body | None = None) -> None:
        self._client.receive(raw.request(api_key, version, body))

    def sends(self, data: bytes) -> None:
        self._client.receive(data)

    def takes_no_answers(self) -> None:
        self._client.waiting_bytes = 1

    def beats(self) -> None:
        self._client.receive(heartbeat(raw.CORRELATION_ID))

    def is_answered(self, api_key: int, version: int, body: raw.Body) -> None:
        connection = self.channel.connection
        if connection.session.context.login.asked:
            connection.broker_answered(raw.response(api_key, version, body)[4:])
            return
        self.has_broker().receive(raw.response(api_key, version, body))

    def has_broker(self) -> PaperTransport:
        """Its broker is connected."""
        if self._broker is None:
            self._broker = PaperTransport(BrokerChannel(self.channel.connection))
        return self._broker

    def logs_in(self, user: str = "alice", *, error_code: int = 0) -> None:
        self.asks(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        self.is_answered(SASL_HANDSHAKE, 1, {"mechanisms": ["PLAIN"]})
        self.asks(SASL_AUTHENTICATE, 2, {"auth_bytes": f"\0{user}\0secret".encode()})
        self.is_answered(SASL_AUTHENTICATE, 2, {"error_code": error_code})

    @property
    def is_open(self) -> bool:
        return not self._client.is_closing()

    @property
    def forwarded_bytes(self) -> int:
        return 0 if self._broker is None else len(self._broker.sent())

    @property
    def is_cut_off(self) -> bool:
        return self._client.aborted


def still_open(scene: Scene, *clients: Client, after_ms: int = BROKERS_TURN_MS) -> list[bool]:
    """Have all connections be taken, for longer than anybody is left undisturbed; return who keeps its place."""
    scene.shared.connection_quotas.limits = ConnectionLimits(1, 1_000, 100, 100)
    scene.time_ms += after_ms
    for _ in clients:
        scene.shared.connection_quotas.pause_ms(scene.time_ms)
    return [client.is_open for client in clients]


def nobody_keeps_a_place_before_the_login(scene: Scene) -> bool:
    """The rule: where a login is required, whatever came before it claims no place."""
    silent, versions, begun, refused, user = (Client(scene) for _ in range(5))
    for client in (versions, begun, refused, user):
        client.asks(API_VERSIONS, 3)
        assert client.channel.connection.awaits_login
    begun.is_answered(API_VERSIONS, 3, {})
    begun.asks(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    refused.is_answered(API_VERSIONS, 3, {})
    refused.logs_in(error_code=REFUSED)
    user.is_answered(API_VERSIONS, 3, {})
    user.logs_in()
    return still_open(scene, silent, versions, begun, refused, user) == [False] * 4 + [True]


@rule("Where all connections are taken, the oldest without a login gives way.", "connections")
def test_where_a_login_is_required_nobody_keeps_a_place_before_it(scene: Scene) -> None:
    assert nobody_keeps_a_place_before_the_login(scene)


def test_nobody_gives_way_for_a_slow_broker(scene: Scene) -> None:
    """Clients that were closed while the broker takes seconds for each login would come back for ever."""
    silent, dialling, answered, unread = (Client(scene) for _ in range(4))
    for client in (dialling, answered, unread):
        client.asks(API_VERSIONS, 3)
    for client in (answered, unread):
        client.is_answered(API_VERSIONS, 3, {})
    unread.asks(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    unread.channel.pause_writing()
    clients = silent, dialling, answered, unread
    assert still_open(scene, *clients, after_ms=UNDISTURBED_MS) == [False, True, False, False]


def test_where_nobody_logs_in_one_user_may_have_all_and_beside_users_what_it_leaves(scene: Scene) -> None:
    for is_mixed, has in ((False, 10), (True, 6)):
        limits = ConnectionLimits(12 + len(scene.shared.connections), 1_000, None, 100, is_mixed=is_mixed)
        scene.shared.connection_quotas.limits = limits
        clients = []
        for _ in range(10):
            clients.append(Client(scene, required=False))
            clients[-1].beats()
        assert sum(not client.channel.connection.reads_no_more for client in clients) == has


def test_where_no_login_is_required_a_request_is_claim_enough(scene: Scene) -> None:
    silent, client = Client(scene, required=False), Client(scene, required=False)
    client.beats()
    assert still_open(scene, silent, client) == [False, True]


def test_who_waits_to_learn_whether_he_has_to_log_in_has_a_place_once_he_need_not(scene: Scene) -> None:
    """A silent one beside it goes on without: what it learns is no request."""
    clients = [Client(scene, required=None) for _ in range(3)]
    unknown, asked, silent = clients
    for client in (unknown, asked):
        client.asks(API_VERSIONS, 3)
        client.is_answered(API_VERSIONS, 3, {})
    for client in (asked, silent):
        client.channel.connection.session.context.at.authentication.learn_requirement(34, [])
        client.channel.connection.authentication_learnt()
    asked.beats()
    assert still_open(scene, *clients) == [False, True, False]


def test_a_user_named_as_nobody_has_a_place_too(scene: Scene) -> None:
    """His login changes no name; it is a login all the same."""
    nobody = Client(scene)
    nobody.asks(API_VERSIONS, 3)
    nobody.is_answered(API_VERSIONS, 3, {})
    nobody.logs_in("ANONYMOUS")
    assert still_open(scene, nobody) == [True]


def test_a_certificate_is_a_login_and_no_request(scene: Scene) -> None:
    silent, client = Client(scene), Client(scene)
    for certified in (silent, client):
        certified.channel.connection.certified("CN=alice", is_login=True)
    client.beats()
    assert still_open(scene, silent, client) == [False, True]


# ---- memory before a login -------------------------------------------------------------------------------

BEGINNING = (300_000).to_bytes(4, "big") + raw.request(SASL_AUTHENTICATE, 2, {"auth_bytes": bytes(60_000)})[
    4:
]
"""60 KB of a login of 300 KB."""


def strangers_take_no_users_memory(scene: Scene) -> bool:
    """The rule: what connections without a login hold together is bounded, the wait for memory included."""
    strangers = [Client(scene) for _ in range(400)]
    for stranger in strangers:
        stranger.sends(BEGINNING)
    budget = scene.budget
    bound_bytes = budget.limit_bytes // 2 // LITTLE
    is_bounded = budget.large.used_bytes <= bound_bytes and budget.small.used_bytes <= bound_bytes + 300_004
    kept, others = strangers[0].is_open, {stranger.is_open for stranger in strangers[-100:]}
    user = Client(scene)
    user.asks(API_VERSIONS, 3)
    user.is_answered(API_VERSIONS, 3, {})
    user.logs_in()
    user.beats()
    return is_bounded and kept and others == {False} and user.is_open and not budget.is_full


@pytest.fixture
def small_scene() -> Iterator[Scene]:
    made = Scene(budget_bytes=16 * MiB)
    yield made
    made.loop.close()


def test_beginnings_before_a_login_are_bounded_with_what_waits(small_scene: Scene) -> None:
    assert strangers_take_no_users_memory(small_scene)


def who_takes_no_answers_gives_way_at_once(scene: Scene) -> bool:
    """The rule: nobody keeps a place by leaving his answers."""
    stranger = Client(scene)
    stranger.asks(API_VERSIONS, 3)
    stranger.is_answered(API_VERSIONS, 3, {})
    stranger.takes_no_answers()
    return still_open(scene, stranger) == [False] and stranger.is_cut_off


def test_who_takes_no_answers_gives_way_at_once(scene: Scene) -> None:
    assert who_takes_no_answers_gives_way_at_once(scene)


# ---- too fast after a login ------------------------------------------------------------------------------


def nothing_of_a_user_passes_before_its_time(scene: Scene) -> bool:
    """The rule: a request behind its login waits with its connection."""
    scene.shared.connection_quotas.limits = ConnectionLimits(1_000, 1_000, 100, 1)
    for _ in range(20):  # more than its burst
        other = Client(scene)
        other.asks(API_VERSIONS, 3)
        other.is_answered(API_VERSIONS, 3, {})
        other.logs_in()
    client = Client(scene)
    client.asks(API_VERSIONS, 3)
    client.is_answered(API_VERSIONS, 3, {})
    client.asks(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    client.is_answered(SASL_HANDSHAKE, 1, {"mechanisms": ["PLAIN"]})
    login = raw.request(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"})
    client.sends(login + heartbeat(7))
    client.has_broker()
    forwarded = client.forwarded_bytes
    client.is_answered(SASL_AUTHENTICATE, 2, {"error_code": 0})
    waits = client.forwarded_bytes == forwarded
    client.channel.connection._no_longer_too_fast()
    return waits and client.forwarded_bytes == forwarded + len(heartbeat(7))


def test_nothing_of_a_user_passes_before_its_time(scene: Scene) -> None:
    assert nothing_of_a_user_passes_before_its_time(scene)
