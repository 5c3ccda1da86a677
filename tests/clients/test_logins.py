"""The second matrix: every way of showing who one is, with the newest clients and those of two years ago.

`make clients` runs it, too, and generates its table in docs/reference/clients.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.clients.logins import (
    SESSION_MS,
    LoggedInClient,
    Site,
    no_kdc,
    not_offered,
    password_of,
    principal_of,
)
from tests.clients.roster import KAFKAS, LOGIN_CLIENTS, LOGINS, Client
from tests.support import bearer, kerberos
from tools.sandbox.certificates import Authority
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, SUPER_USER, ClusterSpec, Tls
from tools.sandbox.tools import QUICK_TO_START

pytestmark = [pytest.mark.kafka, pytest.mark.clients]

Note = Callable[[str, object], None]
Runs = Mapping[Client, LoggedInClient]

SESSIONS = {"connections.max.reauth.ms": str(SESSION_MS)}
USERS = {SUPER_USER: f"{SUPER_USER}-secret", **{str(one): password_of(one) for one in LOGIN_CLIENTS}}


@pytest.fixture(scope="module", params=KAFKAS, ids=lambda version: f"kafka-{version}")
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A broker that asks for certificates, and one listener beside it with SCRAM and OAUTHBEARER."""
    folder = tmp_path_factory.mktemp("logins")
    authority = Authority(folder)
    spec = ClusterSpec(
        version=request.param,
        sasl=True,
        users=USERS,
        tls=Tls(authority.issue("broker").both, authority.ca_file, "required"),
        properties={
            **SESSIONS,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            **bearer.broker_properties(SASL_PLAINTEXT),
            **bearer.broker_properties("SASL_SSL"),
        },
    )
    with Cluster(spec) as cluster:
        yield Site(cluster, authority, folder)


@contextmanager
def _started(site: Site, way: str, clients: Sequence[Client]) -> Iterator[Runs]:
    """All of them side by side; those that have this way."""
    with ExitStack() as runs:
        started = {}
        for client in clients:
            if not_offered(client, way) is None:
                started[client] = runs.enter_context(LoggedInClient(site, client, way))
                started[client].start()
        yield started


@pytest.fixture(scope="module", params=[way for way in LOGINS if way != "GSSAPI"])
def logged_in(brokers: Site, request: pytest.FixtureRequest) -> Iterator[Runs]:
    with _started(brokers, request.param, LOGIN_CLIENTS) as runs:
        yield runs


@pytest.mark.parametrize("client", LOGIN_CLIENTS, ids=str)
def test_it_is_whom_it_shows_itself_to_be(
    logged_in: Runs, client: Client, request: pytest.FixtureRequest, record_property: Note
) -> None:
    way = request.node.callspec.params["logged_in"]
    _finish(logged_in, client, way, record_property)


def _finish(runs: Runs, client: Client, way: str, record_property: Note) -> None:
    if (reason := not_offered(client, way)) is not None:
        pytest.skip(reason)
    record_property("note", runs[client].finish())


@pytest.fixture(scope="module", params=KAFKAS, ids=lambda version: f"kafka-{version}")
def kerberized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A broker that takes tickets for the gateway's name, localhost, and is not there itself."""
    if (reason := no_kdc()) is not None:
        pytest.skip(reason)
    folder: Path = tmp_path_factory.mktemp("tickets")
    principals = [f"{kerberos.SERVICE}/localhost", *map(principal_of, LOGIN_CLIENTS)]
    with kerberos.running_kdc(principals) as kdc:
        spec = ClusterSpec(
            version=request.param,
            sasl=True,
            advertised_host="127.55.44.33",
            java_modules=kerberos.JAVA_MODULES,
            jvm_options=(*QUICK_TO_START, kerberos.option(kdc.krb5_conf)),
            properties={
                **SESSIONS,
                "sasl.enabled.mechanisms": "SCRAM-SHA-256,GSSAPI",
                **kerberos.broker_properties(SASL_PLAINTEXT, kdc, "localhost"),
            },
        )
        with Cluster(spec) as cluster:
            yield Site(cluster, Authority(folder), folder, kdc)


@pytest.fixture(scope="module")
def with_tickets(kerberized: Site) -> Iterator[Runs]:
    with _started(kerberized, "GSSAPI", LOGIN_CLIENTS) as runs:
        yield runs


@pytest.mark.parametrize("client", LOGIN_CLIENTS, ids=str)
def test_tickets_are_one_entity(with_tickets: Runs, client: Client, record_property: Note) -> None:
    """Only brokers can open a ticket: quotas.unidentified.GSSAPI holds for all of them."""
    _finish(with_tickets, client, "GSSAPI", record_property)
