"""Jobs through Spark Connect: a server that runs on its own, and a client that has no JVM; and nothing asks for one."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

from pidgate import pipeline
from pidgate.events.definitions import Event
from pidgate.events.writing import key_of, to_json
from pidgate.pipeline.session import java_home
from pidgate.pipeline.tables import Tables
from tests.pipeline.conftest import PARTITIONS, ROOT
from tests.pipeline.jobs import running_job
from tools.sandbox import guard
from tools.sandbox.kafka import Cluster
from tools.sandbox.ports import free_port
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

PATIENCE_S = 120.0
TOPIC = "events-of-connect"
SAME = ("rates_users", "rates_clients", "offenders", "ids_blocks", "recommendations")
"""Results that hang on the events alone."""

OF_A_JVM = frozenset({"_jvm", "_jsc", "_jdf", "_jsparkSession", "_sc", "sparkContext", "rdd"})


def of_a_jvm(source: str) -> list[str]:
    """What of a module only a Spark in the same process has."""
    return [
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in OF_A_JVM
    ]


def test_no_job_asks_for_a_jvm() -> None:
    modules = list(Path(pipeline.__file__).parent.rglob("*.py"))
    assert len(modules) > 50
    assert {path.name: found for path in modules if (found := of_a_jvm(path.read_text()))} == {}
    assert of_a_jvm("spark._jvm.java.lang; spark.sparkContext.setLogLevel(1)") != []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Spark Connect's own; its Python is that of the tests."""
    port, log = free_port(), tmp_path_factory.mktemp("connect") / "server.log"
    spark = Path(pyspark.__file__).parent
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": PARTITIONS,
        "spark.ui.enabled": "false",
    }
    command: list[str | Path] = [
        *(spark / "bin/spark-submit", "--master", "local[2]", "--driver-memory", "1g"),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]
    own = {"JAVA_HOME": str(java_home()), "SPARK_HOME": str(spark), "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as output:
        process = guard.spawn(
            command, stdout=output, stderr=output, env={**os.environ, **own, "PYTHONPATH": ROOT}
        )
    give_up_s = time.monotonic() + PATIENCE_S
    while "Spark Connect server started at" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < give_up_s, log.read_text()
        time.sleep(0.2)
    yield f"sc://127.0.0.1:{port}"
    process.terminate()
    process.wait(60)
    guard.ended(process)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(ClusterSpec()) as cluster:
        yield cluster


def write(cluster: Cluster, events: list[Event]) -> None:
    """As if their gateways had just appended them."""
    servers = cluster.bootstrap_servers()
    create_topic(
        servers, TOPIC, 3, config={"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)}
    )
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for event in events:
        producer.produce(TOPIC, to_json(event), key=key_of(event), timestamp=event.wall_time_ms)
    assert producer.flush(30) == 0


@pytest.mark.kafka
@pytest.mark.nightly
@pytest.mark.timeout(1_200)
def test_all_jobs_find_through_connect_what_they_find_embedded(
    server: str, cluster: Cluster, studied: tuple[Tables, list[Event]], tmp_path: Path
) -> None:
    embedded, events = studied
    write(cluster, events)
    tables, log = tmp_path / "tables", tmp_path / "log"
    for job, options in {
        "ingest": ("--kafka", cluster.bootstrap_servers(), "--topic", TOPIC),
        "run": (),
    }.items():
        with running_job(job, tables, log, "--master", server, *options) as process:
            assert process.wait(600) == 0, log.read_text()
            assert not children(process.pid), "a JVM of its own"
    found = Tables(embedded.spark, str(tables))
    for name in SAME:
        there, here = found.query(name), embedded.query(name)
        assert sorted(map(str, there)) == sorted(map(str, here)), name
    assert (tables / "report.html").exists()


def children(pid: int) -> str:
    return subprocess.run(["ps", "--ppid", str(pid), "-o", "args="], capture_output=True, text=True).stdout
