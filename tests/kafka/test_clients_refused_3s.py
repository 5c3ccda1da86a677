"""Every client family is refused for 3 s before three brokers, all at once; the longer rows are `make clients`."""

from collections.abc import Iterator

import pytest

from tests.clients.refusal import RefusedClient, assert_good, refused_clients
from tests.clients.roster import CLIENTS, SHORT, Client
from tests.support.rules import rule
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

FAMILIES = [client for client in CLIENTS if client.is_newest]


@pytest.fixture(scope="module")
def runs(three_brokers: Cluster) -> Iterator[dict[Client, RefusedClient]]:
    with refused_clients(three_brokers, FAMILIES, SHORT) as started:
        yield started


@rule("No acknowledged record is lost, doubled or reordered.", "order")
@pytest.mark.parametrize("client", FAMILIES, ids=str)
def test_a_refusal_of_3_s_loses_doubles_and_reorders_nothing(
    runs: dict[Client, RefusedClient], client: Client
) -> None:
    assert_good(client, SHORT, runs[client].finish())
