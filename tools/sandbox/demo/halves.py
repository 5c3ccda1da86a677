"""The two halves of the demo: direct, and through the gateway."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from pidgate.load.journal import ProducerJournal
from pidgate.protocol.errors import KafkaProtocolError
from tools.sandbox.demo.cast import Bystanders, Carol, Mallory, Place, stop_all
from tools.sandbox.demo.evidence import BrokerEvidence, GatewayEvidence, Half
from tools.sandbox.demo.findings import ids_refused
from tools.sandbox.demo.plan import CLICKS, FUSE_STATES, MALLORY, NIGHTLY, NODE_ID, ORDERS, PARTITIONS, Plan
from tools.sandbox.demo.segments import read_topic
from tools.sandbox.demo.stage import Scene, Stage
from tools.sandbox.demo.watch import BrokerWatch, MachineDelay, Progress
from tools.sandbox.errors import NotInTime
from tools.sandbox.gateway import GatewayProcess, Metrics
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import LogRecord, read_log
from tools.sandbox.play import copy_files
from tools.sandbox.spec import PLAINTEXT, SASL_PLAINTEXT
from tools.sandbox.topics import create_topic
from tools.sandbox.wire import BrokerSilent, ProducerStates, broker_view, init_producer_id_error

_LOOK_EVERY_S = 0.4
_FIRST_RECORDS = 20

Baseline = list[Mapping[str, ProducerJournal]]


def play_direct(plan: Plan, stage: Stage, directory: Path) -> tuple[Baseline, float, Half]:
    """Run the healthy clients alone, three times; then with the rogues until the broker dies.

    The number is the p99 of a timer's lateness in ms, while the healthy clients were alone.
    """
    directory.mkdir()
    with _broker(plan, stage, directory) as cluster:
        server = cluster.bootstrap_servers(SASL_PLAINTEXT)
        with MachineDelay() as delay:
            baseline = [
                _baseline_run(plan, stage, server, directory, run + 1) for run in range(plan.baseline_runs)
            ]
        stage.say(f"[bold]direct[/]: {plan.rogues} rogues of mallory and carol's crash loop come, too")
        scene = _Scenery(plan, stage, cluster, directory, "direct, no gateway", None)
        return baseline, delay.p99_ms(), _attack(scene, server)


def play_through_gateway(plan: Plan, stage: Stage, directory: Path, direct_s: float) -> Half:
    """Run the same rogues through the gateway against a fresh broker of the same size."""
    at_least_s = None if plan.quota is None else plan.through_s(direct_s)
    directory.mkdir()
    with (
        _broker(plan, stage, directory) as cluster,
        GatewayProcess(
            cluster.bootstrap_servers(SASL_PLAINTEXT), quotas=plan.quotas(), ready_within_s=plan.patience_s
        ) as gateway,
    ):
        began_s = time.monotonic()
        try:
            stage.say(f"[bold]through the gateway[/]: {_quota_text(plan)}; the same rogues come")
            scene = _Scenery(plan, stage, cluster, directory, "through the gateway", at_least_s)
            half = _attack(scene, gateway.bootstrap_servers)
            half.gateway = _gateway_evidence(gateway, began_s)
            return half
        finally:
            copy_files(gateway.directory, directory, "pidgate.*")


def _quota_text(plan: Plan) -> str:
    rate = plan.rate_of(MALLORY)
    if rate is None:
        return "observe mode without limits (QUOTA=off)"
    if plan.fuse:
        room = f"a fuse for {FUSE_STATES:,} producer states"
        return (
            f"observe mode, with {room}, and a quota of {float(rate):g} new producer ids an hour for mallory"
        )
    return f"mallory may bring {float(rate):g} new producer ids an hour"


@contextmanager
def _broker(plan: Plan, stage: Stage, directory: Path) -> Iterator[Cluster]:
    stage.say(f"a broker starts: Kafka {plan.version}, heap {plan.heap_mb} MB")
    with Cluster(plan.cluster()) as cluster:
        try:
            for topic, partitions in PARTITIONS.items():
                create_topic(cluster.bootstrap_servers(PLAINTEXT), topic, partitions)
            _write_first_records(cluster, plan.patience_s)
            yield cluster
        finally:
            node = cluster.directory / f"node-{NODE_ID}"
            copy_files(node, directory, "*.log*")


def _write_first_records(cluster: Cluster, within_s: float) -> None:
    """Write one record without a producer id to each partition of clicks.

    A partition's first record costs several flushes to disk, which are not part of the demo and dominate on a
    slow disk.
    """
    # Metadata takes a moment to include new leaders; librdkafka logs this to stderr and retries.
    settings = {"bootstrap.servers": cluster.bootstrap_servers(PLAINTEXT), "linger.ms": 0, "log_level": 0}
    producer = Producer(settings)
    for partition in range(PARTITIONS[CLICKS]):
        producer.produce(CLICKS, b"first", partition=partition)
    if left := producer.flush(within_s):
        raise NotInTime(
            f"{left} of the first records of 'clicks' were not acknowledged within {within_s:g} s"
        )


def _baseline_run(
    plan: Plan, stage: Stage, server: str, directory: Path, run: int
) -> Mapping[str, ProducerJournal]:
    stage.say(
        f"direct, without rogues: alice and bob, {plan.baseline_s:g} s, run {run} of {plan.baseline_runs}"
    )
    own = directory / f"baseline-{run}"
    own.mkdir()
    bystanders = _bystanders(plan, Place(server, own))
    try:
        bystanders.wait_until_acknowledged(_FIRST_RECORDS, plan.patience_s)
        time.sleep(plan.baseline_s)
    finally:
        bystanders.stop()
    return bystanders.journals()


@dataclass(frozen=True, slots=True)
class _Scenery:
    """The cluster, directory and duration of an attack."""

    plan: Plan
    stage: Stage
    cluster: Cluster
    directory: Path
    title: str
    at_least_s: float | None
    """None: until the broker dies."""


def _attack(scenery: _Scenery, server: str) -> Half:
    """Run alice and bob against the bootstrap server, then also mallory and carol."""
    plan, place = scenery.plan, Place(server, scenery.directory)
    bystanders, is_served = _bystanders(plan, place), True
    try:
        bystanders.wait_until_acknowledged(_FIRST_RECORDS, plan.patience_s)
        mallory = Mallory(place, CLICKS, [f"mallory-etl-{n}" for n in range(1, plan.rogues + 1)])
        mallory.start(threads=plan.threads, patience_s=plan.rogue_delivery_timeout_s, seed=plan.seed)
        carol = Carol(place, NIGHTLY)
        watch = BrokerWatch(scenery.cluster)
        try:
            with MachineDelay() as delay:
                attack_s = _follow(scenery, watch, bystanders, mallory, carol)
        finally:
            is_served = scenery.cluster.node(NODE_ID).is_alive
            watch.close()
            stop_all([*mallory.members, carol.member], is_served=is_served)
    finally:
        bystanders.stop(is_served=is_served)
    mallory.follow()
    return Half(
        attack_s=attack_s,
        points=tuple(watch.points),
        broker=_broker_evidence(scenery),
        mallory=mallory.journals,
        carol=carol.journal(),
        bystanders=bystanders.journals(),
        delay_ms=delay.p99_ms(),
        notes=bystanders.notes(),
    )


def _bystanders(plan: Plan, place: Place) -> Bystanders:
    return Bystanders(place, ORDERS, PARTITIONS[ORDERS], plan.bystander_per_s)


def _follow(
    scenery: _Scenery, watch: BrokerWatch, bystanders: Bystanders, mallory: Mallory, carol: Carol
) -> float:
    """Watch until the broker is dead, or mallory was refused and the time is up; return the duration in seconds.

    Raises NotInTime.
    """
    watch.begin()
    progress = Progress(scenery.plan.patience_s)
    while True:
        point = watch.observe_broker()
        for group in (bystanders, mallory, carol):
            group.follow()
        scenery.stage.show(
            Scene(
                title=scenery.title,
                of_s=max(point.at_s, scenery.at_least_s or scenery.plan.usual_death_s),
                points=watch.points,
                bystanders=bystanders.counts,
                mallory=[*mallory.journals.values()],
                crash_loop=carol.counts,
                heap_mb=scenery.plan.heap_mb,
            )
        )
        if not point.alive:
            return point.at_s
        journals = mallory.journals.values()
        refused, brought = sum(map(ids_refused, journals)), sum(len(journal.entries) for journal in journals)
        if scenery.at_least_s is not None and point.at_s >= scenery.at_least_s and refused:
            return point.at_s
        heap_mb = max(one.heap_used_mb for one in watch.points)
        progress.check(
            (brought, point.ids, heap_mb, point.at_s < (scenery.at_least_s or 0.0) and point.at_s),
            f"the broker lives, with {heap_mb} of {scenery.plan.heap_mb} MB in use, and mallory was "
            f"{'refused' if refused else 'not refused'}",
        )
        time.sleep(_LOOK_EVERY_S)


def _broker_evidence(scenery: _Scenery) -> BrokerEvidence:
    scenery.stage.say("the broker, its log and the journals are read")
    cluster, patience_s = scenery.cluster, scenery.plan.patience_s
    data = cluster.directory / f"node-{NODE_ID}" / "data"
    states = _states(cluster, patience_s)
    is_alive = states is not None
    errors = [
        line for line in cluster.node(NODE_ID).log_tail(100_000).splitlines() if "OutOfMemoryError" in line
    ]
    return BrokerEvidence(
        exit_code=cluster.node(NODE_ID).exit_code,
        out_of_memory=errors[-1] if errors else "",
        answers=is_alive,
        states=states,
        segments={topic: read_topic(data, topic) for topic in PARTITIONS},
        log=_log(cluster, patience_s) if is_alive else {},
    )


def _log(cluster: Cluster, within_s: float) -> dict[str, list[LogRecord]]:
    """Read the log back from the broker. Raises NotInTime."""
    server, quiet = cluster.bootstrap_servers(PLAINTEXT), {"log_level": 0}
    try:
        return {
            topic: read_log(server, topic, timeout_s=within_s, settings=quiet) for topic in (ORDERS, NIGHTLY)
        }
    except (KafkaException, TimeoutError) as error:
        raise NotInTime(f"the log could not be read back: {error}") from error


def _states(cluster: Cluster, within_s: float) -> dict[str, dict[int, list[int]]] | None:
    """Return the producer ids that the broker keeps, once it serves. None: it is dead. Raises NotInTime."""
    address, progress = cluster.nodes[NODE_ID], Progress(within_s)
    failure = ""
    with ProducerStates(address, timeout_s=10.0) as states:
        while cluster.node(NODE_ID).is_alive:
            progress.check(None, f"the broker lives and does not answer: {failure}")
            try:
                if NODE_ID in broker_view(address).brokers and init_producer_id_error(address) == 0:
                    return {topic: states.ids(topic, range(count)) for topic, count in PARTITIONS.items()}
            except (OSError, KafkaProtocolError, BrokerSilent) as error:
                failure = str(error)
            time.sleep(_LOOK_EVERY_S)
    return None


def _gateway_evidence(gateway: GatewayProcess, began_s: float) -> GatewayEvidence:
    alive = gateway.is_alive
    metrics: Metrics | None = None
    exit_code = gateway.exit_code
    if alive:
        try:
            metrics = gateway.metrics()
        except OSError:
            metrics = None
        exit_code = gateway.stop()
    return GatewayEvidence(
        alive_after_attack=alive,
        exit_code=exit_code,
        ran_s=time.monotonic() - began_s,
        log_events=gateway.log_events(),
        metrics=metrics,
    )
