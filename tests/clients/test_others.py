"""Clients of two years ago and in other languages: refused for 3 s and 40 s, and started without being given an id.

Not part of the whole matrix, which has to run where there is a Python only: where one of these cannot be had or built,
its cells say so.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.clients.refusal import RefusedClient, assert_good, refused_clients
from tests.clients.roster import LONG, NO_ID_LONG, NO_ID_SHORT, OTHERS, SHORT, Client
from tests.support.clients import old_clients, other_client
from tools.sandbox.kafka import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.clients]

NOT_IDEMPOTENT = {
    client: "its producer has no id" for client in OTHERS if str(client).startswith("kafka-python-2")
}


@pytest.fixture(scope="session")
def missing() -> dict[Client, str]:
    """Return those that cannot run here, with why."""
    found = dict(NOT_IDEMPOTENT)
    for client in OTHERS:
        try:
            if client.release:
                old_clients.packages(client.driver, client.release)
            else:
                other_client.build(client.driver)
        except other_client.NotAvailable as reason:
            found[client] = str(reason)
    return found


@pytest.fixture(scope="module", params=(SHORT, LONG, NO_ID_SHORT, NO_ID_LONG), ids=str)
def refused_clients_of(
    three_of: Cluster, request: pytest.FixtureRequest, missing: dict[Client, str]
) -> Iterator[dict[Client, RefusedClient]]:
    here = [client for client in OTHERS if client not in missing]
    with refused_clients(three_of, here, request.param) as started:
        yield started


@pytest.mark.parametrize("client", OTHERS, ids=str)
def test_it_goes_on_once_tokens_are_back(
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
