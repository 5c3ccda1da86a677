"""What one user spends another one still has: memory of filters, tokens of the cluster, turns of the retry queue."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from pidgate.events.definitions import DecisionEvent
from pidgate.events.reading import from_json
from pidgate.protocol.errors import ErrorCode
from tests.hostile.attack import HOSTILE_USER, Delivery, Place, Target
from tests.hostile.attacker import Attacker
from tests.hostile.site import HONEST_USER, Site, running_site
from tests.support.frames import ONE_RECORD, Topics, framed, produce_request, record_batch
from tests.support.raw import decoded
from tests.support.topic_values import every_value
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import PLAINTEXT, SUPER_USER
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

PRODUCE: Final = 0
VERSION: Final = 9
IDS_OF_A_REQUEST: Final = 8
"""Producer ids in one Produce."""
LOG_LINES: Final = 6
"""A second: each process says that ids were refused, or that filters are full."""

HONEST: Final = {"producer_ids_rate": 1_000_000}


def produce(target: Target, *ids: int) -> bytes:
    """Return a Produce with a batch for each id; from the second on they are for partitions that nobody has."""
    batches: list[tuple[int, bytes | None]] = [
        (index, record_batch(producer_id, records=ONE_RECORD)) for index, producer_id in enumerate(ids)
    ]
    topics: Topics = [(target.topic, batches)]
    return framed(produce_request(VERSION, topics))


def is_refused(answer: bytes) -> bool:
    (topic,) = decoded(PRODUCE, VERSION, answer)["responses"]
    return bool(topic["partition_responses"][0]["error_code"] == ErrorCode.NOT_ENOUGH_REPLICAS)


def bring(site: Site, user: str, frames: Sequence[bytes], connections: int) -> int:
    """Send the frames over so many connections at once; return how many were not refused."""
    passed: list[int] = []

    def send(mine: Sequence[bytes]) -> None:
        with site.connect(user) as client:
            outcome = client.attack(mine, Delivery.PIPELINED)
        assert not outcome.is_closed
        passed.append(sum(not is_refused(answer) for answer in outcome.answers))

    together([lambda mine=frames[first::connections]: send(mine) for first in range(connections)])  # type: ignore[misc]
    assert len(passed) == connections, "a connection was closed"
    return sum(passed)


def together(calls: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- memory ---------------------------------------------------------------------------------------------

MOST_LIVE_IDS: Final = 4_000
RATE: Final = 5
FRESH: Final = 200
TWO_FALSE_POSITIVES: Final = 2

GREEDY: Final[Mapping[str, Mapping[str, Any]]] = {
    "a rate of 2^31-1": {"producer_ids_rate": 2**31 - 1},
    "who is observed": {"producer_ids_rate": 5, "mode": "observe"},
}


@pytest.mark.parametrize(
    "greedy", [pytest.param(one, marks=pytest.mark.nightly) if "observed" in one else one for one in GREEDY]
)
def test_a_user_who_fills_all_filters_makes_nobody_elses_ids_known(
    sasl_cluster: Cluster, greedy: str
) -> None:
    quotas = {
        "users": {
            HONEST_USER: HONEST,
            HOSTILE_USER: GREEDY[greedy],
            SUPER_USER: {"producer_ids_rate": RATE},
        },
        "producer_ids": {"max_throttle": "100ms", "max_live_ids": MOST_LIVE_IDS},
    }
    with running_site(sasl_cluster, Place(), quotas=quotas) as site:
        target = site.target()
        filling = [
            produce(target, *(target.new_id() for _ in range(IDS_OF_A_REQUEST)))
            for _ in range(int(2.5 * MOST_LIVE_IDS) // IDS_OF_A_REQUEST)
        ]
        fresh = [produce(target, target.new_id()) for _ in range(FRESH)]
        with site.under_attack(log_lines=LOG_LINES):
            assert bring(site, HOSTILE_USER, filling, 4) == len(filling)
            passed = bring(site, SUPER_USER, fresh, 20)
    assert RATE <= passed <= RATE + 1 + TWO_FALSE_POSITIVES


# ---- tokens ---------------------------------------------------------------------------------------------

OF_THE_CLUSTER: Final = 20
UNHELD: Final[Mapping[str, Mapping[str, Any]]] = {
    "observed": {"producer_ids_rate": 1_000, "mode": "observe"},
    "exempt": {"exempt": ["producer_ids"]},
}


@pytest.mark.parametrize("unheld", ["observed", pytest.param("exempt", marks=pytest.mark.nightly)])
def test_who_is_never_refused_drains_no_bucket_of_the_cluster(sasl_cluster: Cluster, unheld: str) -> None:
    quotas = {
        "cluster_producer_ids_rate": OF_THE_CLUSTER,
        "users": {HONEST_USER: HONEST, HOSTILE_USER: UNHELD[unheld]},
    }
    with running_site(sasl_cluster, Place(), quotas=quotas) as site:
        target = site.target()
        flood = [produce(target, target.new_id()) for _ in range(10 * OF_THE_CLUSTER)]
        few = [produce(target, target.new_id()) for _ in range(OF_THE_CLUSTER)]
        with site.under_attack(log_lines=LOG_LINES):
            assert bring(site, HOSTILE_USER, flood, 4) == len(flood)
            assert bring(site, HONEST_USER, few, 4) == len(few)


# ---- events ---------------------------------------------------------------------------------------------

FLOOD: Final = 100_000
ADMITTED: Final = 27


@pytest.mark.nightly
@pytest.mark.timeout(280)
def test_events_of_another_user_reach_the_topic_beside_a_flood(sasl_cluster: Cluster, tmp_path: Path) -> None:
    """An observed user has 100,000 ids admitted. All events are in one partition."""
    topic = create_topic(sasl_cluster.bootstrap_servers(), "__events-of-a-flood")
    password = tmp_path / "password"
    password.write_text("admin-secret")
    settings = {
        "events": {"topic": topic, "replication_factor": 1},
        "own_client": {"mechanism": "PLAIN", "username": SUPER_USER, "password_file": str(password)},
    }
    quotas = {"users": {HONEST_USER: HONEST, HOSTILE_USER: {"producer_ids_rate": 5, "mode": "observe"}}}
    with running_site(sasl_cluster, Place(), settings=settings, quotas=quotas) as site:
        target = site.target()
        flood = [
            produce(target, *(target.new_id() for _ in range(IDS_OF_A_REQUEST)))
            for _ in range(FLOOD // IDS_OF_A_REQUEST)
        ]
        passed: list[int] = []
        flooding = threading.Thread(target=lambda: passed.append(bring(site, HOSTILE_USER, flood, 4)))
        flooding.start()
        with site.connect(HONEST_USER) as honest:
            for _ in range(ADMITTED):
                assert not is_refused(honest.ask(produce(target, target.new_id())))
                time.sleep(0.2)
        assert flooding.is_alive(), "the flood went on all the time"
        flooding.join()
        assert passed == [len(flood)]
    values = asyncio.run(every_value(sasl_cluster.bootstrap_servers(PLAINTEXT), topic))
    told = [event for event in map(from_json, values) if isinstance(event, DecisionEvent)]
    assert sum(event.user == HONEST_USER for event in told) == ADMITTED


# ---- turns ----------------------------------------------------------------------------------------------

TOKEN_EACH_S: Final = 0.25
OTHER_ADDRESS: Final = "127.0.0.2"
ROGUE_CONNECTIONS: Final = 25
TURNS: Final = 8
"""Tokens that a process on an address of its own may wait for: its own, a rogue's in turn, and what is under way."""
SLOW: Final = {
    "users": {HONEST_USER: HONEST, HOSTILE_USER: {"producer_ids_rate": 60 / TOKEN_EACH_S}},
    "producer_ids": {"max_throttle": "100ms", "window": "1m", "burst": 0.01},
}


@contextmanager
def rogues(site: Site, ids: int) -> Iterator[None]:
    """Have so many ids come back again and again, from one address, until the block is left."""
    target = site.target()
    numbers = [target.new_id() for _ in range(ids)]
    frames = [produce(target, *numbers[at : at + IDS_OF_A_REQUEST]) for at in range(0, ids, IDS_OF_A_REQUEST)]
    over, in_line = threading.Event(), threading.Barrier(ROGUE_CONNECTIONS + 1)

    def come_back(first: int) -> None:
        mine = frames[first::ROGUE_CONNECTIONS]
        with site.connect(HOSTILE_USER) as rogue:
            for _ in range(2):  # a refusal, and the return that makes it wait in line
                rogue.attack(mine, Delivery.PIPELINED)
            in_line.wait()
            for frame in itertools.cycle(mine):
                if over.is_set():
                    return
                rogue.ask(frame)

    threads = [
        threading.Thread(target=come_back, args=(first,), daemon=True) for first in range(ROGUE_CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    in_line.wait(60)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def wait_of(client: Attacker, frame: bytes) -> float:
    """Return how long a client that sends a refused request again waits until it is taken."""
    began_s = time.monotonic()
    while is_refused(client.ask(frame)):
        assert time.monotonic() - began_s < 60, "it waits for ever"
    return time.monotonic() - began_s


@pytest.mark.parametrize("ids", [1_200, pytest.param(999, marks=pytest.mark.nightly)])
def test_a_full_queue_keeps_no_process_on_another_address_waiting(sasl_cluster: Cluster, ids: int) -> None:
    """By the address alone they are told apart: the user is the same."""
    with running_site(sasl_cluster, Place(), quotas=SLOW) as site:
        target = site.target()
        with site.under_attack(log_lines=LOG_LINES), rogues(site, ids):
            with site.connect(HOSTILE_USER, source=OTHER_ADDRESS) as healthy:
                waits_s = [wait_of(healthy, produce(target, target.new_id())) for _ in range(3)]
            waiting = site.gateway.metrics().value("pidgate_producer_ids_waiting", user=HOSTILE_USER)
        assert waiting > 0.7 * min(ids, 1_000), "the queue was not full"
        assert max(waits_s) < TURNS * TOKEN_EACH_S, waits_s
