"""What one producer id's state costs a real broker, and whether a leader's move adds any.

    python -m tests.support.failover_calibration [--commit] [--ids 300]

Three brokers of the newest Kafka. The topic `two` has each partition on nodes 1 (leader) and 2, `one` on node 3 alone.
Made-up producer ids write to every partition of both: a state is one (id, partition) pair on one broker. Live heaps are
taken from class histograms (`jcmd GC.class_histogram`, which collects garbage first): before, after the ids, after
four more batches of each id, after node 1 has left and node 2 leads, after node 1 is back from its snapshots, and after
the partitions of `one` have got a second replica on a broker that had none. Then a broker with a small heap is filled
until it dies. Needs a JDK's `jcmd` on the PATH, of any version. Prints a table; --commit keeps it for the test of
the model's defaults, and for docs/how-to/pipeline/failover.md.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from pidgate.load.blocking import BlockingConnection
from pidgate.load.exchanges import produce
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.record_batch import record_batch
from tools.bench.machine import describe
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

RESULTS: Final = Path(__file__).parents[1] / "pipeline" / "calibration" / "failover"
PARTITIONS: Final = 200
SMALL_HEAP_MB: Final = 96
# Kafka keeps the metadata of an id's last five batches (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
BATCHES_KEPT: Final = 5
_FIRST_ID: Final = 1_000_000
_STATE_CLASS: Final = "org.apache.kafka.storage.internals.log.ProducerStateEntry"
#   17:        200000        6400000  org.apache.kafka...ProducerStateEntry (org.apache.kafka.storage@...)
_LINE: Final = re.compile(r"^\s*\d+:\s+(\d+)\s+(\d+)\s+(\S+)", re.MULTILINE)
_SETTLE_S: Final = 30.0
_ANSWER_S: Final = 120.0  # a broker that is short of memory is slow


@dataclass(frozen=True, slots=True)
class Heap:
    """What lives on one broker at one moment."""

    moment: str
    node_id: int
    states: int
    """Producer states, as the JVM counts objects of the class."""
    live_bytes: int
    """All live objects."""


@dataclass(frozen=True, slots=True)
class Death:
    """A broker with a small heap that was filled until it ended."""

    heap_mb: int
    states_acknowledged: int
    exit_code: int | None
    """3: OutOfMemoryError."""
    seconds: float


class CalibrationFailed(Exception):
    """The broker did not do what the measurement needs."""


# Looking


def histogram(pid: int) -> Mapping[str, tuple[int, int]]:
    """Class to live instances and their bytes. Raises CalibrationFailed."""
    told = subprocess.run(
        ["jcmd", str(pid), "GC.class_histogram"], capture_output=True, text=True, timeout=120, check=False
    )
    found = {name: (int(count), int(size)) for count, size, name in _LINE.findall(told.stdout)}
    if not found:
        raise CalibrationFailed(f"jcmd told nothing of {pid}: {told.stdout}{told.stderr}")
    return found


def look(cluster: Cluster, node_id: int, moment: str) -> Heap:
    pid = cluster.node(node_id).pid
    assert pid is not None
    # Twice: what the first full collection leaves to finalizers and caches, the second one takes.
    histogram(pid)
    classes = histogram(pid)
    states = classes.get(_STATE_CLASS, (0, 0))[0]
    heap = Heap(moment, node_id, states, sum(size for _, size in classes.values()))
    print(
        f"{moment:<34} node {node_id}: {states:>7} states, {heap.live_bytes / 1e6:6.1f} MB", file=sys.stderr
    )
    return heap


# Writing


def _write(address: tuple[str, int], topic: str, ids: Iterator[int], base_sequence: int) -> int:
    """Write one batch of each id to every partition; return the states acknowledged until ids or broker end."""
    acknowledged = 0
    try:
        with BlockingConnection(address, client_id="calibration", timeout_s=_ANSWER_S) as connection:
            for producer_id in ids:
                batch = record_batch([b"x"], producer_id, 0, base_sequence, time.time_ns() // 1_000_000)
                _append(connection, topic, batch)
                acknowledged += PARTITIONS
    except OSError as error:
        print(f"the broker is gone after {acknowledged} states: {error}", file=sys.stderr)
    return acknowledged


def _append(connection: BlockingConnection, topic: str, batch: bytes) -> None:
    """Append the batch to all partitions. Raises CalibrationFailed, OSError."""
    for _ in range(100):
        answer = connection.run(produce(topic, [(partition, batch) for partition in range(PARTITIONS)]))
        if answer.error_code == ErrorCode.NONE:
            return
        if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            break
        # Metadata is ahead of the broker for a moment; a batch that is there already is not appended twice.
        time.sleep(0.1)
    raise CalibrationFailed(f"Produce to {topic}: code {answer.error_code} {answer.error_message}")


def write(cluster: Cluster, node_id: int, topic: str, ids: range, batches: range = range(1)) -> None:
    for number in batches:
        wanted = len(ids) * PARTITIONS
        if _write(cluster.nodes[node_id], topic, iter(ids), number) != wanted:
            raise CalibrationFailed(f"not every batch was taken:\n{cluster.node(node_id).log_tail()}")


# Moving


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + _SETTLE_S
    while not is_so():
        if time.monotonic() > give_up_s:
            raise CalibrationFailed(f"not within {_SETTLE_S:.0f} s: {what}")
        time.sleep(0.3)


def assign(cluster: Cluster, topic: str, replicas: Sequence[int], via: int) -> None:
    """Put all partitions of a topic onto these nodes with Kafka's own tool, and wait until all are in sync."""
    plan = cluster.directory / f"{topic}.json"
    places = [{"topic": topic, "partition": n, "replicas": list(replicas)} for n in range(PARTITIONS)]
    plan.write_text(json.dumps({"version": 1, "partitions": places}))
    host, port = cluster.nodes[via]
    cluster.tools.run(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--bootstrap-server", f"{host}:{port}", "--reassignment-json-file", str(plan), "--execute"),
    )
    wait_for(f"{topic} on {replicas}", lambda: in_sync(cluster, topic, via) == set(replicas))


def in_sync(cluster: Cluster, topic: str, via: int) -> set[int]:
    """The nodes in sync in every partition."""
    return set.intersection(*(set(isrs) for _, isrs in _partitions(cluster, topic, via)))


def leaders(cluster: Cluster, topic: str, via: int) -> set[int]:
    return {leader for leader, _ in _partitions(cluster, topic, via)}


def _partitions(cluster: Cluster, topic: str, via: int) -> list[tuple[int, list[int]]]:
    """Leader and nodes in sync of each partition."""
    host, port = cluster.nodes[via]
    told = AdminClient({"bootstrap.servers": f"{host}:{port}"}).list_topics(topic, timeout=10)
    return [(one.leader, list(one.isrs)) for one in told.topics[topic].partitions.values()]


# The two measurements


def measure_states(ids: int) -> list[Heap]:
    """Live heaps around each event that might add states."""
    spec = ClusterSpec(nodes=3, heap_mb=512, properties={"auto.leader.rebalance.enable": "false"})
    some = range(_FIRST_ID, _FIRST_ID + ids)
    heaps: list[Heap] = []
    with Cluster(spec) as cluster:

        def look_at(moment: str, *node_ids: int) -> None:
            heaps.extend(look(cluster, node_id, moment) for node_id in node_ids)

        for topic, replicas in (("two", [1, 2]), ("one", [3])):
            create_topic(cluster.bootstrap_servers(), topic, PARTITIONS)
            assign(cluster, topic, replicas, via=3)
        elect_first(cluster)
        write(cluster, 1, "two", range(1, 2))
        write(cluster, 3, "one", range(1, 2))
        look_at("one id", 1, 2, 3)
        write(cluster, 1, "two", some)
        write(cluster, 3, "one", some)
        look_at("one batch of each id", 1, 2, 3)
        write(cluster, 1, "two", some, range(1, BATCHES_KEPT))
        write(cluster, 3, "one", some, range(1, BATCHES_KEPT))
        look_at("five batches of each id", 1, 2, 3)
        cluster.node(1).stop()
        wait_for("node 2 leads", lambda: leaders(cluster, "two", 2) == {2})
        write(cluster, 2, "two", range(1, 2), range(1, 2))
        look_at("node 1 gone, node 2 leads", 2)
        cluster.start_node(1)
        wait_for("node 1 in sync", lambda: in_sync(cluster, "two", 2) == {1, 2})
        look_at("node 1 back from its snapshots", 1, 2)
        before = look(cluster, 2, "before the reassignment")
        assign(cluster, "one", [3, 2], via=3)
        heaps.append(before)
        look_at("partitions of `one` also on node 2", 2, 3)
    return heaps


def elect_first(cluster: Cluster) -> None:
    """Make the first replica of each partition its leader."""
    host, port = cluster.nodes[3]
    cluster.tools.run(
        "org.apache.kafka.tools.LeaderElectionCommand",
        *("--bootstrap-server", f"{host}:{port}"),
        *("--election-type", "PREFERRED", "--all-topic-partitions"),
    )
    wait_for("node 1 leads", lambda: leaders(cluster, "two", 3) == {1} and leaders(cluster, "one", 3) == {3})


def measure_death() -> tuple[Heap, Death]:
    """The live heap of a small broker with its partitions and one id, and how many states end it."""
    with Cluster(ClusterSpec(heap_mb=SMALL_HEAP_MB)) as cluster:
        create_topic(cluster.bootstrap_servers(), "small", PARTITIONS)
        write(cluster, 1, "small", range(1, 2))
        before = look(cluster, 1, f"{SMALL_HEAP_MB} MB heap, one id")
        began_s = time.monotonic()
        endless = iter(range(_FIRST_ID, 2 * _FIRST_ID))
        acknowledged = _write(cluster.nodes[1], "small", endless, 0)
        seconds = time.monotonic() - began_s
        wait_for("the small broker is dead", lambda: cluster.node(1).exit_code is not None)
        return before, Death(SMALL_HEAP_MB, acknowledged, cluster.node(1).exit_code, round(seconds, 1))


# What follows from them


def conclusions(heaps: Sequence[Heap], before: Heap, death: Death) -> dict[str, float]:
    """Bytes of a state, what each event added per state, and the share of a heap that states can fill."""

    def at(moment: str, node_id: int) -> Heap:
        return next(heap for heap in heaps if heap.moment == moment and heap.node_id == node_id)

    def bytes_each(earlier: Heap, later: Heap) -> float:
        return (later.live_bytes - earlier.live_bytes) / (later.states - earlier.states)

    first, one, five = "one id", "one batch of each id", "five batches of each id"
    moved = at("node 1 gone, node 2 leads", 2)
    back = at("node 1 back from its snapshots", 1)
    reassigned = at("partitions of `one` also on node 2", 2)
    earlier = at("before the reassignment", 2)
    per_state = bytes_each(at(first, 3), at(one, 3))
    full_bytes = before.live_bytes + (death.states_acknowledged - before.states) * per_state
    return {
        "bytes_per_state_leader": bytes_each(at(first, 1), at(one, 1)),
        "bytes_per_state_follower": bytes_each(at(first, 2), at(one, 2)),
        "bytes_per_state_single": per_state,
        "bytes_per_state_single_five_batches": bytes_each(at(first, 3), at(five, 3)),
        "bytes_per_state_leader_five_batches": bytes_each(at(first, 1), at(five, 1)),
        "states_added_by_leader_move": moved.states - at(five, 2).states,
        "bytes_added_by_leader_move": moved.live_bytes - at(five, 2).live_bytes,
        "states_after_restart_share": back.states / at(five, 1).states,
        "states_added_by_reassignment": reassigned.states - earlier.states,
        "bytes_per_state_reassigned": bytes_each(earlier, reassigned),
        "base_heap_bytes_small": before.live_bytes,
        "usable_share_at_death": full_bytes / (death.heap_mb * 2**20),
    }


def as_markdown(found: Mapping[str, float], heaps: Sequence[Heap], death: Death, machine: str) -> str:
    rows = "\n".join(
        f"| {heap.moment} | {heap.node_id} | {heap.states:,} | {heap.live_bytes / 1e6:.1f} |"
        for heap in heaps
    )
    values = "\n".join(f"| {name} | {value:,.4g} |" for name, value in found.items() if abs(value) < 100)
    large = "\n".join(f"| {name} | {value:,.0f} |" for name, value in found.items() if abs(value) >= 100)
    return f"""# What a producer id's state costs a broker

Written by `python -m tests.support.failover_calibration --commit`; what is measured and how: its head. {machine}

| moment | node | states | live heap MB |
| --- | ---: | ---: | ---: |
{rows}

A broker with {death.heap_mb} MB acknowledged {death.states_acknowledged:,} states in {death.seconds:g} s and ended with
exit code {death.exit_code} (3: OutOfMemoryError).

| what follows | |
| --- | ---: |
{large}
{values}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.failover_calibration")
    parser.add_argument("--ids", type=int, default=300, help="producer ids, each with 200 partitions")
    parser.add_argument("--commit", action="store_true", help="write to tests/pipeline/calibration")
    options = parser.parse_args(arguments)
    if shutil.which("jcmd") is None:
        sys.exit("no jcmd on the PATH: install a JDK (Debian: apt-get install openjdk-17-jdk-headless)")
    before, death = measure_death()
    heaps = [*measure_states(options.ids), before]
    found = conclusions(heaps, before, death)
    machine = describe(ClusterSpec().version)
    shown = f"{machine.cpu}, {machine.cores} cores, Linux {machine.kernel}, Kafka {machine.kafka}."
    text = as_markdown(found, heaps, death, shown)
    print(text)
    if options.commit:
        whole = {
            "machine": machine.as_json(),
            "ids": options.ids,
            "partitions": PARTITIONS,
            "found": found,
            "heaps": [asdict(heap) for heap in heaps],
            "death": asdict(death),
        }
        RESULTS.with_suffix(".json").write_text(json.dumps(whole, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
