"""As whom brokers see clients whose TLS ends at the gateway: by delegation tokens, and as the gateway itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.support.clients import java_tools
from tests.support.clients.load import Login
from tests.support.tls_examples import (
    TLS_FILES,
    third_id_is_refused,
    with_rates_of_one,
    write_tls_files,
)
from tools.sandbox.certificates import Authority, Pair
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.spec import SASL_PLAINTEXT, SASL_SSL, SUPER_USER, ClusterSpec, Tls
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

EXAMPLES = Path(__file__).parents[2] / "examples" / "mtls"
TopicName = Callable[[str], str]
RULES = "RULE:^CN=([^,]+).*$/$1/"
NOT_ALLOWED = KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def pairs(authority: Authority) -> dict[str, Pair]:
    """The gateway's certificate, and those of users; the brokers know no carol."""
    return {name: authority.issue(name, subject=f"/O=acme/CN={name}") for name in ("alice", "bob", "carol")}


def gateway_before(
    cluster: Cluster, authority: Authority, folder: Path, identity: str, own_user: str = SUPER_USER
) -> GatewayProcess:
    """A gateway that asks for certificates, before brokers that want SASL."""
    password, pair = folder / "password", authority.issue("gateway")
    password.write_text(f"{own_user}-secret\n")
    password.chmod(0o600)
    servers = cluster.bootstrap_servers(SASL_PLAINTEXT)
    tls = {
        "cert_file": str(pair.cert_file),
        "key_file": str(pair.key_file),
        "client_ca_file": str(authority.ca_file),
        "client_auth": "required",
        "ssl_principal_mapping_rules": RULES,
    }
    sasl = {"mechanism": "SCRAM-SHA-256", "username": own_user, "password_file": str(password)}
    return GatewayProcess(
        servers,
        listener={"tls": tls},
        settings={
            "cluster": {"bootstrap_servers": servers.split(","), "upstream_identity": identity},
            "own_client": sasl,
        },
    )


def client_of(gateway: GatewayProcess, authority: Authority, pair: Pair, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": gateway.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.ca_file),
        "ssl.certificate.location": str(pair.cert_file),
        "ssl.key.location": str(pair.key_file),
        "log_level": 0,
        **more,
    }


def sent(config: dict[str, Any], topic: str, value: bytes = b"x") -> int:
    """Return the error code of one record, 0: it was acknowledged."""
    codes: list[int] = []
    producer = Producer({**config, "enable.idempotence": True, "message.timeout.ms": 20_000})
    producer.produce(
        topic, value, on_delivery=lambda error, _: codes.append(0 if error is None else error.code())
    )
    assert producer.flush(30) == 0
    return codes[0]


def allow(cluster: Cluster, user: str, topic: str) -> None:
    """Let a user write to a topic, and read it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
    bindings = [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.WRITE, AclOperation.READ)
    ]
    for future in admin.create_acls(bindings).values():
        future.result(30)


@pytest.fixture
def topics(guarded: Cluster, topic_name: TopicName) -> dict[str, str]:
    """One topic for each user, which nobody else may use."""
    names = {}
    for user in ("alice", "bob", "carol"):
        names[user] = create_topic(guarded.bootstrap_servers(), topic_name(f"of-{user}"))
        allow(guarded, user, names[user])
    return names


def test_each_may_what_its_acls_say(
    guarded: Cluster, authority: Authority, pairs: dict[str, Pair], topics: dict[str, str], tmp_path: Path
) -> None:
    with gateway_before(guarded, authority, tmp_path, "delegation_token") as gateway:
        for user, pair in pairs.items():
            config = client_of(gateway, authority, pair)
            for owner, topic in topics.items():
                assert sent(config, topic, user.encode()) == (0 if user == owner else NOT_ALLOWED)
            admin = AdminClient(config)
            assert set(admin.list_topics(timeout=10).topics) & set(topics.values()) == {topics[user]}
        assert gateway.metrics().value("pidgate_producer_ids_admitted_total", user="alice") == 1
        log = gateway.log_text()
        assert gateway.stop() == 0
    for user, topic in topics.items():
        found = [record.value for record in read_log(guarded.bootstrap_servers(), topic)]
        assert found == [user.encode()]
    assert "secret" not in log


def test_without_the_right_to_make_tokens_nobody_passes_and_the_log_says_why(
    guarded: Cluster, authority: Authority, pairs: dict[str, Pair], topics: dict[str, str], tmp_path: Path
) -> None:
    with gateway_before(guarded, authority, tmp_path, "delegation_token", own_user="bob") as gateway:
        config = client_of(gateway, authority, pairs["alice"])
        with pytest.raises(KafkaException):
            AdminClient(config).list_topics(timeout=3)
        (failed, *_) = gateway.log_events("upstream_failed")
        assert failed["cause"] == "login"
        assert "allow CreateTokens on resource User" in failed["reason"]
        java_tools.admin(
            guarded.tools,
            "AclCommand",
            guarded.bootstrap_servers(),
            *("--add", "--allow-principal", "User:bob"),
            *("--operation", "CreateTokens", "--user-principal", "User:alice"),
        )
        assert sent(config, topics["alice"]) == 0


def test_a_revoked_token_is_replaced(
    guarded: Cluster, authority: Authority, pairs: dict[str, Pair], topics: dict[str, str], tmp_path: Path
) -> None:
    with gateway_before(guarded, authority, tmp_path, "delegation_token") as gateway:
        config = client_of(gateway, authority, pairs["alice"])
        assert sent(config, topics["alice"]) == 0
        revoked = revoked_tokens(guarded)
        assert sent(config, topics["alice"]) == 0
        assert not gateway.log_events("upstream_failed")
        assert not any(secret in gateway.log_text() for secret in revoked)


def revoked_tokens(cluster: Cluster) -> list[str]:
    """Expire every token of alice at once, with Kafka's own tool; return their passwords."""
    login = Login(username=SUPER_USER, password=f"{SUPER_USER}-secret")
    servers = cluster.bootstrap_servers(SASL_PLAINTEXT)
    tool = partial(java_tools.admin, cluster.tools, "DelegationTokenCommand", servers)
    described = tool("--describe", "--owner-principal", "User:alice", login=login).stdout
    rows = [line.split() for line in described.splitlines()]
    hmacs = [row[1] for row in rows if row[2:3] == ["User:alice"]]
    assert hmacs, described
    login = Login(username="alice", password="alice-secret")
    for hmac in hmacs:
        tool("--expire", "--expiry-time-period", "-1", "--hmac", hmac, login=login)
    return hmacs


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Cluster]:
    """Brokers whose tokens live for six seconds, and sessions for four."""
    properties = {"delegation.token.expiry.time.ms": "6000", "connections.max.reauth.ms": "4000"}
    with Cluster(ClusterSpec(sasl=True, properties=properties)) as cluster:
        yield cluster


@pytest.mark.nightly
def test_tokens_and_sessions_that_end_under_load_are_noticed_by_nobody(
    forgetful: Cluster, authority: Authority, pairs: dict[str, Pair], topic_name: TopicName, tmp_path: Path
) -> None:
    topic = create_topic(forgetful.bootstrap_servers(), topic_name("short-lives"))
    with gateway_before(forgetful, authority, tmp_path, "delegation_token") as gateway:
        errors: list[object] = []
        producer = Producer(client_of(gateway, authority, pairs["alice"], **{"enable.idempotence": True}))
        values, end_s = list[bytes](), time.monotonic() + 25
        while time.monotonic() < end_s:
            values.append(os.urandom(8))
            producer.produce(topic, values[-1], on_delivery=lambda error, _: errors.append(error))
            producer.poll(0.01)
        assert producer.flush(30) == 0
        assert set(errors) == {None}
        assert gateway.metrics().value("pidgate_connections_total") > 4
        assert not gateway.log_events("upstream_failed")
    assert [record.value for record in read_log(forgetful.bootstrap_servers(), topic)] == values


def test_as_the_gateway_itself_everybody_may_what_it_may(
    guarded: Cluster, authority: Authority, pairs: dict[str, Pair], topics: dict[str, str], tmp_path: Path
) -> None:
    with gateway_before(guarded, authority, tmp_path, "own", own_user="bob") as gateway:
        config = client_of(gateway, authority, pairs["alice"])
        assert sent(config, topics["bob"]) == 0
        assert sent(config, topics["alice"]) == NOT_ALLOWED
        assert gateway.metrics().value("pidgate_producer_ids_admitted_total", user="alice") == 1


@pytest.mark.nightly
@pytest.mark.parametrize("example", ["identity.yaml", "own.yaml"])
def test_the_example_works(topic_name: TopicName, authority: Authority, tmp_path: Path, example: str) -> None:
    """As it is, but for addresses, the folder of its files, the user of the brokers, and a rate of 1."""
    text = (EXAMPLES / example).read_text()
    write_tls_files(text, tmp_path, authority)
    (tmp_path / "pidgate").write_text(f"{SUPER_USER}-secret\n")
    settings = yaml.safe_load(
        text.replace(TLS_FILES, f"{tmp_path}/").replace("/run/secrets/", f"{tmp_path}/")
    )
    settings["own_client"]["username"] = SUPER_USER
    tls = Tls(authority.issue("broker").both, authority.ca_file, "none")
    with Cluster(ClusterSpec(sasl=True, acl=True, tls=tls)) as cluster:
        topic = create_topic(cluster.bootstrap_servers(), topic_name("example"))
        allow(cluster, "joe", topic)
        settings["cluster"]["bootstrap_servers"] = cluster.bootstrap_servers(SASL_SSL).split(",")
        kept = {key: settings[key] for key in ("cluster", "own_client")}
        kept["quotas"] = with_rates_of_one(settings["quotas"])
        listener = {"tls": settings["listeners"][0]["tls"]}
        with GatewayProcess(cluster.bootstrap_servers(SASL_SSL), listener=listener, settings=kept) as gateway:
            joe = authority.issue("joe", subject="/O=acme/OU=web/CN=Joe")
            third_id_is_refused(gateway, client_of(gateway, authority, joe), topic)
            assert gateway.metrics().value("pidgate_producer_ids_admitted_total", user="joe") == 2
