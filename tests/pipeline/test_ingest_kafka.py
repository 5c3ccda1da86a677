"""Ingest as people run it, on a real topic, killed with kill -9: every event is in the tables exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import TopicPartition

from pidgate.events.writing import key_of, to_json
from pidgate.pipeline.errors import TopicLostData, TopicMissing, TopicSilent
from pidgate.pipeline.ingest.batches import How, Taken
from pidgate.pipeline.ingest.columns import Place
from pidgate.pipeline.ingest.loop import Ingest
from pidgate.pipeline.ingest.topic import Source, Span, Topic
from pidgate.pipeline.tables import Tables
from tests.pipeline.jobs import running_job
from tests.unit.events.made_up import a_decision
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, ClusterSpec
from tools.sandbox.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

PARTITIONS = 3
Key = tuple[str, str, int]


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(ClusterSpec(sasl=True)) as cluster:
        yield cluster


@dataclass
class Gateways:
    """Two of them, whose events lie in a topic of their own; some were sent twice."""

    cluster: Cluster
    topic: str
    made: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = {"message.timestamp.type": "LogAppendTime"}
        create_topic(self.cluster.bootstrap_servers(), self.topic, PARTITIONS, config=config)
        self._chance = random.Random(3)

    def write(self, count: int, *, without: Sequence[int] = ()) -> None:
        """The next events of both; numbers in `without` get lost."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers(), "linger.ms": 20})
        now_ms = time.time_ns() // 1_000_000
        first = len(self.made) // 2
        for number in range(first + 1, first + count // 2 + 1):
            for gateway in ("gw-1", "gw-2"):
                event = a_decision(
                    gateway_id=gateway,
                    incarnation=f"{gateway}-run",
                    seq=number,
                    wall_time_ms=now_ms - self._chance.randrange(30_000),
                    user=f"user-{number % 17}",
                    producer_id=number * 1000,
                )
                self.made.append((gateway, event.incarnation, number))
                if number in without:
                    continue
                for _ in range(2 if number % 10 == 0 else 1):
                    producer.produce(self.topic, to_json(event), key=key_of(event))
        assert producer.flush(30) == 0


def ingesting(
    tables: Path, cluster: Cluster, topic: str, *options: str
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    if "--kafka" not in options:
        options = (*options, "--kafka", cluster.bootstrap_servers())
    log = tables.with_suffix(".log")
    return running_job("ingest", tables, log, "--topic", topic, "--master", "local[2]", *options)


def said(tables: Path) -> str:
    return tables.with_suffix(".log").read_text()


def seen_by_any_reader(tables: Path) -> list[Key]:
    """Whatever lies in the files, read without Spark."""
    columns = ["gateway_id", "incarnation", "seq"]
    found: list[Key] = []
    for path in sorted((tables / "events").rglob("*.parquet")):
        rows = pyarrow.parquet.ParquetFile(path).read(columns).to_pylist()
        found += [(row["gateway_id"], row["incarnation"], row["seq"]) for row in rows]
    return found


def repeated(keys: Sequence[Key]) -> list[Key]:
    return [key for key, count in Counter(keys).items() if count > 1]


def wait_until_in_mid_batch(tables: Path, process: subprocess.Popen[bytes]) -> None:
    """It writes what no reader sees yet."""
    give_up_s = time.monotonic() + 300
    # Unlike Path.glob, it passes over folders that go away.
    while not glob(f"{tables}/ingest/staging/*/events/**/*.parquet", recursive=True):
        assert process.poll() is None, said(tables)
        assert time.monotonic() < give_up_s, said(tables)
        time.sleep(0.005)


def to_the_end(process: subprocess.Popen[bytes], tables: Path) -> None:
    assert process.wait(240) == 0, said(tables)


@pytest.mark.timeout(600)
@pytest.mark.faults
def test_killed_in_mid_batch_and_started_again(cluster: Cluster, tmp_path: Path) -> None:
    """On a secured cluster, by librdkafka's words."""
    gateways = Gateways(cluster, "killed-once")
    gateways.write(600)
    tables = tmp_path / "tables"
    secret = tmp_path / "client.properties"
    secret.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanisms=SCRAM-SHA-256\nsasl.username=alice\n"
        "sasl.password=alice-secret\n"
    )
    options = ["--kafka", cluster.bootstrap_servers(SASL_PLAINTEXT), "--kafka-config", str(secret)]
    options += ["--max-events-per-batch", "400"]
    with ingesting(tables, cluster, gateways.topic, *options) as process:
        wait_until_in_mid_batch(tables, process)
        process.kill()
    assert repeated(seen_by_any_reader(tables)) == []
    with ingesting(tables, cluster, gateways.topic, *options) as process:
        to_the_end(process, tables)
    assert sorted(seen_by_any_reader(tables)) == sorted(gateways.made)
    assert "alice-secret" not in said(tables)
    assert [
        path for path in tables.rglob("*") if path.is_file() and b"alice-secret" in path.read_bytes()
    ] == []


def in_process(
    spark: SparkSession, cluster: Cluster, topic: str, root: str, **how: Any
) -> tuple[list[Taken], Any]:
    """One run that takes what is there."""
    batches: list[Taken] = []
    source = Topic(cluster.bootstrap_servers(), topic, {})
    account = Ingest(Tables(spark, root), source, How(**how), batches.append).run()
    return batches, account


def test_a_topic_that_is_not_there_is_told_at_once(cluster: Cluster, tmp_path: Path) -> None:
    began_s = time.monotonic()
    with pytest.raises(TopicMissing, match="no topic 'never-made'"):
        Topic(cluster.bootstrap_servers(), "never-made", {}).describe()
    with pytest.raises(TopicMissing, match=r"no response from 127\.0\.0\.1:1 within 1 s"):
        Topic("127.0.0.1:1", "never-made", {}, patience_s=1).describe()
    wrong = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "not-hers",
    }
    with pytest.raises(TopicMissing, match="Authentication failed") as told:
        Topic(cluster.bootstrap_servers(SASL_PLAINTEXT), "never-made", wrong, 3).describe()
    assert "not-hers" not in str(told.value)
    assert time.monotonic() - began_s < 60


def source(cluster: Cluster, topic: str, **more: Any) -> Source:
    return Source(cluster.bootstrap_servers(), topic, **{"settings": {}, "stop_at_loss": True, **more})


def test_offsets_without_a_record_are_passed_in_the_midst_and_at_the_end(cluster: Cluster) -> None:
    """Transactions leave their markers there."""
    servers, topic = cluster.bootstrap_servers(), "with-holes"
    create_topic(servers, topic, 2)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "makes-holes"})
    producer.init_transactions()
    for number in range(3):
        producer.begin_transaction()
        producer.produce(topic, f"value-{number}".encode(), partition=0, timestamp=100 + number)
        producer.commit_transaction()
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=1, timestamp=7)
    assert producer.flush(30) == 0
    producer.abort_transaction()

    found = list(source(cluster, topic).records([Span("0", range(6)), Span("1", range(2))]))
    assert found == [
        *((f"value-{number}".encode(), Place(0, 2 * number, None)) for number in range(3)),
        # It is for the reader of events to judge, as of all others.
        (b"aborted", Place(1, 0, None)),
    ]
    assert list(source(cluster, topic).records([Span("0", range(1, 2)), Span("1", range(1, 2))])) == []


def test_a_task_says_why_it_cannot_read(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers()
    create_topic(servers, "cut-off", 1)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(10):
        producer.produce("cut-off", str(number).encode())
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": servers})
    for removed in admin.delete_records([TopicPartition("cut-off", 0, 5)]).values():
        removed.result(30)
    wanted = [Span("0", range(10))]
    soon = {"topic.metadata.propagation.max.ms": "100"}
    with pytest.raises(TopicLostData, match="lost data while it was read"):
        list(source(cluster, "cut-off").records(wanted))
    going_on = source(cluster, "cut-off", stop_at_loss=False).records(wanted)
    assert [place.kafka_offset for _, place in going_on] == [5, 6, 7, 8, 9]
    with pytest.raises(TopicSilent, match="neither offset 10 nor a later end"):
        list(source(cluster, "cut-off", patience_s=2).records([Span("0", range(8, 12))]))
    with pytest.raises(TopicSilent, match="Connection refused"):
        list(Source("127.0.0.1:1", "cut-off", {}, stop_at_loss=True, patience_s=2).records(wanted))
    with pytest.raises(TopicMissing, match="topic 'never-made' at"):
        list(source(cluster, "never-made", settings=soon).records(wanted))


@pytest.mark.faults
def test_a_topic_that_lost_data_stops_ingest_unless_told(
    spark: SparkSession, cluster: Cluster, tables: Tables
) -> None:
    gateways = Gateways(cluster, "loses-data")
    gateways.write(120, without=[33, 34])
    (first,), _ = in_process(spark, cluster, gateways.topic, tables.root)
    assert (sum(first.events.values()), first.duplicates) == (116, 12)

    gateways.write(100)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()})
    ends = [TopicPartition(gateways.topic, partition, -1) for partition in range(PARTITIONS)]
    for removed in admin.delete_records(ends).values():
        removed.result(30)
    gateways.write(80)
    with pytest.raises(TopicLostData, match=r"partition 0: offsets \d+ to \d+ \(\d+ records\) were deleted"):
        in_process(spark, cluster, gateways.topic, tables.root)

    batches, account = in_process(spark, cluster, gateways.topic, tables.root, stop_at_loss=False)
    assert sum(sum(batch.events.values()) for batch in batches) == 80
    assert account.lost_offsets == 110  # 100 events, 10 of them sent twice
    assert sum(row["missing"] for row in tables.query_at("losses")) == 110
    # The rest is too young to be called a gap; see test_ingest_seqs.py.
    assert tables.query_at("gaps") == []
    seen = seen_by_any_reader(Path(tables.root))
    assert repeated(seen) == []
    assert {seq for _, _, seq in seen} == {*range(1, 61), *range(111, 151)} - {33, 34}
    gateways.write(20)
    batches, _ = in_process(spark, cluster, gateways.topic, tables.root)
    assert [(sum(batch.events.values()), batch.duplicates) for batch in batches] == [(20, 2)]


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_killed_many_times_while_somebody_reads(cluster: Cluster, tmp_path: Path) -> None:
    """At chance moments, whatever it does; the reader never finds an event twice, and at the end all are there."""
    gateways = Gateways(cluster, "killed-often")
    tables = tmp_path / "tables"
    # So small that their files are merged at the end, however few batches come before a kill.
    options = ("--max-events-per-batch", "700", "--late-after", "30d")
    chance = random.Random(os.environ.get("PIDGATE_SEED", "5"))
    stop = threading.Event()
    twice: list[Key] = []
    looks = 0

    def read() -> None:
        nonlocal looks
        while not stop.is_set():
            try:
                twice.extend(repeated(seen_by_any_reader(tables)))
            # A folder was swapped between listing and opening: that reader starts again.
            except OSError:
                continue
            looks += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(8):
            gateways.write(4_000)
            with ingesting(tables, cluster, gateways.topic, "--every", "1s", *options) as process:
                wait_until_in_mid_batch(tables, process)
                time.sleep(chance.random() * 10)
                process.kill()
        with ingesting(tables, cluster, gateways.topic, *options) as process:
            give_up_s = time.monotonic() + 300
            while not glob(f"{tables}/events/**/compacted-*", recursive=True) and process.poll() is None:
                assert time.monotonic() < give_up_s
            process.kill()
        with ingesting(tables, cluster, gateways.topic, *options) as process:
            to_the_end(process, tables)
    finally:
        stop.set()
        reader.join()
    assert looks > 10
    assert twice == []
    assert sorted(seen_by_any_reader(tables)) == sorted(gateways.made)
    assert list(tables.rglob("compacted-*.parquet"))


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_sigterm_ends_after_the_batch(cluster: Cluster, tmp_path: Path) -> None:
    gateways = Gateways(cluster, "terminated")
    gateways.write(3_000)
    tables = tmp_path / "tables"
    with ingesting(
        tables, cluster, gateways.topic, "--every", "1s", "--max-events-per-batch", "500"
    ) as process:
        wait_until_in_mid_batch(tables, process)
        process.send_signal(signal.SIGTERM)
        to_the_end(process, tables)
    taken = seen_by_any_reader(tables)
    assert 0 < len(taken) < len(gateways.made)
    assert not list(tables.glob("ingest/staging/*"))
    with ingesting(tables, cluster, gateways.topic) as process:
        to_the_end(process, tables)
    assert sorted(seen_by_any_reader(tables)) == sorted(gateways.made)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_is_told_and_the_batch_done_again(cluster: Cluster, tmp_path: Path) -> None:
    gateways = Gateways(cluster, "full-disk")
    gateways.write(20_000)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True)
    if mount.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mount.stderr.decode().strip()}")
    tables = disk / "tables"
    try:
        tables.with_suffix(".log").symlink_to(tmp_path / "log")
        with ingesting(tables, cluster, gateways.topic) as process:
            assert process.wait(240) == 2, said(tables)
        assert "the disk is full" in said(tables)
        assert seen_by_any_reader(tables) == []
        subprocess.run(["mount", "-o", "remount,size=60m", disk], check=True)
        with ingesting(tables, cluster, gateways.topic) as process:
            to_the_end(process, tables)
        assert sorted(seen_by_any_reader(tables)) == sorted(gateways.made)
    finally:
        subprocess.run(["umount", disk], check=True)
