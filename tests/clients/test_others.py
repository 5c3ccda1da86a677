"""Clients of two years ago and in other languages: refused for 3 s and 40 s, and started without being given an id.

Not part of the whole matrix, which has to run where there is a Python only: where one of these cannot be had or built,
its cells say so.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.clients.refusal import RefusedClient, assert_good, refused_clients
from tests.clients.roster import LONG, NO_ID_LONG, NO_ID_SHORT, OTHERS, SHORT, Client
from tools.sandbox.kafka import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.clients]

NOT_IDEMPOTENT = {
    client: "its producer has no id" for client in OTHERS if str(client).startswith("kafka-python-2")
}


def why_missing(client: Client) -> str:
    """Return why a client is not in this matrix; empty: it is."""
    return NOT_IDEMPOTENT.get(client) or client.why_missing


@pytest.fixture(scope="module", params=(SHORT, LONG, NO_ID_SHORT, NO_ID_LONG), ids=str)
def refused_clients_of(
    three_of: Cluster, request: pytest.FixtureRequest
) -> Iterator[dict[Client, RefusedClient]]:
    here = [client for client in OTHERS if not why_missing(client)]
    with refused_clients(three_of, here, request.param) as started:
        yield started


@pytest.mark.parametrize("client", OTHERS, ids=str)
def test_it_goes_on_once_tokens_are_back(
    refused_clients_of: dict[Client, RefusedClient],
    client: Client,
    record_property: Callable[[str, object], None],
) -> None:
    if reason := why_missing(client):
        pytest.skip(reason)
    run = refused_clients_of[client]
    result = run.finish()
    record_property("note", result)
    assert_good(client, run.trial, result)
