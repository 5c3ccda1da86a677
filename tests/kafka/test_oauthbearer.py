"""OAUTHBEARER before a real broker: the user is the one in the token, once the broker has let it in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from tests.support.bearer import FAR_FUTURE_S, bearer, broker_properties, jwt
from tests.support.frames import produce_one
from tests.support.raw import RawClient, decoded, produce_code, request
from tests.support.tls_examples import (
    TLS_FILES,
    third_id_is_refused,
    with_rates_of_one,
    write_tls_files,
)
from tools.sandbox.certificates import Authority
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, SASL_SSL, ClusterSpec, Tls
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

EXAMPLE = Path(__file__).parents[2] / "examples" / "sasl" / "oauthbearer.yaml"
TopicName = Callable[[str], str]
PRODUCE, SASL_HANDSHAKE, SASL_AUTHENTICATE = 0, 17, 36
FAILED_AUTHENTICATION, NOT_ENOUGH_REPLICAS = 58, 19

QUOTAS = {
    "mode": "enforce",
    "default": {"producer_ids_rate": 0},
    "users": {"alice": {"producer_ids_rate": 1_000}, "carol": {"producer_ids_rate": 1_000}},
    "producer_ids": {"max_throttle": "100ms", "grace": "0s"},
}


@pytest.fixture(scope="module")
def oauth_cluster(authority: Authority) -> Iterator[Cluster]:
    """With the claim sub on SASL_PLAINTEXT, and that of the example on SASL_SSL."""
    properties = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        **broker_properties(SASL_PLAINTEXT, "sub"),
        **broker_properties(SASL_SSL, "preferred_username"),
    }
    tls = Tls(authority.issue("broker").both, authority.ca_file)
    with Cluster(ClusterSpec(sasl=True, tls=tls, properties=properties)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gateway(oauth_cluster: Cluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        oauth_cluster.bootstrap_servers(SASL_PLAINTEXT), quotas=QUOTAS, settings={"log_level": "debug"}
    ) as running:
        yield running
        everything = running.log_text() + running.read("/metrics")
        assert jwt(sub="alice").split(".")[1] not in everything


def admitted(gateway: GatewayProcess, user: str) -> float:
    return gateway.metrics().value("pidgate_producer_ids_admitted_total", user=user, reason="first_seen")


async def _sent_by_aiokafka(servers: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return jwt(sub="alice")

    async with AIOKafkaProducer(
        bootstrap_servers=servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
        enable_idempotence=True,
    ) as producer:
        await producer.send_and_wait(topic, b"by a token")


def _with_token(servers: str, ca_file: str = "", **claims: str) -> dict[str, Any]:
    """Return a configuration of librdkafka."""

    def token(_config: str) -> tuple[str, float]:
        return jwt(**claims), float(FAR_FUTURE_S)

    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL" if ca_file else "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
        "enable.idempotence": True,
        **({"ssl.ca.location": ca_file} if ca_file else {}),
    }


def _sent_by_librdkafka(servers: str, topic: str, **claims: str) -> None:
    producer = Producer(_with_token(servers, **claims))
    producer.produce(topic, b"by a token")
    assert producer.flush(30) == 0


@pytest.mark.parametrize("client", ["confluent-kafka", pytest.param("aiokafka", marks=pytest.mark.nightly)])
def test_a_client_is_whom_its_token_names(
    oauth_cluster: Cluster, gateway: GatewayProcess, topic_name: TopicName, client: str
) -> None:
    topic = create_topic(oauth_cluster.bootstrap_servers(), topic_name("bearer"))
    before = admitted(gateway, "alice")
    if client == "aiokafka":
        asyncio.run(_sent_by_aiokafka(gateway.bootstrap_servers, topic))
    else:
        _sent_by_librdkafka(gateway.bootstrap_servers, topic, sub="alice")
    assert admitted(gateway, "alice") == before + 1
    assert "(unidentified OAUTHBEARER)" not in gateway.read("/metrics")


def log_in(client: RawClient, message: bytes) -> tuple[int, str]:
    """The broker's error code and answer."""
    assert client.call(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})["error_code"] == 0
    client.send(request(SASL_AUTHENTICATE, 2, {"auth_bytes": message}))
    answer = decoded(SASL_AUTHENTICATE, 2, client.frame())
    return int(answer["error_code"]), str(answer["auth_bytes"])


@pytest.fixture(scope="module")
def topic(oauth_cluster: Cluster) -> str:
    return create_topic(oauth_cluster.bootstrap_servers(), "bearers")


def test_a_token_that_the_broker_refuses_makes_nobody_of_that_name(
    gateway: GatewayProcess, topic: str
) -> None:
    """It names alice, and has expired; the one after it names bob, and is let in."""
    before = admitted(gateway, "alice")
    with RawClient(gateway.bootstrap_servers) as client:
        error_code, refusal = log_in(client, bearer(jwt(sub="alice", exp=1)))
        assert (error_code, "invalid_token" in refusal) == (0, True)
        # The exchange goes on: Kafka takes another token there, and so would whoever shed a quota.
        client.send(request(SASL_AUTHENTICATE, 2, {"auth_bytes": bearer(jwt(sub="bob"))}))
        assert decoded(SASL_AUTHENTICATE, 2, client.frame())["error_code"] == 0
        assert produce_code(client.ask(produce_one(topic, 800_001))) == NOT_ENOUGH_REPLICAS
    with RawClient(gateway.bootstrap_servers) as client:
        log_in(client, bearer(jwt(sub="alice", exp=1)))
        client.send(request(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\x01"}))
        assert decoded(SASL_AUTHENTICATE, 2, client.frame())["error_code"] == FAILED_AUTHENTICATION
        assert client.is_closed()
    assert admitted(gateway, "alice") == before


@pytest.mark.parametrize(
    "message",
    [
        bearer(jwt(sub="alice"), more=b"auth=Bearer " + jwt(sub="bob").encode() + b"\x01"),
        pytest.param(
            bearer(jwt(sub="bob"), more=b"x=" + 100_000 * b"y" + b"\x01"), marks=pytest.mark.nightly
        ),
        pytest.param(bearer(jwt(sub="bob"), start=b"n,a=bob,\x01"), marks=pytest.mark.nightly),
        pytest.param(bearer(jwt(sub="bob"), scheme=b"bEARER   "), marks=pytest.mark.nightly),
        pytest.param(bearer(jwt(sub=" alice")), marks=pytest.mark.nightly),
        pytest.param(bearer(jwt(sub="\0PLAIN")), marks=pytest.mark.nightly),
        pytest.param(bearer(jwt(sub="carol\0")), marks=pytest.mark.nightly),
    ],
)
def test_what_a_client_writes_around_a_token_sheds_no_quota(
    gateway: GatewayProcess, topic: str, message: bytes
) -> None:
    with RawClient(gateway.bootstrap_servers) as client:
        assert log_in(client, message) == (0, "")
        assert produce_code(client.ask(produce_one(topic, 800_002))) == NOT_ENOUGH_REPLICAS


def test_who_authenticates_anew_keeps_his_name_and_his_quota(gateway: GatewayProcess, topic: str) -> None:
    """With another name Kafka closes; with one that only the broker reads the gateway goes on with the first."""
    before = admitted(gateway, "carol")
    with RawClient(gateway.bootstrap_servers) as client:
        assert log_in(client, bearer(jwt(sub="carol"))) == (0, "")
        assert produce_code(client.ask(produce_one(topic, 800_010))) == 0
        assert log_in(client, bearer(jwt(sub="carol", x=40_000 * "x"))) == (0, "")
        assert produce_code(client.ask(produce_one(topic, 800_011))) == 0
        assert admitted(gateway, "carol") == before + 2
    with RawClient(gateway.bootstrap_servers) as client:
        assert log_in(client, bearer(jwt(sub="bob"))) == (0, "")
        assert log_in(client, bearer(jwt(sub="carol")))[0] == FAILED_AUTHENTICATION
        assert client.is_closed()
    assert admitted(gateway, "carol") == before + 2


@pytest.mark.nightly
def test_the_example_works(
    oauth_cluster: Cluster, authority: Authority, topic_name: TopicName, tmp_path: Path
) -> None:
    """As it is, but for addresses, the folder of its files, its own topics, and a rate of 1."""
    text = EXAMPLE.read_text()
    write_tls_files(text, tmp_path, authority)
    settings = yaml.safe_load(text.replace(TLS_FILES, f"{tmp_path}/"))
    servers = oauth_cluster.bootstrap_servers(SASL_SSL)
    listener = {key: settings["listeners"][0][key] for key in ("tls", "sasl_oauthbearer_sub_claim_name")}
    cluster = {"bootstrap_servers": servers.split(","), "tls": settings["cluster"]["tls"]}
    topic = create_topic(oauth_cluster.bootstrap_servers(), topic_name("example"))
    with GatewayProcess(
        servers,
        listener=listener,
        settings={"cluster": cluster, "quotas": with_rates_of_one(settings["quotas"])},
    ) as running:
        claims = {"sub": "f3a1", "preferred_username": "alice"}
        third_id_is_refused(
            running, _with_token(running.bootstrap_servers, str(authority.ca_file), **claims), topic
        )
        assert running.metrics().value("pidgate_producer_ids_admitted_total", user="alice") == 2
