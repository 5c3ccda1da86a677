"""How long each client family waits for a quota with its defaults, and with a budget of 20 s for a record.

What an application is told when the refusal lasts longer than that; docs/reference/clients.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.clients.refusal import RefusedClient, refused_clients
from tests.clients.roster import Client, Trial
from tests.clients.test_versions import why_missing
from tests.support.log_checks import raise_if_bad
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

pytestmark = [pytest.mark.kafka, pytest.mark.clients]

FAMILIES: Final = (
    Client("aiokafka"),
    Client("kafka-python"),
    Client("confluent-kafka"),
    Client("java"),
    Client("franz-go"),
    Client("kafkajs"),
    Client("sarama"),
)
GIVES_UP: Final[dict[Trial, set[str]]] = {
    Trial(10): set(),
    Trial(30): set(),
    # kafkajs gives up the batches in flight; aiokafka's send() waits 40 s for room.
    Trial(125): {"aiokafka", "kafka-python", "java", "kafkajs"},
    # The drivers of the others have no such setting.
    Trial(30, give_up_s=20): {"aiokafka", "kafka-python", "confluent-kafka", "java"},
}
"""The families that do not have everything acknowledged."""


@pytest.fixture(scope="module")
def newest() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(nodes=3)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def missing() -> dict[Client, str]:
    return {client: reason for client in FAMILIES if (reason := why_missing(client))}


@pytest.fixture(scope="module", params=GIVES_UP, ids=str)
def refused(
    newest: Cluster, request: pytest.FixtureRequest, missing: dict[Client, str]
) -> Iterator[dict[Client, RefusedClient]]:
    """All families side by side."""
    with refused_clients(newest, [one for one in FAMILIES if one not in missing], request.param) as started:
        yield started


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_client_is_served_or_says_that_it_gave_up(
    refused: dict[Client, RefusedClient], missing: dict[Client, str], family: Client
) -> None:
    if family in missing:
        pytest.skip(missing[family])
    run = refused[family]
    result = run.finish()
    raise_if_bad(result.verdict)
    gave_up = result.raised + result.never_told
    assert bool(gave_up) == (family.driver in GIVES_UP[run.trial]), str(result)
