"""Several gateways before one cluster that share one quota over their events topic, and what that topic tells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import Any

from confluent_kafka.admin import AdminClient

from pidgate.events.definitions import DecisionEvent, LifecycleEvent
from pidgate.events.reading import from_json
from tests.support.frames import NOT_ENOUGH_REPLICAS
from tests.support.running_producers import until
from tests.support.swarm import SwarmProducer
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.ports import free_port

USER = "ANONYMOUS"
_ids = count(7_000_000_000)
"""Producer ids of nobody: brokers take any, and hand out none that high."""


@dataclass(frozen=True, slots=True)
class Door:
    """A way to a partition's leader through one gateway."""

    address: str
    partition: int


@dataclass
class Fleet:
    """Gateways that are up and know each other. `doors[g]`: the ways through gateway number g."""

    cluster: Cluster
    events_topic: str
    gateways: list[GatewayProcess]
    node_of: list[int | None]
    """The only node that each stands before; None: all of them."""

    def doors(self, topic: str) -> list[list[Door]]:
        leaders = leaders_of(self.cluster, topic)
        return [
            [
                Door(self._address(gateway, leader), partition)
                for partition, leader in leaders.items()
                if only_node in (None, leader)
            ]
            for gateway, only_node in zip(self.gateways, self.node_of, strict=True)
        ]

    def _address(self, gateway: GatewayProcess, node_id: int) -> str:
        listener = gateway.config["listeners"][0]
        if "only_node" in listener:
            return str(listener["bind"])
        return f"127.0.0.1:{gateway.first_node_port + node_id}"

    @property
    def bootstrap_servers(self) -> str:
        """Of the first gateway, as clients are given it."""
        return str(self.gateways[0].config["listeners"][0]["bind"])

    def tokens(self, user: str = USER) -> list[float]:
        """In each gateway's account."""
        return [
            gateway.metrics().value("pidgate_producer_ids_tokens", user=user) for gateway in self.gateways
        ]

    def sum_of(self, name: str, **labels: str) -> float:
        return sum(gateway.metrics().value(name, **labels) for gateway in self.gateways)

    def wait_until_heard(self) -> None:
        """Until every gateway has read all that the topic holds by now."""
        for gateway in self.gateways:
            wait_until_heard(self.cluster, self.events_topic, gateway)

    def decisions(self) -> list[tuple[int, int, DecisionEvent]]:
        """(partition, offset, decision): everything that the topic holds now."""
        return decisions_in(self.cluster, self.events_topic)


def wait_until_heard(cluster: Cluster, topic: str, gateway: GatewayProcess) -> None:
    """Until this gateway has read all that the topic holds by now, its own events among it."""
    told = len(read_log(cluster.bootstrap_servers(), topic))
    until(lambda: gateway.metrics().value("pidgate_events_followed_total") >= told)


def lifecycle_in(cluster: Cluster, topic: str) -> list[LifecycleEvent]:
    read = read_log(cluster.bootstrap_servers(), topic)
    told = (from_json(record.value) for record in read)
    return [event for event in told if isinstance(event, LifecycleEvent)]


def decisions_in(cluster: Cluster, topic: str) -> list[tuple[int, int, DecisionEvent]]:
    read = read_log(cluster.bootstrap_servers(), topic)
    told = [(record.partition, record.offset, from_json(record.value)) for record in read]
    return [(at, offset, event) for at, offset, event in told if isinstance(event, DecisionEvent)]


def leaders_of(cluster: Cluster, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
    partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {number: partition.leader for number, partition in sorted(partitions.items())}


def quotas_of(rate: int, **producer_ids: Any) -> dict[str, Any]:
    """Enforced; a window so long that no token comes back while a test looks, unless given."""
    return {
        "mode": "enforce",
        "default": {"producer_ids_rate": rate},
        "producer_ids": {"window": "10h", "max_throttle": "1s", **producer_ids},
    }


@contextmanager
def fleet_of(
    cluster: Cluster,
    events_topic: str,
    quotas: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    gateways: int = 0,
    shares_port: bool = False,
    sidecars: Sequence[int] = (),
    bootstrap_servers: str = "",
    meet: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Fleet]:
    """So many gateways before all brokers, or one before each of these nodes. `quotas`: of all, or of each.

    `shares_port`: they listen on the same ports (reuse_port).
    `meet`: wait until all know all.
    """
    servers = bootstrap_servers or cluster.bootstrap_servers()
    own = {"events": {"topic": events_topic}, **(settings or {})}
    made: list[GatewayProcess] = []
    # Sidecars of one machine: a loopback address for each node, all on one port.
    port = free_port()
    for node_id in sidecars:
        host, real_port = cluster.nodes[node_id]
        listener = {
            "bind": f"127.77.1.{node_id}:{port}",
            "advertise": f"127.77.1.{{node_id}}:{port}",
            "only_node": node_id,
            "node_ports": None,
        }
        quotas_of_one = quotas if isinstance(quotas, Mapping) else quotas[len(made)]
        made.append(
            GatewayProcess(f"{host}:{real_port}", quotas=quotas_of_one, listener=listener, settings=own)
        )
    for _ in range(gateways):
        quotas_of_one = quotas if isinstance(quotas, Mapping) else quotas[len(made)]
        made.append(
            GatewayProcess(servers, quotas=quotas_of_one, settings=own, node_ids=tuple(cluster.nodes))
        )
    for number, gateway in enumerate(made):
        gateway.config["gateway_id"] = f"gw-{number}"
        if shares_port:
            gateway.port, gateway.first_node_port = made[0].port, made[0].first_node_port
            gateway.config |= {"reuse_port": True, "listeners": made[0].config["listeners"]}
    with ExitStack() as stack:
        for gateway in made:
            stack.callback(gateway.__exit__, None, None, None)
            gateway.start(wait=False)
        for gateway in made:
            gateway.wait_until_ready()
        fleet = Fleet(cluster, events_topic, made, [*sidecars, *repeat(None, gateways)])
        if meet:
            for gateway in made:
                until(
                    lambda gateway=gateway: len(members_seen(gateway)) == len(made) - 1,  # type: ignore[misc]
                    what="gateways do not see each other",
                )
        yield fleet


def members_seen(gateway: GatewayProcess) -> set[str]:
    return {str(event["gateway_id"]) for event in gateway.log_events("fleet_member_seen")}


@dataclass
class Arrivals:
    """Ids that came, each once: what became of each. `late_s`: how far the last one was behind its time."""

    admitted: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    admitted_at: list[tuple[float, int]] = field(default_factory=list)
    """When (monotonic seconds), and through which gateway."""
    late_s: float = 0.0
    took_s: float = 0.0

    @property
    def rate_per_s(self) -> float:
        return (len(self.admitted) + len(self.refused)) / self.took_s


async def unseen_ids(
    topic: str, doors: Sequence[Sequence[Door]], number: int, per_s: float, *, connects_anew: bool = False
) -> Arrivals:
    """So many ids that nobody has seen, evenly over the gateways in turn, each with one batch, at this rate.

    An id that is refused does not come back: its client has crashed. `connects_anew`: each has a connection of its own.
    """
    arrivals = Arrivals()
    idle: dict[Door, list[SwarmProducer]] = {}
    coming: set[asyncio.Task[None]] = set()

    async def arrive(gateway: int, door: Door) -> None:
        free = idle.setdefault(door, [])
        producer = free.pop() if free else SwarmProducer(door.address, topic, door.partition)
        producer.producer_id, producer.sequence = next(_ids), 0
        sent = await producer.send_once(b"x")
        if sent.codes == [NOT_ENOUGH_REPLICAS]:
            arrivals.refused.append(producer.producer_id)
            producer.close()  # It is muted now.
        elif connects_anew:
            producer.close()
            arrivals.admitted.append(producer.producer_id)
        else:
            assert sent.codes == [0], sent
            arrivals.admitted.append(producer.producer_id)
            arrivals.admitted_at.append((time.monotonic(), gateway))
        if not connects_anew:
            free.append(producer)

    began_s = time.monotonic()
    for n in range(number):
        due_s = began_s + n / per_s
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        arrivals.late_s = max(0.0, time.monotonic() - due_s)
        round_number, gateway = divmod(n, len(doors))
        ways = doors[gateway]
        task = asyncio.ensure_future(arrive(gateway, ways[round_number % len(ways)]))
        coming.add(task)
        task.add_done_callback(coming.discard)
        failed = [task for task in coming if task.done() and task.exception()]
        assert not failed, failed
    arrivals.took_s = time.monotonic() - began_s
    await asyncio.gather(*coming)
    for free in idle.values():
        for producer in free:
            producer.close()
    return arrivals


@dataclass
class Propagation:
    """How decisions of one gateway came to others, by what these say they had applied when they decided.

    `delays_ms`: of each admission and each other gateway, until that one's first decision which knew of it (at
    most so long). `most_unknown`: of all admissions, how many others' were unknown to the one that decided.
    """

    delays_ms: list[int]
    most_unknown: int
    oldest_unknown_ms: int

    def percentile_ms(self, share: float) -> int:
        ordered = sorted(self.delays_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0

    def __str__(self) -> str:
        return (
            f"p50 {self.percentile_ms(0.5)} ms, p99 {self.percentile_ms(0.99)} ms, "
            f"max {max(self.delays_ms, default=0)} ms; unknown at an admission at most {self.most_unknown}, "
            f"the oldest for {self.oldest_unknown_ms} ms"
        )


def run_of(event: DecisionEvent) -> str:
    """The gateway, whichever of its processes tells."""
    return event.incarnation.split(".", 1)[0]


def propagation(told: Sequence[tuple[int, int, DecisionEvent]]) -> Propagation:
    """Out of the decisions of one user: wall clocks of one machine are one clock."""
    admissions = [
        (at, offset, event)
        for at, offset, event in told
        if event.decision == "admit" and event.reason in ("first_seen", "queue")
    ]
    by_gateway: dict[str, list[DecisionEvent]] = {}
    for _, _, event in told:
        by_gateway.setdefault(run_of(event), []).append(event)
    for decisions in by_gateway.values():
        decisions.sort(key=lambda event: (event.wall_time_ms, event.incarnation, event.seq))
    delays_ms: list[int] = []
    unknown: dict[tuple[str, int], int] = {}
    """By incarnation and seq of the admission that did not know."""
    oldest_ms = 0
    for at, offset, event in admissions:
        for run, decisions in by_gateway.items():
            if run == run_of(event):
                continue
            for other in decisions:
                if other.wall_time_ms < event.wall_time_ms:
                    continue
                age_ms = other.wall_time_ms - event.wall_time_ms
                if at < len(other.applied_offsets) and other.applied_offsets[at] > offset:
                    delays_ms.append(age_ms)
                    break
                if other.decision == "admit":
                    key = (other.incarnation, other.seq)
                    unknown[key] = unknown.get(key, 0) + 1
                    oldest_ms = max(oldest_ms, age_ms)
    return Propagation(delays_ms, max(unknown.values(), default=0), oldest_ms)
