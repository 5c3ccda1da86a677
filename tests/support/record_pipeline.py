"""Records anew what tests of the pipeline read: real clients through real gateways on a real broker.

    python -m tests.support.record_pipeline                    all of them (about six minutes)
    python -m tests.support.record_pipeline replay-fleet       only this one

Each scenario (record_replays.py, record_patterns.py) makes its traffic; here the events topic is read back, as it is,
with partition, offset and append time, and stored (recordings.py). Clocks, ids and order are those of the run: no two
runs give the same bytes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from rich.console import Console

from tests.support import record_patterns
from tests.support.fleet import Fleet, fleet_of
from tests.support.recorded_stage import Scenario, Stage, password_of
from tests.support.recordings import Record, Recording, store
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, SUPER_USER, ClusterSpec
from tools.sandbox.topics import create_topic

SCENARIOS: Mapping[str, Scenario] = {
    **record_patterns.SCENARIOS,
}


def read_topic(bootstrap_servers: str, topic: str, within_s: float = 30.0) -> list[Record]:
    """All of it, partition by partition. Raises TimeoutError, KafkaException."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "recorder",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: dict[int, list[Record]] = {}
    try:
        open_partitions = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in sorted(open_partitions)])
        give_up_s = time.monotonic() + within_s
        while open_partitions:
            if time.monotonic() > give_up_s:
                raise TimeoutError(
                    f"{topic}: the end of partitions {sorted(open_partitions)} was not reached"
                )
            for message in consumer.consume(num_messages=10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    record = Record(partition, offset, message.timestamp()[1], message.value() or b"")
                    found.setdefault(record.partition, []).append(record)
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return [record for partition in sorted(found) for record in found[partition]]


def _settings(cluster: Cluster, events_topic: str, folder: Path) -> dict[str, Any]:
    password = folder / "own-password"
    password.write_text(password_of(SUPER_USER))
    sasl = {"mechanism": "PLAIN", "username": SUPER_USER, "password_file": str(password)}
    return {
        "events": {
            "topic": events_topic,
            "replication_factor": 1,
        },
        "own_client": sasl,
        "cluster": {"name": "recorded", "bootstrap_servers": [cluster.bootstrap_servers(SASL_PLAINTEXT)]},
    }


def record(cluster: Cluster, name: str, scenario: Scenario, folder: Path) -> Recording:
    """Plays the scenario, ends its gateways in peace, and reads the topic back."""
    direct = cluster.bootstrap_servers()
    events_topic, topic = f"__events-{name}", create_topic(direct, f"records-{name}", partitions=6)
    with ExitStack() as stack:
        fleet: Fleet = stack.enter_context(
            fleet_of(
                cluster,
                events_topic,
                scenario.quotas,
                gateways=scenario.gateways,
                bootstrap_servers=cluster.bootstrap_servers(SASL_PLAINTEXT),
                settings=_settings(cluster, events_topic, folder),
            )
        )
        stage = Stage(cluster, fleet, topic, folder)
        for number in range(scenario.gateways):
            stage.introduce(number)
        play: Callable[[Stage], Awaitable[None]] = scenario.play
        asyncio.run(_within(play(stage), scenario.within_s))
        for gateway in fleet.gateways:
            assert gateway.stop() == 0, gateway.log_tail()
    story = {
        "about": scenario.about,
        "gateways": [f"gw-{number}" for number in range(scenario.gateways)],
        "marks": stage.marks,
        "rogue_clients": sorted(scenario.rogue_clients),
    }
    labels = {user: sorted(patterns) for user, patterns in scenario.labels.items()}
    return Recording(name, read_topic(direct, events_topic), labels, story)


async def _within(play: Awaitable[None], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        await play


def main(wanted: Sequence[str]) -> int:
    console = Console(stderr=True)
    unknown = set(wanted) - set(SCENARIOS)
    if unknown:
        console.print(f"there is no {', '.join(sorted(unknown))}; there are: {', '.join(SCENARIOS)}")
        return 2
    names = list(wanted) or list(SCENARIOS)
    users = {user for name in names for user in SCENARIOS[name].users}
    spec = ClusterSpec(sasl=True, users={user: password_of(user) for user in sorted(users | {SUPER_USER})})
    with Cluster(spec) as cluster:
        for name in names:
            console.print(f"{name}: {SCENARIOS[name].about}")
            with tempfile.TemporaryDirectory(prefix="recording-") as folder:
                recording = record(cluster, name, SCENARIOS[name], Path(folder))
            store(recording)
            console.print(f"{name}: {len(recording.records)} events stored")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
