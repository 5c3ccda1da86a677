"""Whoever is let in by a certificate has the quota of its user: no subject sheds it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.attack import HOSTILE_USER, Delivery, Place, Target
from tests.hostile.attacker import Attacker
from tests.hostile.site import HONEST_USER, Site, running_site
from tests.support.raw import address_of
from tests.support.tls_forwarder import Certificates, TlsForwarder
from tests.support.tls_listener import client_tls, mutual_tls
from tools.sandbox.certificates import Authority
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

RULES = "RULE:^CN=([a-z]+)(,.*|$)/$1/,RULE:^O=(.*)$/$1/,DEFAULT"
SUBJECTS = {
    "of a user": f"/CN={HOSTILE_USER}",
    "without a subject": "/",
    "that a rule makes nothing of": "/O=",
    "of too many attributes": "/OU=x" * 40 + f"/CN={HONEST_USER}",
    "of a name like another's": f"/CN={HONEST_USER}=",
    "of a user who logs in with TLS alone": "/CN=ANONYMOUS",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate_site(sasl_cluster: Cluster, authority: Authority) -> Iterator[Site]:
    shown = Certificates(
        {**mutual_tls(authority), "ssl_principal_mapping_rules": RULES},
        client_tls(authority, authority.issue("honest", subject=f"/CN={HONEST_USER}")),
    )
    with running_site(sasl_cluster, Place(sasl=False, tls=True), shown=shown) as site:
        yield site


@pytest.mark.parametrize(
    "subject",
    [
        "without a subject",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in SUBJECTS if one != "without a subject"),
    ],
)
def test_no_certificate_sheds_a_quota(certificate_site: Site, authority: Authority, subject: str) -> None:
    """The attacker's requests come with the end of its handshake."""
    topic = certificate_site.topic()
    frames = [Target(topic, 9, certificate_site.place).produce() for _ in range(20)]
    context = client_tls(authority, authority.issue("attacker", subject=SUBJECTS[subject]))
    with (
        TlsForwarder(address_of(certificate_site.gateway.bootstrap_servers), context) as way,
        certificate_site.under_attack(),
        Attacker(way.address) as attacker,
    ):
        attacker.attack(frames, Delivery.PIPELINED)
    assert certificate_site.ids_at_brokers(topic) == set()
