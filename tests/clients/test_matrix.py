"""The matrix: every client, every feature, both Kafkas, and every client refused for 3 s and for 40 s.

`make clients` runs it and generates the table in docs/reference/clients.md.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.clients.features import CHECKS, Bench, NotOffered, not_offered
from tests.clients.refusal import RefusedClient, assert_good, refused_clients
from tests.clients.report import HANGS
from tests.clients.roster import CLIENTS, FEATURES, TRIALS, Client
from tests.support.rules import rule
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.clients]

Note = Callable[[str, object], None]


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_feature(
    three_of: Cluster, gateway: GatewayProcess, client: Client, feature: str, record_property: Note
) -> None:
    version = three_of.spec.version
    if (reason := not_offered(client, feature, version)) is not None:
        pytest.skip(reason)
    topic = f"{client}-{feature}".replace(" ", "-").lower()
    try:
        record_property("note", CHECKS[feature](Bench(client, three_of, gateway, topic)))
    except NotOffered as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module", params=TRIALS, ids=str)
def refused_clients_of(
    three_of: Cluster, request: pytest.FixtureRequest
) -> Iterator[dict[Client, RefusedClient]]:
    with refused_clients(three_of, CLIENTS, request.param) as started:
        yield started


@rule("Every client family retries a refused batch.", "order")
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_refused(
    refused_clients_of: dict[Client, RefusedClient], client: Client, record_property: Note
) -> None:
    run = refused_clients_of[client]
    result = run.finish()
    record_property("note", result)
    if result.never_told:
        record_property("state", HANGS)
    assert_good(client, run.trial, result)
