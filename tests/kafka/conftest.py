"""Real clusters, started at first use, shared by the whole session, gone at its end.

Tests share brokers and must therefore use topics, groups and users of their own (see `topic_name`).
Whoever breaks a broker starts a cluster of his own.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.support.clusters import Choice, running
from tools.sandbox.certificates import Authority
from tools.sandbox.jars import OLDEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec, Tls

DISTINCTIVE_HOST = "127.66.77.88"
"""What the brokers of `three_brokers` advertise: no client of a gateway may ever see it."""

_numbers = itertools.count(1)


def _serve(spec: ClusterSpec, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = Cluster(spec)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop(keep_logs=request.session.testsfailed > 0)


@pytest.fixture(scope="session")
def any_cluster(cluster_choice: Choice, request: pytest.FixtureRequest) -> Iterator[str]:
    """Bootstrap servers of the cluster of choice: given, container or embedded (then it is `cluster`)."""

    def embedded() -> str:
        cluster: Cluster = request.getfixturevalue("cluster")
        return cluster.bootstrap_servers()

    with running(cluster_choice, embedded) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture(scope="session")
def cluster(sasl_cluster: Cluster) -> Cluster:
    """One node of the newest Kafka, for those who use PLAINTEXT: the same one, since each start takes seconds."""
    return sasl_cluster


@pytest.fixture(scope="session")
def three_brokers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes with gaps in their ids, advertising a distinctive address; replication up to 3."""
    spec = ClusterSpec(node_ids=(1, 5, 102), advertised_host=DISTINCTIVE_HOST)
    yield from _serve(spec, request)


@pytest.fixture(scope="session")
def old_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One node of the oldest Kafka that is supported."""
    yield from _serve(ClusterSpec(version=OLDEST), request)


@pytest.fixture(scope="session")
def sasl_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One node with SASL_PLAINTEXT (alice, bob, admin; see ClusterSpec.users) beside PLAINTEXT."""
    yield from _serve(ClusterSpec(sasl=True), request)


@pytest.fixture(scope="session")
def guarded(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One node as `sasl_cluster`, where all but admin need rights. Give them for a topic of your own."""
    yield from _serve(ClusterSpec(sasl=True, acl=True), request)


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Names that no other test of this session uses: topic_name("orders") -> "orders-17"."""

    def name(stem: str) -> str:
        return f"{stem}-{next(_numbers)}"

    return name


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The CA of `tls_cluster`, and of whoever is to be trusted there."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def tls_cluster(authority: Authority, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One node with SSL, where clients have to show a certificate, and SASL_SSL, beside those without TLS."""
    tls = Tls(authority.issue("broker").both, authority.ca_file, "required")
    yield from _serve(ClusterSpec(sasl=True, tls=tls), request)
