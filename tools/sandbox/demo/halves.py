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
from tools.sandbox.demo.plan import CLICKS, NIGHTLY, NODE_ID, ORDERS, PARTITIONS, Plan
from tools.sandbox.demo.segments import read_topic
from tools.sandbox.demo.stage import Scene, Stage
from tools.sandbox.demo.watch import BrokerWatch
from tools.sandbox.errors import SandboxError
from tools.sandbox.gateway import GatewayProcess, Metrics
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import LogRecord, read_log
from tools.sandbox.play import copy_files
from tools.sandbox.spec import PLAINTEXT, SASL_PLAINTEXT
from tools.sandbox.topics import create_topic
from tools.sandbox.wire import BrokerSilent, ProducerStates, broker_view, init_producer_id_error

_LOOK_EVERY_S = 0.4
_FIRST_RECORDS = 20
_FIRST_RECORDS_WITHIN_S = 20.0
_READ_LOG_WITHIN_S = 20.0

Baseline = list[Mapping[str, ProducerJournal]]


def play_direct(plan: Plan, stage: Stage, directory: Path) -> tuple[Baseline, Half]:
    """Run the healthy clients alone, three times; then with the rogues until the broker dies or time is up."""
    directory.mkdir()
    with _broker(plan, stage, directory) as cluster:
        server = cluster.bootstrap_servers(SASL_PLAINTEXT)
        baseline = [
            _baseline_run(plan, stage, server, directory, run + 1) for run in range(plan.baseline_runs)
        ]
        stage.say(f"[bold]direct[/]: {plan.rogues} rogues of mallory and carol's crash loop come, too")
        scene = _Scenery(plan, stage, cluster, directory, "direct, no gateway", plan.direct_at_most_s, False)
        return baseline, _attack(scene, server)


def play_through_gateway(plan: Plan, stage: Stage, directory: Path, direct_s: float) -> Half:
    """Run the same rogues through the gateway against a fresh broker of the same size."""
    at_most_s = plan.through_s(direct_s)
    directory.mkdir()
    with (
        _broker(plan, stage, directory) as cluster,
        GatewayProcess(cluster.bootstrap_servers(SASL_PLAINTEXT), quotas=plan.quotas()) as gateway,
    ):
        began_s = time.monotonic()
        try:
            stage.say(f"[bold]through the gateway[/]: {_quota_text(plan)}; the same rogues come")
            scene = _Scenery(plan, stage, cluster, directory, "through the gateway", at_most_s, True)
            half = _attack(scene, gateway.bootstrap_servers)
            half.gateway = _gateway_evidence(gateway, began_s)
            return half
        finally:
            copy_files(gateway.directory, directory, "pidgate.*")


def _quota_text(plan: Plan) -> str:
    if plan.quota is None:
        return "observe mode without limits (QUOTA=off)"
    return f"mallory may bring {float(plan.quota):g} new producer ids an hour"


@contextmanager
def _broker(plan: Plan, stage: Stage, directory: Path) -> Iterator[Cluster]:
    stage.say(f"a broker starts: Kafka {plan.version}, heap {plan.heap_mb} MB")
    with Cluster(plan.cluster()) as cluster:
        try:
            for topic, partitions in PARTITIONS.items():
                create_topic(cluster.bootstrap_servers(PLAINTEXT), topic, partitions)
            _write_first_records(cluster)
            yield cluster
        finally:
            node = cluster.directory / f"node-{NODE_ID}"
            copy_files(node, directory, "*.log*")


def _write_first_records(cluster: Cluster) -> None:
    """Write one record without a producer id to each partition of clicks.

    A partition's first record costs several flushes to disk, which are not part of the demo and dominate on a
    slow disk.
    """
    # Metadata takes a moment to include new leaders; librdkafka logs this to stderr and retries.
    settings = {"bootstrap.servers": cluster.bootstrap_servers(PLAINTEXT), "linger.ms": 0, "log_level": 0}
    producer = Producer(settings)
    for partition in range(PARTITIONS[CLICKS]):
        producer.produce(CLICKS, b"first", partition=partition)
    if producer.flush(60):
        raise SandboxError("the broker did not take the first records of 'clicks' within 60 s")


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
        bystanders.wait_until_acknowledged(_FIRST_RECORDS, _FIRST_RECORDS_WITHIN_S)
        time.sleep(plan.baseline_s)
    finally:
        bystanders.stop()
    return bystanders.journals()


@dataclass(frozen=True, slots=True)
class _Scenery:
    """The cluster, directory and time limit of an attack."""

    plan: Plan
    stage: Stage
    cluster: Cluster
    directory: Path
    title: str
    at_most_s: float
    reads_back: bool
    """Whether the log is read back from the broker afterwards, if it is alive."""


def _attack(scenery: _Scenery, server: str) -> Half:
    """Run alice and bob against the bootstrap server, then also mallory and carol."""
    plan, place = scenery.plan, Place(server, scenery.directory)
    bystanders = _bystanders(plan, place)
    try:
        bystanders.wait_until_acknowledged(_FIRST_RECORDS, _FIRST_RECORDS_WITHIN_S)
        mallory = Mallory(place, CLICKS, [f"mallory-etl-{n}" for n in range(1, plan.rogues + 1)])
        mallory.start(threads=plan.threads, patience_s=plan.rogue_delivery_timeout_s, seed=plan.seed)
        carol = Carol(place, NIGHTLY)
        watch = BrokerWatch(scenery.cluster)
        try:
            attack_s = _follow(scenery, watch, bystanders, mallory, carol)
        finally:
            watch.close()
            stop_all([*mallory.members, carol.member])
    finally:
        bystanders.stop()
    mallory.follow()
    return Half(
        attack_s=attack_s,
        points=tuple(watch.points),
        broker=_broker_evidence(scenery.stage, scenery.cluster, scenery.reads_back),
        mallory=mallory.journals,
        carol=carol.journal(),
        bystanders=bystanders.journals(),
        notes=bystanders.notes(),
    )


def _bystanders(plan: Plan, place: Place) -> Bystanders:
    return Bystanders(place, ORDERS, PARTITIONS[ORDERS], plan.bystander_per_s)


def _follow(
    scenery: _Scenery, watch: BrokerWatch, bystanders: Bystanders, mallory: Mallory, carol: Carol
) -> float:
    """Watch until the time is up or the broker is dead; return the duration in seconds."""
    watch.begin()
    while True:
        point = watch.observe_broker()
        for group in (bystanders, mallory, carol):
            group.follow()
        scenery.stage.show(
            Scene(
                title=scenery.title,
                of_s=scenery.at_most_s,
                points=watch.points,
                bystanders=bystanders.counts,
                mallory=[*mallory.journals.values()],
                crash_loop=carol.counts,
                heap_mb=scenery.plan.heap_mb,
            )
        )
        if not point.alive or point.at_s >= scenery.at_most_s:
            return point.at_s
        time.sleep(_LOOK_EVERY_S)


def _broker_evidence(stage: Stage, cluster: Cluster, reads_back: bool) -> BrokerEvidence:
    stage.say("the broker, its log and the journals are read")
    data = cluster.directory / f"node-{NODE_ID}" / "data"
    errors = [
        line for line in cluster.node(NODE_ID).log_tail(100_000).splitlines() if "OutOfMemoryError" in line
    ]
    answers = _answers(cluster)
    server = cluster.bootstrap_servers(PLAINTEXT)
    return BrokerEvidence(
        exit_code=cluster.node(NODE_ID).exit_code,
        out_of_memory=errors[-1] if errors else "",
        answers=answers,
        states=_states(cluster) if answers else None,
        segments={topic: read_topic(data, topic) for topic in PARTITIONS},
        log=_log(server) if answers and reads_back else {},
    )


def _log(server: str) -> dict[str, list[LogRecord]]:
    """Read the log back from the broker; empty if it dies meanwhile."""
    quiet = {"log_level": 0}
    try:
        return {
            topic: read_log(server, topic, timeout_s=_READ_LOG_WITHIN_S, settings=quiet)
            for topic in (ORDERS, NIGHTLY)
        }
    except (KafkaException, TimeoutError):
        return {}


def _answers(cluster: Cluster) -> bool:
    address = cluster.nodes[NODE_ID]
    try:
        return NODE_ID in broker_view(address).brokers and init_producer_id_error(address) == 0
    except (OSError, KafkaProtocolError):
        return False


def _states(cluster: Cluster) -> dict[str, dict[int, list[int]]] | None:
    with ProducerStates(cluster.nodes[NODE_ID], timeout_s=10.0) as states:
        try:
            return {topic: states.ids(topic, range(count)) for topic, count in PARTITIONS.items()}
        except BrokerSilent:
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
