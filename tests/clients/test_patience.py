"""How long each client family waits for a quota: with its defaults, and with settings that applications choose.

What an application is told when the refusal lasts longer than that; docs/reference/clients.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.clients.refusal import RefusedClient, refused_clients
from tests.clients.roster import FAMILIES, GIVES_UP, Client
from tests.support.log_checks import raise_if_bad
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

pytestmark = [pytest.mark.kafka, pytest.mark.clients]


@pytest.fixture(scope="module")
def newest() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(nodes=3)) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=GIVES_UP, ids=str)
def refused(newest: Cluster, request: pytest.FixtureRequest) -> Iterator[dict[Client, RefusedClient]]:
    """All families side by side."""
    with refused_clients(newest, [one for one in FAMILIES if not one.why_missing], request.param) as started:
        yield started


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_client_is_served_or_says_that_it_gave_up(
    refused: dict[Client, RefusedClient],
    family: Client,
    record_property: Callable[[str, object], None],
) -> None:
    if family.why_missing:
        pytest.skip(family.why_missing)
    run = refused[family]
    result = run.finish()
    record_property("note", result)
    raise_if_bad(result.verdict)
    gave_up = result.raised + result.never_told
    assert bool(gave_up) == (family.driver in GIVES_UP[run.trial]), str(result)
