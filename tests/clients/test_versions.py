"""Clients in the versions that are deployed, refused for 10 s with many records queued and batches of the default size.

By day tests/kafka/test_clients_with_faults.py has a raw client claim such a version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from pidgate.load.journal import Outcome, ProducerJournal
from tests.clients.refusal import RefusedClient, assert_good, refused_clients
from tests.clients.roster import QUEUED, VERSIONS, Client
from tests.support.clients import old_clients, other_client
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.clients]


def why_missing(client: Client) -> str:
    """Why a client cannot run here; empty: it can."""
    try:
        if client.release:
            old_clients.packages(client.driver, client.release)
        elif client.driver in other_client.GO_CLIENTS:
            other_client.build(client.driver)
    except other_client.NotAvailable as reason:
        return str(reason)
    return ""


@pytest.fixture(scope="session")
def missing() -> dict[Client, str]:
    return {client: reason for client in VERSIONS if (reason := why_missing(client))}


@pytest.fixture(scope="module", params=(QUEUED,), ids=str)
def refused_clients_of(
    three_of: Cluster, request: pytest.FixtureRequest, missing: dict[Client, str]
) -> Iterator[dict[Client, RefusedClient]]:
    here = [client for client in VERSIONS if client not in missing]
    with refused_clients(three_of, here, request.param) as started:
        yield started


@pytest.mark.parametrize("client", VERSIONS, ids=str)
def test_all_that_was_queued_is_acknowledged_once(
    refused_clients_of: dict[Client, RefusedClient],
    missing: dict[Client, str],
    client: Client,
    record_property: Callable[[str, object], None],
) -> None:
    if client in missing:
        pytest.skip(missing[client])
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
    if reason := why_missing(client):
        pytest.skip(reason)
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
