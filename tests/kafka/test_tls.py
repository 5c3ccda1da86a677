"""TLS before a real broker with real clients: on either side, with certificates of both, over SASL, and rotated."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.tls_examples import (
    TLS_FILES,
    third_id_is_refused,
    with_rates_of_one,
    write_tls_files,
)
from tools.sandbox.certificates import Authority, Pair
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
PIDGATE = Path(sys.executable).with_name("pidgate")
TopicName = Callable[[str], str]
LARGE_BYTES = 20_000_000


@pytest.fixture(scope="module")
def gateway_pair(authority: Authority) -> Pair:
    return authority.issue("gateway")


@pytest.fixture(scope="module")
def joe(authority: Authority) -> Pair:
    return authority.issue("joe", subject="/O=acme/CN=joe")


def files(pair: Pair) -> dict[str, str]:
    return {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}


def gateway_before(
    cluster: Cluster,
    protocol: str,
    authority: Authority,
    pair: Pair,
    *,
    listener: dict[str, Any] | None = None,
    **settings: Any,
) -> GatewayProcess:
    """A gateway before one of the brokers' listeners; `listener` is its own TLS."""
    servers = cluster.bootstrap_servers(protocol)
    tls = {"ca_file": str(authority.ca_file), **files(pair)} if "SSL" in protocol else None
    return GatewayProcess(
        servers,
        listener=None if listener is None else {"tls": listener},
        settings={"cluster": {"bootstrap_servers": servers.split(","), "tls": tls}, **settings},
    )


def confluent(servers: str, authority: Authority | None, pair: Pair | None) -> dict[str, Any]:
    """What librdkafka is configured with; no authority: PLAINTEXT."""
    config: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
    if authority is not None:
        config |= {"security.protocol": "SSL", "ssl.ca.location": str(authority.ca_file)}
    if pair is not None:
        config |= {"ssl.certificate.location": str(pair.cert_file), "ssl.key.location": str(pair.key_file)}
    return config


def round_trip(servers: str, authority: Authority | None, pair: Pair | None, topic: str) -> None:
    """Produce a record and read it. Other clients over TLS: tests/clients/test_logins.py."""
    value, config = os.urandom(1_000), confluent(servers, authority, pair)
    producer = Producer({**config, "enable.idempotence": True})
    producer.produce(topic, value)
    assert producer.flush(20) == 0
    assert read_values(config, topic, 1) == [value]


def read_values(config: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {**config, "group.id": topic, "auto.offset.reset": "earliest", "fetch.max.bytes": 60_000_000}
    )
    try:
        consumer.subscribe([topic])
        values, give_up_s = list[bytes](), time.monotonic() + 30
        while len(values) < count and time.monotonic() < give_up_s:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append(bytes(message.value() or b""))
        return values
    finally:
        consumer.close()


def test_certificates_are_shown_and_asked_for_on_both_sides(
    tls_cluster: Cluster,
    authority: Authority,
    gateway_pair: Pair,
    joe: Pair,
    topic_name: TopicName,
) -> None:
    topic = topic_name("tls")
    create_topic(tls_cluster.bootstrap_servers(), topic)
    listener = {**files(gateway_pair), "client_auth": "required", "client_ca_file": str(authority.ca_file)}
    with gateway_before(tls_cluster, SSL, authority, gateway_pair, listener=listener) as gateway:
        round_trip(gateway.bootstrap_servers, authority, joe, topic)
        metrics = gateway.metrics()
        assert metrics.value("pidgate_requests_total", api="Produce") == 1
        assert metrics.value("pidgate_producer_ids_admitted_total", user="CN=joe,O=acme") == 1
        assert "ANONYMOUS" not in gateway.read("/metrics")
        nobody = AdminClient(confluent(gateway.bootstrap_servers, authority, None))
        with pytest.raises(Exception, match=r"_TRANSPORT|_TIMED_OUT|timed out"):
            nobody.list_topics(timeout=2)
        assert any("it sent no certificate" in str(line.get("reason")) for line in gateway.log_events())


def _noted(errors: list[KafkaError | None], error: KafkaError | None, _message: object) -> None:
    errors.append(error)


def test_the_quota_is_that_of_the_certificates_user(
    tls_cluster: Cluster, authority: Authority, gateway_pair: Pair, joe: Pair, topic_name: TopicName
) -> None:
    topic = topic_name("certified")
    create_topic(tls_cluster.bootstrap_servers(), topic)
    listener = {
        **files(gateway_pair),
        "client_auth": "required",
        "client_ca_file": str(authority.ca_file),
        "ssl_principal_mapping_rules": "RULE:^CN=([a-z]+),O=acme$/$1/U,DEFAULT",
    }
    quotas = {
        "mode": "enforce",
        "users": {"JOE": {"producer_ids_rate": 0}},
        "producer_ids": {"grace": "0s"},
    }
    with gateway_before(
        tls_cluster, SSL, authority, gateway_pair, listener=listener, quotas=quotas
    ) as gateway:
        ann = authority.issue("ann", subject="/O=acme/CN=ann/OU=web")
        for pair, is_acknowledged in ((joe, False), (ann, True)):
            config = confluent(gateway.bootstrap_servers, authority, pair)
            timeout_ms = 20_000 if is_acknowledged else 3_000
            producer = Producer({**config, "enable.idempotence": True, "message.timeout.ms": timeout_ms})
            errors = list[KafkaError | None]()
            producer.produce(topic, b"certified", on_delivery=partial(_noted, errors))
            producer.flush(30)
            assert [error is None for error in errors] == [is_acknowledged]
        assert {line["user"] for line in gateway.log_events("producer_id_refused")} == {"JOE"}


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", [PLAINTEXT, SSL])
def test_one_side_alone(
    tls_cluster: Cluster, authority: Authority, gateway_pair: Pair, topic_name: TopicName, protocol: str
) -> None:
    topic = topic_name("tls")
    create_topic(tls_cluster.bootstrap_servers(), topic)
    listener = files(gateway_pair) if protocol == PLAINTEXT else None
    with gateway_before(tls_cluster, protocol, authority, gateway_pair, listener=listener) as gateway:
        of_client = authority if protocol == PLAINTEXT else None
        round_trip(gateway.bootstrap_servers, of_client, None, topic)


def test_over_sasl_ssl_users_are_known_and_the_gateways_own_topic_is_written(
    tls_cluster: Cluster, authority: Authority, gateway_pair: Pair, topic_name: TopicName, tmp_path: Path
) -> None:
    topic, events = topic_name("sasl-ssl"), topic_name("events")
    create_topic(tls_cluster.bootstrap_servers(), topic)
    password = tmp_path / "password"
    password.write_text("admin-secret")
    with gateway_before(
        tls_cluster,
        SASL_SSL,
        authority,
        gateway_pair,
        listener=files(gateway_pair),
        own_client={"mechanism": "SCRAM-SHA-512", "username": "admin", "password_file": str(password)},
        events={"topic": events, "replication_factor": 1},
        quotas={
            "mode": "enforce",
            "users": {"alice": {"producer_ids_rate": 0}},
            "producer_ids": {"grace": "0s"},
        },
    ) as gateway:
        config = confluent(gateway.bootstrap_servers, authority, None) | {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
        }  # fmt: skip
        bob = {**config, "sasl.username": "bob", "sasl.password": "bob-secret"}
        producer = Producer({**bob, "enable.idempotence": True})
        producer.produce(topic, b"of bob")
        assert producer.flush(20) == 0
        alice = Producer({
            **config, "sasl.username": "alice", "sasl.password": "alice-secret", "enable.idempotence": True,
            "message.timeout.ms": 2_000,
        })  # fmt: skip
        alice.produce(topic, b"of alice")
        alice.flush(10)
        refused = gateway.log_events("producer_id_refused")
        assert {line["user"] for line in refused} == {"alice"}
        published = gateway.metrics().value("pidgate_events_published_total")
        give_up_s = time.monotonic() + 10
        while not published and time.monotonic() < give_up_s:
            time.sleep(0.1)
            published = gateway.metrics().value("pidgate_events_published_total")
        assert published
        assert not gateway.log_events("events_topic_unavailable")
        for line in gateway.log_text().splitlines():
            assert "secret" not in line


@pytest.mark.nightly
@pytest.mark.parametrize("size", [1_500_000, LARGE_BYTES])
def test_large_records_arrive_byte_for_byte(
    tls_cluster: Cluster, authority: Authority, gateway_pair: Pair, topic_name: TopicName, size: int
) -> None:
    topic = topic_name("large")
    create_topic(tls_cluster.bootstrap_servers(), topic, config={"max.message.bytes": str(2 * LARGE_BYTES)})
    values = [random.Random(seed).randbytes(size - seed) for seed in range(3)]
    with gateway_before(tls_cluster, SSL, authority, gateway_pair, listener=files(gateway_pair)) as gateway:
        config = confluent(gateway.bootstrap_servers, authority, None)
        producer = Producer({**config, "message.max.bytes": 2 * LARGE_BYTES, "linger.ms": 0})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(60) == 0
        assert read_values({**config, "max.partition.fetch.bytes": 2 * LARGE_BYTES}, topic, 3) == values


@pytest.mark.parametrize(
    ("protocol", "remedy"),
    [
        (SSL, "cluster.tls.cert_file must be issued by its CA"),
        pytest.param(PLAINTEXT, "is this the port of a TLS listener?", marks=pytest.mark.nightly),
    ],
)
def test_brokers_that_refuse_the_gateway_are_named_with_the_remedy(
    tls_cluster: Cluster, authority: Authority, protocol: str, remedy: str
) -> None:
    """Without a certificate where one is asked for, and with TLS where there is none."""
    servers = tls_cluster.bootstrap_servers(protocol)
    cluster = {"bootstrap_servers": servers.split(","), "tls": {"ca_file": str(authority.ca_file)}}
    gateway = GatewayProcess(servers, settings={"cluster": cluster})
    try:
        gateway.start(wait=False)
        give_up_s = time.monotonic() + 10
        while not gateway.log_events("cluster_not_reached") and time.monotonic() < give_up_s:
            time.sleep(0.05)
        assert remedy in gateway.log_events("cluster_not_reached")[0]["cause"]
    finally:
        gateway.__exit__(None, None, None)


@pytest.mark.nightly
def test_certificates_rotated_under_load_cost_no_connection(
    tls_cluster: Cluster, authority: Authority, topic_name: TopicName
) -> None:
    pair = authority.issue("rotating")
    topic = topic_name("rotated")
    create_topic(tls_cluster.bootstrap_servers(), topic)
    with gateway_before(tls_cluster, SSL, authority, pair, listener=files(pair)) as gateway:
        errors = list[KafkaError]()
        config = confluent(gateway.bootstrap_servers, authority, None)
        producer = Producer({**config, "enable.idempotence": True, "error_cb": errors.append, "linger.ms": 1})
        done = threading.Event()
        sent = 0

        def rotate() -> None:
            for _ in range(3):
                time.sleep(2.5)
                authority.issue("rotating")
            time.sleep(2.5)
            done.set()

        rotating = threading.Thread(target=rotate)
        rotating.start()
        while not done.is_set():
            producer.produce(topic, b"%d" % sent)
            sent += 1
            producer.poll(0.002)
        rotating.join()
        assert producer.flush(20) == 0
        assert errors == []
        renewed = gateway.log_events("tls_renewed")
        # Listener and brokers' side.
        assert len(renewed) == 3 * 2
        metrics = gateway.metrics()
        # librdkafka itself leaves the port where it bootstrapped.
        by_client = metrics.value("pidgate_connections_closed_total", cause="client")
        assert metrics.value("pidgate_connections_closed_total") == by_client <= 1
        AdminClient(config).list_topics(timeout=10)


EXAMPLES = {
    # Example: the brokers' listener, and whether clients have TLS, and log in.
    "laptop/pidgate": (PLAINTEXT, False, False),
    "sasl/sasl": (SASL_PLAINTEXT, False, True),
    "tls/clients": (PLAINTEXT, True, False),
    "tls/tls": (SASL_SSL, True, True),
    "mtls/mutual": (SSL, True, False),
    "tls/brokers": (SASL_SSL, False, True),
}


ELSEWHERE = {
    "tls/sni": "test_tls.py",
    "mtls/identity": "test_upstream_identity.py",
    "mtls/own": "test_upstream_identity.py",
    "sasl/oauthbearer": "test_oauthbearer.py",
    "sasl/kerberos": "test_gssapi.py",
}
"""Examples with a test of their own."""


def test_every_row_of_the_page_has_an_example_that_is_run() -> None:
    page = (ROOT / "docs" / "how-to" / "security.md").read_text()
    _, _, table = page.partition("| clients speak |")
    rows = [line for line in table.partition("\n\n")[0].splitlines()[2:]]
    named = [re.findall(r"\(\.\./\.\./examples/([\w/-]+)\.yaml\)", row) for row in rows]
    assert len(rows) > 8
    assert all(len(examples) == 1 for examples in named), named
    shown = {examples[0] for examples in named}
    assert shown <= {*EXAMPLES, *ELSEWHERE}
    written = {
        f"{folder}/{path.stem}"
        for folder in ("sasl", "tls", "mtls")
        for path in (ROOT / "examples" / folder).glob("*.yaml")
    }
    assert written <= {*EXAMPLES, *ELSEWHERE}
    for example, module in ELSEWHERE.items():
        name = example.rpartition("/")[2]
        assert f"{name}.yaml" in (Path(__file__).parent / module).read_text()


async def _read_back(servers: str, authority: Authority, topic: str, value: bytes) -> bytes:
    config: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": "SSL"}
    config["ssl_context"] = ssl.create_default_context(cafile=str(authority.ca_file))
    async with AIOKafkaProducer(**config) as producer:
        await producer.send_and_wait(topic, value)
    async with AIOKafkaConsumer(topic, **config, auto_offset_reset="earliest") as consumer:
        return bytes((await asyncio.wait_for(consumer.getone(), 20)).value)


@pytest.mark.nightly
def test_the_example_of_one_port_for_all_brokers_works(
    tls_cluster: Cluster, authority: Authority, topic_name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With aiokafka, since where its names lead can be chosen here."""
    settings = yaml.safe_load((ROOT / "examples" / "tls" / "sni.yaml").read_text())
    topic = topic_name("sni")
    create_topic(tls_cluster.bootstrap_servers(), topic)
    wildcard = authority.issue("wildcard", names=["DNS:*.kafka.example"])
    listener = {
        "sni": settings["listeners"][0]["sni"],
        "advertise": None,
        "node_ports": None,
        "tls": files(wildcard),
    }
    resolve = socket.getaddrinfo

    def to_here(host: Any, *arguments: Any, **more: Any) -> Any:
        return resolve("127.0.0.1" if str(host).endswith(".kafka.example") else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", to_here)
    with GatewayProcess(tls_cluster.bootstrap_servers(), listener=listener) as gateway:
        servers = f"bootstrap.kafka.example:{gateway.port}"
        assert asyncio.run(_read_back(servers, authority, topic, b"by name")) == b"by name"
        assert {line["node_id"] for line in gateway.log_events("listening")} == {None}


@pytest.mark.nightly
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_work(
    tls_cluster: Cluster, authority: Authority, joe: Pair, topic_name: TopicName, tmp_path: Path, example: str
) -> None:
    """As they are, but for addresses, the folder of their files, and a rate of 1."""
    protocol, has_tls, logs_in = EXAMPLES[example]
    text = (ROOT / "examples" / f"{example}.yaml").read_text()
    text = text.replace("username: pidgate,", "username: admin,")  # a user that the cluster has
    write_tls_files(text, tmp_path, authority)
    (tmp_path / "pidgate").write_text("admin-secret")
    text = text.replace(TLS_FILES, f"{tmp_path}/").replace("/run/secrets/", f"{tmp_path}/")
    settings = yaml.safe_load(text.replace("/var/lib/", f"{tmp_path}/state-of-"))
    servers = tls_cluster.bootstrap_servers(protocol)
    tls = settings["cluster"].get("tls")
    if tls == {}:  # no public CA has issued this cluster's
        tls = {"ca_file": str(authority.ca_file)}
    events = {"topic": topic_name("events"), "replication_factor": 1, "enabled": logs_in}
    # Its admin address is asked without TLS here; test_cli_tls.py asks with it.
    own = {"quotas": with_rates_of_one(settings["quotas"])}
    if "own_client" in settings:
        own["own_client"] = settings["own_client"]
    with GatewayProcess(
        servers,
        listener={"tls": settings["listeners"][0].get("tls")},
        settings={"cluster": {"bootstrap_servers": servers.split(","), "tls": tls}, **own, "events": events},
    ) as gateway:
        config = confluent(
            gateway.bootstrap_servers, authority if has_tls else None, joe if has_tls else None
        )
        if logs_in:
            config |= {
                "security.protocol": "SASL_SSL" if has_tls else "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
            }
        topic = topic_name(example.replace("/", "-"))
        create_topic(tls_cluster.bootstrap_servers(), topic)
        third_id_is_refused(gateway, config, topic)
        assert read_values(config, topic, 1) == [b"by example"]
        user = {"tls-mutual": "joe"}.get(example, "alice" if logs_in else "ANONYMOUS")
        assert gateway.metrics().value("pidgate_producer_ids_admitted_total", user=user)


@pytest.mark.nightly
def test_a_topic_made_and_administered_over_tls(
    tls_cluster: Cluster, authority: Authority, gateway_pair: Pair, topic_name: TopicName
) -> None:
    """Addresses that clients see are the gateway's, and lead to its TLS."""
    with gateway_before(tls_cluster, SSL, authority, gateway_pair, listener=files(gateway_pair)) as gateway:
        admin = AdminClient(confluent(gateway.bootstrap_servers, authority, None))
        topic = topic_name("made")
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(20)
        seen = admin.list_topics(timeout=10)
        assert {broker.port for broker in seen.brokers.values()} == {gateway.first_node_port + 1}
        assert len(seen.topics[topic].partitions) == 3


@pytest.mark.nightly
def test_load_sends_through_tls_with_a_certificate_of_its_own(
    tls_cluster: Cluster,
    authority: Authority,
    gateway_pair: Pair,
    joe: Pair,
    topic_name: TopicName,
    tmp_path: Path,
) -> None:
    topic = topic_name("load")
    create_topic(tls_cluster.bootstrap_servers(), topic)
    listener = {**files(gateway_pair), "client_auth": "required", "client_ca_file": str(authority.ca_file)}
    with gateway_before(tls_cluster, SSL, authority, gateway_pair, listener=listener) as gateway:
        own = f"security.protocol=SSL\nssl.certificate.location={joe.cert_file}\nssl.key.location={joe.key_file}\n"
        for ca, to in (
            (f"ssl.ca.location={authority.ca_file}\n", ["--bootstrap-servers", gateway.bootstrap_servers]),
            ("", ["--config", str(gateway.directory) + "/pidgate.yaml"]),
        ):
            properties = tmp_path / "client.properties"
            properties.write_text(own + ca)
            options = ["--topic", topic, "--duration", "2s", "--clients", "steady=2", "--json"]
            command = [str(PIDGATE), "load", *options, *to, "--kafka-config", str(properties)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            total = json.loads(done.stdout)["total"]
            assert total["acknowledged"] == total["due"] > 20
