"""Who is it? Read from the exchange as it passes, true from the broker's success on, and no secret anywhere."""

import time
from collections.abc import Callable, Iterator

import pytest

from pidgate.load.journal import Outcome
from tests.support.clients.load import Load, Login
from tests.support.clients.process import ClientProcess
from tests.support.frames import produce_one
from tests.support.raw import RawClient, decoded, produce_code, request
from tests.support.scram import scram_login
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

TopicName = Callable[[str], str]
SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA, INIT_PRODUCER_ID = 17, 36, 3, 22
FAILED_AUTHENTICATION, NOT_ENOUGH_REPLICAS = 58, 19
SECRETS = ("alice-secret", "bob-secret", "admin-secret", "wrong-secret")
RATES = {"alice": 1000, "bob": 0}
QUOTAS = {
    "mode": "enforce",
    "producer_ids": {"window": "1h", "max_throttle": "1s"},
    "default": {"producer_ids_rate": 500},
    "users": {name: {"producer_ids_rate": rate} for name, rate in RATES.items()},
}


@pytest.fixture(scope="module")
def gateway(sasl_cluster: Cluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        sasl_cluster.bootstrap_servers(SASL_PLAINTEXT),
        quotas=QUOTAS,
        settings={"log_level": "debug"},
    ) as running:
        yield running
        everything = running.log_text() + running.read("/metrics")
        assert [secret for secret in SECRETS if secret in everything] == []


def admitted(gateway: GatewayProcess, user: str) -> float:
    return gateway.metrics().value("pidgate_producer_ids_admitted_total", user=user, reason="first_seen")


@pytest.mark.parametrize("client", ["aiokafka", "kafka-python", "confluent-kafka", "java"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_is_who_it_authenticated_as(
    sasl_cluster: Cluster, gateway: GatewayProcess, topic_name: TopicName, client: str, mechanism: str
) -> None:
    if client == "java" and mechanism != "SCRAM-SHA-256":
        return  # a JVM each: one mechanism shows that its login passes
    topic = create_topic(sasl_cluster.bootstrap_servers(), topic_name("login"))
    before = admitted(gateway, "alice")
    login = Login(username="alice", password="alice-secret", mechanism=mechanism)
    load = Load(bootstrap_servers=gateway.bootstrap_servers, topic=topic, records=3, login=login)
    journal = ClientProcess.produce(client, load).wait()
    assert journal.count(Outcome.ACKNOWLEDGED) == 3
    assert admitted(gateway, "alice") == before + 1


def plain(client: RawClient, user: str, password: str, *, wait: bool = True) -> int:
    """Authenticate; the error code, or 0 at once when not told to wait."""
    token = f"\0{user}\0{password}".encode()
    client.send(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    client.send(request(SASL_AUTHENTICATE, 2, {"auth_bytes": token}))
    if not wait:
        return 0
    assert decoded(SASL_HANDSHAKE, 1, client.frame())["error_code"] == 0
    return int(decoded(SASL_AUTHENTICATE, 2, client.frame())["error_code"])


@pytest.fixture(scope="module")
def topic(sasl_cluster: Cluster) -> str:
    return create_topic(sasl_cluster.bootstrap_servers(), "identities")


def test_the_quota_is_the_users_own(gateway: GatewayProcess, topic: str) -> None:
    with RawClient(gateway.bootstrap_servers) as client:
        assert plain(client, "bob", "bob-secret") == 0
        assert produce_code(client.ask(produce_one(topic, 900_001))) == NOT_ENOUGH_REPLICAS
    assert gateway.metrics().value("pidgate_producer_ids_refused_total", user="bob") > 0
    assert admitted(gateway, "bob") == 0


def test_who_does_not_wait_for_the_answer_is_still_charged_himself(
    gateway: GatewayProcess, topic: str
) -> None:
    before = admitted(gateway, "ANONYMOUS")
    with RawClient(gateway.bootstrap_servers) as client:
        plain(client, "bob", "bob-secret", wait=False)
        client.send(produce_one(topic, 900_002))
        client.frame()
        client.frame()
        assert produce_code(client.frame()) == NOT_ENOUGH_REPLICAS
    assert admitted(gateway, "ANONYMOUS") == before
    assert admitted(gateway, "bob") == 0


def test_a_wrong_password_makes_nobody_of_that_name(gateway: GatewayProcess, topic: str) -> None:
    before = admitted(gateway, "alice")
    with RawClient(gateway.bootstrap_servers) as client:
        plain(client, "alice", "wrong-secret", wait=False)
        client.send(produce_one(topic, 900_003))
        client.frame()
        assert decoded(SASL_AUTHENTICATE, 2, client.frame())["error_code"] == FAILED_AUTHENTICATION
        # The broker closes; nothing that was sent with it reaches anybody.
        assert client.is_closed()
    assert admitted(gateway, "alice") == before


def test_who_never_authenticates_costs_nobody_else(gateway: GatewayProcess, topic: str) -> None:
    before = {user: admitted(gateway, user) for user in ("alice", "bob")}
    for producer_id in range(901_000, 901_050):
        with RawClient(gateway.bootstrap_servers) as client:
            client.send(produce_one(topic, producer_id))
            assert client.is_closed()
    assert {user: admitted(gateway, user) for user in before} == before
    with RawClient(gateway.bootstrap_servers) as client:
        assert plain(client, "alice", "alice-secret") == 0
        assert client.call(METADATA, 1, {"topics": []})["brokers"]


@pytest.mark.parametrize(
    ("password", "error_code"), [("bob-secret", 0), ("wrong-secret", FAILED_AUTHENTICATION)]
)
def test_scram_counts_from_the_final_answer_only(
    gateway: GatewayProcess, topic: str, password: str, error_code: int
) -> None:
    with RawClient(gateway.bootstrap_servers) as client:
        assert scram_login(client, "bob", password) == error_code
        if error_code == 0:
            assert produce_code(client.ask(produce_one(topic, 900_010))) == NOT_ENOUGH_REPLICAS
        else:
            assert client.is_closed()


@pytest.fixture(scope="module")
def short_sessions() -> Iterator[Cluster]:
    """A broker that asks for authentication anew every two seconds (KIP-368)."""
    with Cluster(ClusterSpec(sasl=True, properties={"connections.max.reauth.ms": "2000"})) as cluster:
        yield cluster


def test_re_authentication_is_followed(short_sessions: Cluster) -> None:
    topic = create_topic(short_sessions.bootstrap_servers(), "sessions")
    with (
        GatewayProcess(short_sessions.bootstrap_servers(SASL_PLAINTEXT), quotas=QUOTAS) as gateway,
        RawClient(gateway.bootstrap_servers) as client,
    ):
        assert plain(client, "alice", "alice-secret") == 0
        assert produce_code(client.ask(produce_one(topic, 500_001))) == 0
        time.sleep(1.2)
        assert plain(client, "alice", "alice-secret") == 0
        assert produce_code(client.ask(produce_one(topic, 500_002))) == 0
        time.sleep(1.2)
        # More than two seconds after the first, within two of the second: the session goes on.
        assert produce_code(client.ask(produce_one(topic, 500_003))) == 0
        assert admitted(gateway, "alice") == 3
        time.sleep(1.2)
        client.send(produce_one(topic, 500_004))
        assert client.is_closed()
        # librdkafka authenticates anew on its own; nothing is closed for want of it.
        closed = gateway.metrics().value("pidgate_connections_closed_total", cause="upstream")
        login = Login(username="alice", password="alice-secret", mechanism="SCRAM-SHA-512")
        load = Load(
            bootstrap_servers=gateway.bootstrap_servers,
            topic=topic,
            records=60,
            records_per_s=12,
            login=login,
        )
        journal = ClientProcess.produce("confluent-kafka", load).wait()
        assert journal.count(Outcome.ACKNOWLEDGED) == 60
        assert admitted(gateway, "alice") == 5  # 500_004 was let pass; the broker took nothing of it
        assert gateway.metrics().value("pidgate_connections_closed_total", cause="upstream") == closed
        assert not any(secret in gateway.log_text() for secret in SECRETS)
