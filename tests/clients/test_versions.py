"""Clients in the versions that are deployed, refused for 10 s with many records queued and batches of the default size.

By day tests/kafka/test_clients_with_faults.py has a raw client claim such a version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from pidgate.load.journal import Outcome, ProducerJournal
from tests.clients.refusal import RefusedClient, assert_good, refused_clients
from tests.clients.roster import QUEUED, VERSIONS, Client
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.clients]


@pytest.fixture(scope="module", params=(QUEUED,), ids=str)
def refused_clients_of(
    three_of: Cluster, request: pytest.FixtureRequest
) -> Iterator[dict[Client, RefusedClient]]:
    here = [client for client in VERSIONS if not client.why_missing]
    with refused_clients(three_of, here, request.param) as started:
        yield started


@pytest.mark.parametrize("client", VERSIONS, ids=str)
def test_all_that_was_queued_is_acknowledged_once(
    refused_clients_of: dict[Client, RefusedClient],
    client: Client,
    record_property: Callable[[str, object], None],
) -> None:
    if client.why_missing:
        pytest.skip(client.why_missing)
    run = refused_clients_of[client]
    result = run.finish()
    record_property("note", result)
    assert_good(client, run.trial, result)


# ---- a told throttle ---------------------------------------------------------------------------------------

HANGS: Final = "1.42.2"
STOPPED_S: Final = 35
"""Without an acknowledgement for so long it has stopped: a throttle is told for 30 s at most."""
THROTTLED_S: Final = 120
RECORD_BYTES: Final = 1_000
BYTES_PER_S: Final = 20_000
THROTTLED: Final = THROTTLED_S * BYTES_PER_S // RECORD_BYTES


def throttled(cluster: Cluster, topic: str, *, is_named: bool, for_s: float) -> ProducerJournal:
    """sarama with acks=1 and no producer id under a byte rate, until it is done or the time is over."""
    client = Client("sarama", release=HANGS)
    if client.why_missing:
        pytest.skip(client.why_missing)
    direct = cluster.bootstrap_servers()
    create_topic(direct, topic)
    quotas = {"mode": "enforce", "default": {"producer_byte_rate": BYTES_PER_S}}
    with GatewayProcess(direct, node_ids=cluster.nodes, quotas=quotas) as gateway:
        load = Load(
            bootstrap_servers=gateway.bootstrap_servers,
            topic=topic,
            records=THROTTLED,
            size_bytes=RECORD_BYTES,
            is_idempotent=False,
            is_named=is_named,
        )
        with ClientProcess.produce(client.driver, load, release=client.release) as run:
            until_s = time.monotonic() + for_s
            while run.is_alive and time.monotonic() < until_s:
                time.sleep(0.5)
            run.kill()
            return run.journal()


def test_sarama_that_hangs_on_a_told_throttle_is_told_none(three_of: Cluster) -> None:
    journal = throttled(three_of, "told-none", is_named=True, for_s=3 * THROTTLED_S)
    assert journal.count(Outcome.ACKNOWLEDGED) == THROTTLED
    log = read_log(three_of.bootstrap_servers(), "told-none")
    raise_if_bad(check([journal], log, only_ours=True, same_offsets=False))


def test_the_control_sarama_that_is_told_stops_for_ever(three_of: Cluster) -> None:
    """Nothing names it: neither ApiVersions nor the client id."""
    journal = throttled(three_of, "told", is_named=False, for_s=STOPPED_S + 50)
    settled_ms = [entry.settled_ms for entry in journal.entries.values() if entry.settled_ms >= 0]
    assert journal.count(Outcome.ACKNOWLEDGED) < THROTTLED
    assert max(settled_ms, default=0) < time.monotonic_ns() // 1_000_000 - STOPPED_S * 1_000


# ---- the control: real brokers that say NOT_ENOUGH_REPLICAS ------------------------------------------------

AWAY_S: Final = 15
SETTLED_S: Final = 60
UNHARMED: Final = (
    Client("confluent-kafka", release="2.5.0"),
    Client("confluent-kafka"),
    Client("java"),
)
RAISES_ALL: Final = (Client("sarama", release="1.43.1"), Client("sarama"))
MAY_DIE: Final = (Client("confluent-kafka", release="2.3.0"), Client("confluent-kafka", release="2.4.0"))
"""FATAL at the first refused batch that it would split anew, so not in each run."""


@pytest.fixture(scope="module")
def refused_by_brokers() -> Iterator[dict[Client, ProducerJournal]]:
    """Three replicas are wanted in sync, and one is away for 15 s. No gateway is there."""
    clients = [one for one in (*UNHARMED, *RAISES_ALL, *MAY_DIE) if not one.why_missing]
    with Cluster(ClusterSpec(nodes=3)) as cluster, ExitStack() as running:
        direct = cluster.bootstrap_servers()
        config = {"min.insync.replicas": "3"}
        for client in clients:
            create_topic(direct, f"away-{client}", partitions=6, replication_factor=3, config=config)
        cluster.node(3).stop()
        runs = {}
        for client in clients:
            load = Load(
                bootstrap_servers=direct,
                topic=f"away-{client}",
                records=QUEUED.records,
                is_batched=True,
                partitions=6,
            )
            run = ClientProcess.produce(
                client.driver, load, java_version=client.java_version, release=client.release
            )
            runs[client] = running.enter_context(run)
        time.sleep(AWAY_S)
        cluster.start_node(3)
        until_s = time.monotonic() + SETTLED_S
        while any(run.is_alive for run in runs.values()) and time.monotonic() < until_s:
            time.sleep(0.5)
        for run in runs.values():
            run.kill()
        yield {client: run.journal() for client, run in runs.items()}


@pytest.mark.parametrize("family", [*UNHARMED, *RAISES_ALL, *MAY_DIE], ids=str)
def test_the_control_brokers_that_refuse_do_the_same_to_it(
    refused_by_brokers: dict[Client, ProducerJournal],
    family: Client,
    record_property: Callable[[str, object], None],
) -> None:
    if family not in refused_by_brokers:
        pytest.skip(family.why_missing)
    journal = refused_by_brokers[family]
    acknowledged, raised = journal.count(Outcome.ACKNOWLEDGED), journal.count(Outcome.FAILED)
    record_property("note", f"{acknowledged} acknowledged, {raised} raised of {QUEUED.records}")
    if family in UNHARMED:
        assert acknowledged == QUEUED.records
    elif family in RAISES_ALL:
        assert raised > 0
    else:
        assert acknowledged in {0, QUEUED.records}
