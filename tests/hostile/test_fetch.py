"""A byte rate holds who fetches by pipeline, and who does not wait for the login."""

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.hostile.attack import HOSTILE_USER, Place
from tests.hostile.attacker import Attacker, authenticate, handshake, plain_token
from tests.hostile.site import Site, running_site
from tests.support import share_group
from tests.support.frames import batch_of_values, framed, produce_request
from tests.support.raw import RawClient, request
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import PLAINTEXT

pytestmark = pytest.mark.kafka

FETCH, SHARE_FETCH = 1, 78
RATE = 100_000
WINDOW_S = 11.0
BATCH_BYTES = 50_000
PIPELINE = 200
PATIENCE_S = 1.5


@pytest.fixture(scope="module")
def site(sasl_cluster: Cluster) -> Iterator[Site]:
    """A gateway where the hostile user may fetch 100 kB a second, over the window of 11 s."""
    quotas = {
        "users": {HOSTILE_USER: {"consumer_byte_rate": RATE, "producer_ids_rate": 0}},
        "default": {},
    }
    with running_site(sasl_cluster, Place(), quotas=quotas) as running:
        yield running


@pytest.fixture(scope="module")
def topic(site: Site) -> str:
    """160 batches of 50 kB: much more than a whole window allows."""
    name = site.topic()
    batch = batch_of_values(-1, -1, -1, 1, bytes(BATCH_BYTES))
    with RawClient(site.cluster.bootstrap_servers(PLAINTEXT)) as broker:
        for _ in range(160):
            broker.ask(framed(produce_request(9, [(name, [(0, batch)])])))
    return name


def _fetches(topic: str, version: int) -> bytes:
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1}
    partition |= {"log_start_offset": -1, "partition_max_bytes": 50_000_000}
    body = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50_000_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return PIPELINE * request(FETCH, version, body)


def _received(attacker: Attacker, seconds: float) -> int:
    """Return how many bytes come in that time."""
    received, until_s = 0, time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        attacker.socket.settimeout(left_s)
        try:
            received += len(attacker.socket.recv(1 << 20))
        except TimeoutError:
            break
    return received


@pytest.mark.parametrize(
    "version", [12, pytest.param(11, marks=pytest.mark.nightly), pytest.param(4, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("waits", [True, False], ids=["logged in", "behind the login"])
def test_a_pipeline_of_fetches_is_held_to_the_rate(site: Site, topic: str, version: int, waits: bool) -> None:
    """Once what is allowed in the whole window, then the rate, and one response more, which is as large as a window."""
    time.sleep(WINDOW_S)
    with site.under_attack(), site.connect(HOSTILE_USER if waits else None) as attacker:
        login = b"" if waits else handshake() + authenticate(plain_token(HOSTILE_USER))
        attacker.send(login + _fetches(topic, version))
        received = _received(attacker, PATIENCE_S)
    assert BATCH_BYTES < received < RATE * (PATIENCE_S + 2 * WINDOW_S)


def _share_fetches(site: Site, topic: str, version: int) -> bytes:
    """A share session's fetches: each would bring what nobody has got yet."""
    group, member_id = f"share-{topic}-{version}", str(uuid4())
    with RawClient(site.cluster.bootstrap_servers(PLAINTEXT)) as broker:
        share_group.join(broker, group, member_id, topic)
    topics = [{"topic_id": site.topic_id(topic), "partitions": [{"partition_index": 0}]}]
    body = {
        "group_id": group,
        "member_id": member_id,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50_000_000,
        "max_records": 1_000,
        "batch_size": 1_000,
    }
    return b"".join(
        request(
            SHARE_FETCH, version, {**body, "share_session_epoch": epoch, "topics": [] if epoch else topics}
        )
        for epoch in range(PIPELINE)
    )


@pytest.mark.parametrize("version", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_pipeline_of_share_fetches_is_held_to_the_rate(site: Site, topic: str, version: int) -> None:
    """As with fetches; what was recorded before is forgotten."""
    fetches = _share_fetches(site, topic, version)
    time.sleep(WINDOW_S)
    with site.under_attack(), site.connect(HOSTILE_USER) as attacker:
        attacker.send(fetches)
        received = _received(attacker, PATIENCE_S)
    assert BATCH_BYTES < received < RATE * (PATIENCE_S + 2 * WINDOW_S)
