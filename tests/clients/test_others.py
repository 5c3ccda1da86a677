"""Clients in other languages whose producers start while their user is given no id.

Not part of the whole matrix, which has to run where there is a Python only: where one of these cannot be built, its
cells say so.
"""

from collections.abc import Callable, Iterator

import pytest

from pidgate.sandbox.kafka import Cluster
from tests.clients.refusal import RefusedClient, assert_good, refused_clients
from tests.clients.roster import NO_ID_LONG, NO_ID_SHORT, OTHERS, Client
from tests.support.clients import other_client

pytestmark = [pytest.mark.kafka, pytest.mark.clients]


@pytest.fixture(scope="session")
def buildable() -> dict[Client, str]:
    """Those that are here, with an empty text; the others with why they are not."""
    found = {}
    for client in OTHERS:
        try:
            other_client.build(client.driver)
            found[client] = ""
        except other_client.NotAvailable as reason:
            found[client] = str(reason)
    return found


@pytest.fixture(scope="module", params=(NO_ID_SHORT, NO_ID_LONG), ids=str)
def refused_clients_of(
    three_of: Cluster, request: pytest.FixtureRequest, buildable: dict[Client, str]
) -> Iterator[dict[Client, RefusedClient]]:
    here = [client for client in OTHERS if not buildable[client]]
    with refused_clients(three_of, here, request.param) as started:
        yield started


@pytest.mark.parametrize("client", OTHERS, ids=str)
def test_it_starts_once_tokens_are_back(
    refused_clients_of: dict[Client, RefusedClient],
    buildable: dict[Client, str],
    client: Client,
    record_property: Callable[[str, object], None],
) -> None:
    if buildable[client]:
        pytest.skip(buildable[client])
    run = refused_clients_of[client]
    result = run.finish()
    record_property("note", result)
    assert_good(client, run.trial, result)
