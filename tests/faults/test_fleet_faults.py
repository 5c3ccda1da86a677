"""One quota over several gateways, for longer: several rates, many windows, the topic cut, a gateway killed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka.test_fleet import assert_held, held_by
from tests.support.fleet import Arrivals, Door, fleet_of, lifecycle_in, quotas_of, unseen_ids
from tests.support.running_producers import until
from tests.support.swarm import SwarmProducer
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.slow]

NODE_IDS = (1, 2, 3)
_numbers = count(1)
Say = Callable[[object], None]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(node_ids=NODE_IDS)) as cluster:
        yield cluster


@pytest.fixture
def name() -> str:
    return f"fleet-{next(_numbers)}"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def said(what: object) -> None:
        with capsys.disabled():
            print(f"\n{what}")

    return said


@pytest.mark.parametrize("per_s", [20, 100, 400])
@pytest.mark.parametrize(
    "place",
    [
        {"gateways": 2},
        {"gateways": 3},
        {"sidecars": (1, 2)},
        {"sidecars": NODE_IDS},
    ],
    ids=["2 before all", "3 before all", "2 sidecars", "3 sidecars"],
)
def test_the_quota_holds_at(brokers: Cluster, name: str, place: dict[str, Any], per_s: int, say: Say) -> None:
    """As many ids a second, which nobody has seen, of one user; a third of them find a token."""
    topic = create_topic(brokers.bootstrap_servers(), name, partitions=6)
    rate = 5 * per_s // 4 if per_s > 20 else 60
    with fleet_of(brokers, f"{name}-events", quotas_of(rate), **place) as fleet:
        held = held_by(fleet, topic, per_s, rate=rate, number=2 * rate)
    say(f"{place}, rate {rate}: {held}")
    assert_held(held)


def test_the_quota_holds_on_one_port(brokers: Cluster, name: str, say: Say) -> None:
    """500 new connections a second, each with an id of its own; the kernel deals them out."""
    topic = create_topic(brokers.bootstrap_servers(), name, partitions=6)
    rate = 625
    place: dict[str, Any] = {"gateways": 4, "shares_port": True}
    with fleet_of(brokers, f"{name}-events", quotas_of(rate), **place) as fleet:
        held = held_by(fleet, topic, 500, rate=rate, number=2 * rate, connects_anew=True)
    say(f"{place}, rate {rate}: {held}")
    assert_held(held)


def test_what_was_too_much_is_paid_back(brokers: Cluster, name: str, say: Say) -> None:
    """Over many windows no more is admitted than the rate and one overshoot: debts do not add up."""
    topic = create_topic(brokers.bootstrap_servers(), name, partitions=6)
    window_s, rate, windows = 10, 50, 6
    with fleet_of(brokers, f"{name}-events", quotas_of(rate, window=f"{window_s}s"), gateways=3) as fleet:
        arrivals = asyncio.run(unseen_ids(topic, fleet.doors(topic), 60 * window_s * windows, 60))
    refilled = rate * arrivals.took_s / window_s
    too_many = len(arrivals.admitted) - rate - refilled
    say(
        f"{windows} windows of {window_s} s, rate {rate}, {arrivals.rate_per_s:.0f} ids/s: {len(arrivals.admitted)} "
        f"admitted, {rate + refilled:.0f} tokens were there: {too_many:.1f} too many"
    )
    # Three gateways see the same token come back within one propagation delay.
    assert too_many <= 1 + 60 * 0.5
    assert too_many >= -0.3 * refilled, "a rate that is asked for is given"


@dataclass
class Phase:
    """What came through each gateway between two moments."""

    began_s: float
    ended_s: float
    admitted: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, arrivals: Arrivals, began_s: float, ended_s: float, gateways: int) -> Phase:
        admitted = [
            sum(began_s <= at < ended_s and number == gateway for at, gateway in arrivals.admitted_at)
            for number in range(gateways)
        ]
        return cls(began_s, ended_s, admitted)


def test_a_topic_that_was_cut_for_long_and_heals_is_no_outage(brokers: Cluster, name: str, say: Say) -> None:
    """Ten minutes of an hour's window, a hundred times as fast: cut for as long as a window.

    The topic's only broker hangs; the data is on the others. Each gateway then gives the whole rate by itself; when
    the topic is there again each is charged what the others gave, down to one capacity below 0 and no further.
    """
    rate, window_s, cut_s, per_s = 60, 60, 60, 10
    servers = brokers.bootstrap_servers()
    topic = placed(servers, name, [[1], [2]])
    placed(servers, f"{name}-events", [[3], [3], [3]], {"message.timestamp.type": "LogAppendTime"})
    quotas = quotas_of(rate, window=f"{window_s}s")
    with fleet_of(brokers, f"{name}-events", quotas, sidecars=(1, 2)) as fleet:
        marks: dict[str, float] = {}
        lowest = [0.0, 0.0]
        waits_s: list[float] = []

        async def cut_and_heal() -> None:
            await asyncio.sleep(15)
            brokers.node(3).signal(signal.SIGSTOP)
            marks["cut"] = time.monotonic()
            await asyncio.sleep(cut_s)
            brokers.node(3).signal(signal.SIGCONT)
            marks["healed"] = time.monotonic()
            while time.monotonic() < marks["healed"] + 1.5 * window_s:
                for number, tokens in enumerate(await asyncio.to_thread(fleet.tokens)):
                    lowest[number] = min(lowest[number], tokens)
                await asyncio.sleep(0.5)

        async def scenario() -> Arrivals:
            doors = fleet.doors(topic)
            seconds = 15 + cut_s + int(1.5 * window_s)
            # Two that are there from the beginning, and have nothing to do with all this.
            known = [asyncio.ensure_future(goes_on(ways[0], topic, seconds, waits_s)) for ways in doors]
            await asyncio.sleep(0.5)
            arrivals, _ = await asyncio.gather(
                unseen_ids(topic, doors, per_s * seconds, per_s), cut_and_heal()
            )
            await asyncio.gather(*known)
            return arrivals

        try:
            arrivals = asyncio.run(scenario())
        finally:
            brokers.node(3).signal(signal.SIGCONT)
        cut, healed = marks["cut"], marks["healed"]
        before = Phase.of(arrivals, 0, cut, 2)
        during = Phase.of(arrivals, cut, healed, 2)
        meanwhile = Phase.of(arrivals, healed, healed + 10, 2)
        after = Phase.of(arrivals, healed + 10, healed + 1.5 * window_s, 2)
        first_s = [
            min(
                (
                    at - healed
                    for at, gateway in arrivals.admitted_at
                    if gateway == number and at > healed + 10
                ),
                default=inf,
            )
            for number in range(2)
        ]
        say(
            f"admitted before {before.admitted}, while cut for {cut_s} s {during.admitted}, in 10 s from healing on "
            f"{meanwhile.admitted}, then {after.admitted}; lowest balances {[round(t, 1) for t in lowest]}; "
            f"first admission after those 10 s {[round(s, 1) for s in first_s]} s after healing; "
            f"{len(waits_s)} batches of known ids, none refused, the slowest took {max(waits_s) * 1000:.0f} ms"
        )
        # On its own each went on with what it knew: nobody was refused for the topic's sake, nobody unheld.
        for admitted in during.admitted:
            assert 0.7 * rate * cut_s / window_s <= admitted <= rate * cut_s / window_s + rate + 1
        assert min(lowest) < -0.5 * rate, "what the other gave meanwhile is charged"
        assert min(lowest) >= -rate - 1.1, "one capacity of debt at most"
        # One window, and the few seconds until the topic is read again. Through which gateway is chance: then
        # tokens come one by one, and whoever is asked first gives it.
        assert min(first_s) <= window_s + 5, "a new id is admitted within one window"
        assert fleet.sum_of("pidgate_events_dropped_total") == 0
        assert fleet.sum_of("pidgate_quota_failed_open_total") == 0


async def goes_on(way: Door, topic: str, seconds: float, waits_s: list[float]) -> None:
    """A producer that sends five batches a second, and is never refused."""
    async with SwarmProducer(way.address, topic, way.partition) as producer:
        await producer.begin()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            began_s = time.monotonic()
            assert (await producer.send_once(b"x")).codes == [0]
            waits_s.append(time.monotonic() - began_s)
            await asyncio.sleep(0.2)


def test_a_gateway_that_was_killed_is_missed_and_its_successor_is_met(
    brokers: Cluster, name: str, say: Say
) -> None:
    with fleet_of(brokers, f"{name}-events", quotas_of(50), gateways=2) as fleet:
        stays, killed = fleet.gateways
        killed.kill()
        began_s = time.monotonic()
        until(lambda: stays.log_events("fleet_member_gone"), within_s=140)
        say(f"missed after {time.monotonic() - began_s:.0f} s")
        (gone,) = stays.log_events("fleet_member_gone")
        assert (gone["gateway_id"], gone["reason"]) == ("gw-1", "silent")
        killed.start()
        until(lambda: len(stays.log_events("fleet_member_seen")) == 2)
        first, second = stays.log_events("fleet_member_seen")
        assert first["gateway_id"] == second["gateway_id"] == "gw-1"
        assert first["incarnation"] != second["incarnation"]
        assert stays.log_events("fleet_member_differs") == []
    told = [(event.phase, event.text) for event in lifecycle_in(brokers, f"{name}-events")]
    assert ("member_gone", "gw-1: silent") in told


def placed(
    bootstrap_servers: str, name: str, replicas: list[list[int]], config: dict[str, str] | None = None
) -> str:
    """A topic whose partitions have these replicas."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = NewTopic(name, len(replicas), replica_assignment=replicas, config=config or {})
    admin.create_topics([wanted], operation_timeout=30)[name].result(timeout=60)
    return name
