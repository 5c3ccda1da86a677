"""Load that is held: many connections for minutes, a fleet that arrives, a broker that stands still, a scraper.

20: 8,000 idempotent producers with 6,000 requests/s in sum for ten minutes; any error, throttle time
or closed connection fails the run. 21: 500 connections/s for 30 s beside 1,000 requests/s of clients that are there.
22: one of three brokers stops reading for 60 s (SIGSTOP) under bulk producers of its own; what counts are the requests
of another broker's clients. 23: /metrics is read over and over while the gateway remembers ids of 20,000 users. The
two phases of 21, of 22 and of 23 have one gateway in each run.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidgate.events.definitions import DecisionEvent
from pidgate.events.writing import to_json
from pidgate.load.plan import Address
from tools.bench.alone import (
    BROKER_BYTES,
    BROKER_PROPERTIES,
    Alone,
    Column,
    Conditions,
    Plan,
    Results,
    broker_beside,
    broker_spec,
    compiled_gateway,
    give_core,
)
from tools.bench.goals import Goal
from tools.bench.loads.client import FAILURES, Through, connect, create_topic, metadata_of
from tools.bench.loads.process import measured_by, started
from tools.bench.quantities import Measured, cpu_us_per_request, measured_as, p50_ms, p99_ms
from tools.bench.scenario import RETENTION
from tools.bench.scenarios import lateness
from tools.bench.targets import GENEROUS, TargetFailed
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.play import keep_brokers_in_memory
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic as make_topic

HELD: Final = "held"
CALM: Final = "calm"
ARRIVING: Final = "arriving"
STALLED: Final = "a broker stalled"
SCRAPED: Final = "scraped"

_LEARNT_WITHIN_S: Final = 20.0


# ---- 20 ------------------------------------------------------------------------------------------------


def _measure_held(plan: Plan, conditions: Conditions) -> Results:
    results: Results = {HELD: []}
    spec = broker_spec({"max.connections.per.ip": "40000"})
    rate = {"mode": "enforce", "default": {"producer_ids_rate": 10 * plan["clients"]}}
    limits = {"connections_per_user": int(2 * plan["clients"]), "connections_rate_per_user": 1_000}
    with broker_beside(conditions.placement, spec) as cluster:
        topic_id = create_topic(cluster.nodes[1], "bench-held", int(plan["partitions"]), dict(RETENTION))
        for run in range(1, conditions.runs + 1):
            gateway = compiled_gateway(
                cluster.bootstrap_servers(),
                rate,
                limits=limits,
                events={"topic": f"bench-held-events-{run}"},
                log_level="warning",
            )
            with gateway:
                before = lateness.now(gateway)
                through = Through(("127.0.0.1", gateway.first_node_port + 1), topic_id, None, gateway.pid)
                with started("produce", through, plan, conditions.placement) as load:
                    measured: Measured = measured_by(load)
                measured |= lateness.since(before, lateness.now(gateway))
                metrics = gateway.metrics()
                measured["closed_with_error"] = sum(
                    metrics.value("pidgate_connections_closed_total", cause=cause)
                    for cause in ("upstream", "limit", "protocol", "unreachable")
                )
            results[HELD].append(measured)
            conditions.say(
                f"20 run {run}/{conditions.runs} p50 {measured['p50_ms']:.2f} p99 {measured['p99_ms']:.2f} ms"
            )
    return results


# ---- 21 ------------------------------------------------------------------------------------------------


def _paced(plan: Plan) -> dict[str, float]:
    keys = ("clients", "rate_per_s", "record_bytes", "warmup_s", "measure_s")
    return {key: plan[key] for key in keys} | {"partitions_each": 1, "records": 1, "acks": 1}


def _measure_arriving(plan: Plan, conditions: Conditions) -> Results:
    results: Results = {CALM: [], ARRIVING: []}
    with broker_beside(conditions.placement, broker_spec()) as cluster:
        topic_id = create_topic(cluster.nodes[1], "bench-arriving", int(plan["clients"]), dict(RETENTION))
        for run in range(1, conditions.runs + 1):
            gateway = compiled_gateway(
                cluster.bootstrap_servers(),
                limits={"connections_rate_per_user": 1_000},
                events={"topic": f"bench-arriving-events-{run}"},
                log_level="warning",
            )
            with gateway:
                give_core(gateway, conditions.placement)
                through = Through(("127.0.0.1", gateway.first_node_port + 1), topic_id, None, gateway.pid)
                for phase in (CALM, ARRIVING):
                    results[phase].append(_phase(phase == ARRIVING, plan, through, conditions))
                    p99 = results[phase][-1]["p99_ms"]
                    conditions.say(f"21 run {run}/{conditions.runs} {phase:9} p99 {p99:.2f} ms")
    return results


def _phase(arriving: bool, plan: Plan, through: Through, conditions: Conditions) -> Measured:
    seconds = {"warmup_s": 0, "measure_s": plan["warmup_s"] + plan["measure_s"]}
    fleet = {**_paced(plan), "clients": 32, "rate_per_s": plan["connections_per_s"], **seconds}
    with started("produce", through, _paced(plan), conditions.placement) as load:
        if not arriving:
            return measured_by(load)
        with started("connect", through, fleet, conditions.placement) as comers:
            measured: Measured = measured_by(load)
            arrived = measured_by(comers)
    measured["connections_per_s"] = arrived["connections"] / arrived["seconds"]
    measured["arrival_p99_ms"] = arrived["p99_ms"]
    return measured


# ---- 22 ------------------------------------------------------------------------------------------------

_STALLED_NODE: Final = 3


def _topic_on(cluster: Cluster, name: str, node_id: int, partitions: int) -> bytes:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
    new = NewTopic(name, partitions, replica_assignment=[[node_id]] * partitions, config=dict(RETENTION))
    admin.create_topics([new], operation_timeout=30)[name].result(timeout=60)
    give_up_s = time.monotonic() + _LEARNT_WITHIN_S
    with connect(cluster.nodes[node_id]) as connection:
        while time.monotonic() < give_up_s:
            (topic,) = metadata_of(connection, [name])
            if topic.error_code == 0 and not any(partition.error_code for partition in topic.partitions):
                return bytes(topic.topic_id.bytes)
            time.sleep(0.1)
    raise TargetFailed(f"topic {name} has no leaders")


def _measure_stalled(plan: Plan, conditions: Conditions) -> Results:
    results: Results = {CALM: [], STALLED: []}
    keep_brokers_in_memory(BROKER_BYTES)
    for run in range(1, conditions.runs + 1):
        # A broker that was stopped for a minute takes as long to be one of the cluster again: each run has its own.
        spec = ClusterSpec(nodes=3, heap_mb=512, properties=BROKER_PROPERTIES, keep_logs_on_failure=False)
        with Cluster(spec) as cluster:
            for phase, measured in _calm_and_stalled(cluster, plan, conditions):
                results[phase].append(measured)
                conditions.say(f"22 run {run}/{conditions.runs} {phase:16} p99 {measured['p99_ms']:.2f} ms")
    return results


def _calm_and_stalled(cluster: Cluster, plan: Plan, conditions: Conditions) -> Iterator[tuple[str, Measured]]:
    mine = _topic_on(cluster, "bench-others", 1, int(plan["clients"]))
    stalled = _topic_on(cluster, "bench-stalled", _STALLED_NODE, 2)
    gateway = GatewayProcess(
        cluster.bootstrap_servers(),
        quotas=GENEROUS,
        settings={"log_level": "warning"},
        node_ids=cluster.nodes,
    )
    with gateway:
        ports = {node_id: ("127.0.0.1", gateway.first_node_port + node_id) for node_id in cluster.nodes}
        _learn(ports)
        others = Through(ports[1], mine, None, gateway.pid)
        theirs = Through(ports[_STALLED_NODE], stalled, None, gateway.pid)
        for phase in (CALM, STALLED):
            with _bulk(theirs, plan, conditions):
                time.sleep(1)
                yield phase, _beside(phase == STALLED, cluster, others, plan, conditions)


def _learn(ports: dict[int, Address]) -> None:
    """The gateway opens the ports of nodes as it learns of them."""
    give_up_s = time.monotonic() + _LEARNT_WITHIN_S
    for port in ports.values():
        while True:
            try:
                connect(port).close()
                break
            except FAILURES as error:
                if time.monotonic() > give_up_s:
                    raise TargetFailed(f"the gateway does not learn its brokers: {error}") from error
                time.sleep(0.1)


@contextmanager
def _bulk(through: Through, plan: Plan, conditions: Conditions) -> Iterator[None]:
    """Producers that always have more to send, until the block ends."""
    bulk = {
        "clients": 2, "rate_per_s": 0, "partitions_each": 1, "records": 500, "record_bytes": 1000, "acks": 1,
        "warmup_s": 1, "measure_s": plan["warmup_s"] + plan["measure_s"] + 60,
    }  # fmt: skip
    with started("produce", through, bulk, conditions.placement) as load:
        yield
        _end(load)


def _end(load: subprocess.Popen[str]) -> None:
    load.kill()
    load.communicate()


def _beside(
    is_stalled: bool, cluster: Cluster, others: Through, plan: Plan, conditions: Conditions
) -> Measured:
    with started("produce", others, _paced(plan), conditions.placement) as load:
        if is_stalled:
            cluster.node(_STALLED_NODE).signal(signal.SIGSTOP)
        try:
            return measured_by(load)
        finally:
            cluster.node(_STALLED_NODE).signal(signal.SIGCONT)


# ---- 23 ------------------------------------------------------------------------------------------------


def _fill_with_users(bootstrap_servers: str, topic: str, users: int) -> None:
    """Write an events topic in which so many users brought an id each."""
    make_topic(bootstrap_servers, topic, 12, config={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50})
    for number in range(users):
        admission = DecisionEvent(
            cluster="bench",
            gateway_id="bench",
            incarnation="bench",
            seq=number + 1,
            wall_time_ms=time.time_ns() // 1_000_000,
            decision_time_ms=1,
            user=f"user-{number}",
            client_id="bench",
            address="127.0.0.1",
            producer_id=number,
            epoch=0,
            transactional=False,
            topic="bench",
            partition=0,
            base_sequence=0,
            request_partitions=1,
            decision="admit",
            reason="first_seen",
            quota_version=1,
            applied_offsets=[],
        )
        producer.produce(topic, to_json(admission), admission.user)
        producer.poll(0)
    if producer.flush(60):
        raise TargetFailed(f"the events topic {topic} could not be filled")


def _measure_scraped(plan: Plan, conditions: Conditions) -> Results:
    results: Results = {CALM: [], SCRAPED: []}
    with broker_beside(conditions.placement, broker_spec()) as cluster:
        topic_id = create_topic(cluster.nodes[1], "bench-scraped", int(plan["clients"]), dict(RETENTION))
        for run in range(1, conditions.runs + 1):
            topic = f"bench-scraped-events-{run}"
            _fill_with_users(cluster.bootstrap_servers(), topic, int(plan["users"]))
            gateway = compiled_gateway(
                cluster.bootstrap_servers(), events={"topic": topic}, log_level="warning"
            )
            with gateway:
                give_core(gateway, conditions.placement)
                through = Through(("127.0.0.1", gateway.first_node_port + 1), topic_id, None, gateway.pid)
                for phase in (CALM, SCRAPED):
                    measured = _scraped(phase == SCRAPED, gateway, plan, through, conditions)
                    results[phase].append(measured)
                    conditions.say(
                        f"23 run {run}/{conditions.runs} {phase:8} p99 {measured['p99_ms']:.2f} ms"
                    )
    return results


def _scraped(
    is_scraped: bool, gateway: GatewayProcess, plan: Plan, through: Through, conditions: Conditions
) -> Measured:
    before = lateness.now(gateway)
    if before.metrics.value("pidgate_producer_ids_live") < 0.9 * plan["users"]:
        raise TargetFailed("the gateway does not remember the users of its topic")
    with started("produce", through, _paced(plan), conditions.placement) as load:
        scrapes = _scraping(gateway.admin_port, plan) if is_scraped else nullcontext()
        with scrapes:
            measured: Measured = measured_by(load)
    return measured | lateness.since(before, lateness.now(gateway))


@contextmanager
def _scraping(admin_port: int, plan: Plan) -> Iterator[None]:
    """Read the page as a scraper does, `scrape_every_s`, in a process of its own until the block ends."""
    command = [
        sys.executable,
        "-c",
        "import sys, time, urllib.request\n"
        "while True:\n"
        "    urllib.request.urlopen(sys.argv[1], timeout=30).read()\n"
        "    time.sleep(float(sys.argv[2]))",
        f"http://127.0.0.1:{admin_port}/metrics",
        str(plan["scrape_every_s"]),
    ]
    with subprocess.Popen(command) as scraper:
        try:
            yield
            if scraper.poll() is not None:
                raise TargetFailed("the scraper did not live to the end: its error is above")
        finally:
            scraper.kill()


_LATENCY: Final = (
    Column("p50 ms", p50_ms, 2),
    Column("p99 ms", p99_ms, 2),
    Column("p99.9 ms", measured_as("p999_ms"), 2),
)

FLEET: Final = Alone(
    number="20",
    name="held",
    title="8,000 connections with 6,000 requests/s in sum for ten minutes",
    kafka=NEWEST,
    plan={
        "clients": 8_000,
        "partitions": 64,
        "rate_per_s": 6_000,
        "record_bytes": 1_024,
        "partitions_each": 1,
        "records": 1,
        "acks": 1,
        "warmup_s": 20,
        "measure_s": 600,
    },
    quick={"clients": 100, "partitions": 8, "rate_per_s": 100, "warmup_s": 1, "measure_s": 3},
    measure=_measure_held,
    columns=(
        *_LATENCY,
        Column("CPU us/request", cpu_us_per_request, 1),
        Column("its loops late ms", measured_as("late_ms"), 2),
        Column("without a core ms", measured_as("late_without_core_ms"), 2),
    ),
    goals=(
        Goal("requests answered without error", measured_as("requests"), "exactly", 3_600_000, target=HELD),
        Goal("connections closed by an error", measured_as("closed_with_error"), "exactly", 0, target=HELD),
    ),
    enough_runs=1,
)
ARRIVALS: Final = Alone(
    number="21",
    name="arrivals",
    title="500 connections/s for 30 s beside 1,000 requests/s of clients that are there",
    kafka=NEWEST,
    plan={
        "clients": 8,
        "rate_per_s": 1_000,
        "record_bytes": 1_024,
        "connections_per_s": 500,
        "warmup_s": 3,
        "measure_s": 30,
    },
    quick={"rate_per_s": 100, "connections_per_s": 20, "warmup_s": 1, "measure_s": 3},
    measure=_measure_arriving,
    columns=_LATENCY,
    goals=(
        Goal("p99 of the clients that are there", p99_ms, "at most", 2, target=ARRIVING, than=CALM),
        Goal("connections", measured_as("connections_per_s"), "at least", 490, "per second", target=ARRIVING),
    ),
)
STALL: Final = Alone(
    number="22",
    name="stalled",
    title="One of three brokers stops reading for 60 s, beside 500 requests/s of another one's clients",
    kafka=NEWEST,
    plan={"clients": 8, "rate_per_s": 500, "record_bytes": 1_024, "warmup_s": 3, "measure_s": 60},
    quick={"rate_per_s": 50, "warmup_s": 1, "measure_s": 3},
    measure=_measure_stalled,
    columns=_LATENCY,
    goals=(
        # Both phases write the same to the same broker; in the calm one a neighbour has work, too.
        Goal("p99 of the other brokers' clients", p99_ms, "at most", 1.1, target=STALLED, than=CALM),
    ),
)
SCRAPE: Final = Alone(
    number="23",
    name="scraped",
    title="/metrics read every second with 20,000 users, beside 1,000 requests/s",
    kafka=NEWEST,
    plan={
        "clients": 8,
        "rate_per_s": 1_000,
        "record_bytes": 1_024,
        "users": 20_000,
        "scrape_every_s": 1,
        "warmup_s": 3,
        "measure_s": 30,
    },
    quick={"rate_per_s": 100, "users": 1_000, "warmup_s": 1, "measure_s": 3},
    measure=_measure_scraped,
    columns=(*_LATENCY, Column("its loop late ms", measured_as("late_ms"), 2)),
    goals=(
        Goal(
            "p99 while scraped", p99_ms, "at most", 2, "ms more", target=SCRAPED, than=CALM, by="difference"
        ),
    ),
)
