"""GSSAPI before a real broker of a real realm: tickets are not read, so all who have one share one quota."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from pidgate.load.journal import Outcome
from pidgate.quota.entities import shown, unidentified
from tests.support import kerberos
from tests.support.clients.load import Load, Login
from tests.support.clients.process import ClientFailed, ClientProcess
from tests.support.kerberos import Kdc
from tools.sandbox.errors import JavaNotFound
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST
from tools.sandbox.java import java_for
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, SUPER_USER, ClusterSpec
from tools.sandbox.tools import QUICK_TO_START
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]

TopicName = Callable[[str], str]
EXAMPLE = Path(__file__).parents[2] / "examples/sasl/kerberos.yaml"
ALL_SUCH = shown(unidentified("GSSAPI"))
BROKER_HOST = "127.55.44.33"


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    try:
        java_for(NEWEST, kerberos.JAVA_MODULES)
    except JavaNotFound as reason:
        pytest.skip(str(reason))
    with kerberos.running_kdc([f"{kerberos.SERVICE}/localhost", "joe", "ann"]) as running:
        yield running


@pytest.fixture(scope="module")
def kerberized(kdc: Kdc) -> Iterator[Cluster]:
    """Takes tickets for localhost, where it is not: the gateway is."""
    spec = ClusterSpec(
        sasl=True,
        advertised_host=BROKER_HOST,
        java_modules=kerberos.JAVA_MODULES,
        jvm_options=(*QUICK_TO_START, kerberos.option(kdc.krb5_conf)),
        properties={
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,GSSAPI",
            **kerberos.broker_properties(SASL_PLAINTEXT, kdc, "localhost"),
        },
    )
    with Cluster(spec) as cluster:
        yield cluster


def ticket_of(kdc: Kdc, name: str) -> Login:
    return Login(username=name, mechanism="GSSAPI", keytab=kdc.keytab(name), krb5_conf=kdc.krb5_conf)


def acknowledged(servers: str, topic: str, login: Login, client: str = "java", **more: float) -> int:
    load = Load(bootstrap_servers=servers, topic=topic, records=3, login=login, **more)  # type: ignore[arg-type]
    return ClientProcess.produce(client, load).wait().count(Outcome.ACKNOWLEDGED)


def test_the_example_works_and_its_quota_is_that_of_all_tickets(
    kerberized: Cluster, kdc: Kdc, topic_name: TopicName, tmp_path: Path
) -> None:
    """As kerberos.yaml stands, but for addresses, its user, its own topic and a rate of one: the second empties it."""
    (tmp_path / "pidgate").write_text(f"{SUPER_USER}-secret")
    settings = yaml.safe_load(EXAMPLE.read_text().replace("/run/secrets/", f"{tmp_path}/"))
    settings["own_client"]["username"] = SUPER_USER
    settings["quotas"]["unidentified"]["GSSAPI"]["producer_ids_rate"] = 1
    servers = kerberized.bootstrap_servers(SASL_PLAINTEXT)
    topic = create_topic(kerberized.bootstrap_servers(), topic_name("tickets"))
    with GatewayProcess(
        servers,
        listener={"advertise": "localhost"},
        quotas=settings["quotas"],
        settings={"own_client": settings["own_client"]},
    ) as gateway:
        to = f"localhost:{gateway.port}"
        assert [acknowledged(to, topic, ticket_of(kdc, name)) for name in ("joe", "ann")] == [3, 3]
        admitted = "pidgate_producer_ids_admitted_total"
        assert gateway.metrics().value(admitted, user=ALL_SUCH) == 2
        with pytest.raises((ClientFailed, AssertionError)):
            assert acknowledged(to, topic, ticket_of(kdc, "joe"), give_up_s=6) == 3
        assert {line["user"] for line in gateway.log_events("producer_id_refused")} == {
            unidentified("GSSAPI")
        }
        # Who logs in by a name has a quota of his own.
        alice = Login(username="alice", password="alice-secret")
        assert acknowledged(to, topic, alice, "confluent-kafka") == 3
        assert gateway.metrics().value(admitted, user="alice") == 1
