"""The pipeline on a cluster: the packed archive, a standalone master and worker of Spark's own, spark-submit.

Marked `faults`, and so not part of `make test`: packing installs from the network, three JVMs start, and it takes
minutes. It uses no Spark of the other tests. Nothing of this checkout can be imported by driver or executors: they run
in a folder of their own, on the archive's Python packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from pidgate.pipeline.errors import JavaUnfit
from pidgate.pipeline.session import java_home
from tools.sandbox import guard
from tools.sandbox.ports import free_port

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(2_400),
]

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE_S = 120.0

PROBE = """
import json, sys
from pyspark.sql.pandas.types import from_arrow_schema
from pidgate.pipeline.schemas import table_schema
from pidgate.pipeline.session import spark_session

def told_by_executors(batches):
    import mmh3, pandas, sys
    from fractions import Fraction
    from pidgate.quota.token_bucket import TokenBucket
    import pidgate.quota.layered_filter as filters
    for batch in batches:
        bucket = TokenBucket(1_000, 1_000, Fraction(1), 0)
        hashes = [mmh3.hash64(int(one).to_bytes(8, "big"), 1)[0] for one in batch["id"]]
        yield pandas.DataFrame({"id": batch["id"], "hash": hashes}).assign(
            mmh3=mmh3.__file__, quota=filters.__file__, python=sys.executable, wait_ms=bucket.wait_ms(0, 0)
        )

spark = spark_session("probe")
rows = spark.range(100).repartition(4).mapInPandas(
    told_by_executors, "id bigint, hash bigint, mmh3 string, quota string, python string, wait_ms bigint"
).collect()

schema = from_arrow_schema(table_schema("decision"))
def decision(number):
    known = dict(gateway_id="g", incarnation="i", seq=number, wall_time_ms=number * 60_000, user=f"u{number % 2}",
                 producer_id=number, topic="t", decision="admit", reason="first_seen")
    return tuple(known.get(name) for name in schema.names)
made = spark.createDataFrame([decision(n) for n in range(200)], schema)
made.selectExpr("*", "'1970-01-01' day", "'0' bucket").write.partitionBy("day", "bucket").parquet(
    sys.argv[1] + "/events/decision")

print(json.dumps({
    "hashes": {row["id"]: row["hash"] for row in rows},
    "places": sorted({row[name] for row in rows for name in ("mmh3", "quota", "python")}),
    "driver": sys.executable,
    "master": spark.sparkContext.master,
    "time_zone": spark.conf.get("spark.sql.session.timeZone"),
}))
spark.stop()
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "pidgate-pipeline.tar.gz"
    # The interpreter behind this environment: nothing of this one may get into the archive.
    environment = {**os.environ, "PYTHON": str(Path(sys.base_prefix) / "bin" / "python3")}
    subprocess.run([ROOT / "deploy/spark/pack.sh", path], env=environment, check=True, timeout=900)
    return path


@pytest.fixture(scope="module")
def java() -> Path:
    try:
        return java_home()
    except JavaUnfit as problem:
        pytest.skip(str(problem))


@dataclass(frozen=True)
class StandaloneCluster:
    """A master and a worker on the loopback address."""

    master: str
    directory: Path
    environment: Mapping[str, str]
    archive: Path

    def submit(self, script: Path, *arguments: str) -> str:
        """What the script printed. Run in an empty folder, by the archive's Python."""
        packed = self.directory / "driver"
        command = [
            *(SPARK_HOME / "bin/spark-submit", "--master", self.master),
            *("--driver-memory", "700m", "--executor-memory", "700m"),
            # Spark's 200 partitions are for a larger cluster than this one.
            *("--conf", "spark.sql.shuffle.partitions=4"),
            *("--archives", f"{self.archive}#environment", script, *arguments),
        ]
        done = subprocess.run(
            [str(part) for part in command],
            env={
                **self.environment,
                "PYSPARK_DRIVER_PYTHON": str(packed / "bin/python"),
                "PYSPARK_PYTHON": "./environment/bin/python",
            },
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4_000:]
        return done.stdout


@pytest.fixture(scope="module")
def cluster(java: Path, archive: Path) -> Iterator[StandaloneCluster]:
    directory = guard.temporary_directory("spark-standalone-")
    with tarfile.open(archive) as packed:
        packed.extractall(directory / "driver", filter="fully_trusted")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    environment = {
        **kept,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = ["org.apache.spark.deploy.master.Master", *here, "--port", str(port)]
    worker = ["org.apache.spark.deploy.worker.Worker", url, *here, "--cores", "2", "--memory", "1g"]
    running = [
        _start(master, "master", "I have been elected leader", directory, environment),
        _start(
            [*worker, "--work-dir", str(directory / "work")],
            "worker",
            "Successfully registered",
            directory,
            environment,
        ),
    ]
    yield StandaloneCluster(url, directory, environment, archive)
    for process in reversed(running):
        process.terminate()
        process.wait(60)
        guard.ended(process)
    guard.remove_directory(directory)


def _start(
    arguments: list[str], name: str, ready: str, directory: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    log = directory / f"{name}.log"
    command = [str(SPARK_HOME / "bin/spark-class"), *arguments]
    with log.open("wb") as output:
        process = guard.spawn(
            ["env", *(f"{k}={v}" for k, v in environment.items()), *command], stdout=output, stderr=output
        )
    give_up_s = time.monotonic() + PATIENCE_S
    while ready not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < give_up_s, log.read_text()
        time.sleep(0.2)
    return process


def test_the_archive_has_the_pipelines_needs_and_not_the_gateways(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        parts = [Path(name).parts for name in packed.getnames()]
    names = {part[3] for part in parts if len(part) > 3 and part[2] == "site-packages"}
    assert {
        "pidgate",
        "confluent_kafka",
        "numpy",
        "pandas",
        "pyarrow",
        "markupsafe",
        "jinja2",
        "msgspec",
        "yaml",
    } <= names
    ours = {part[4] for part in parts if len(part) > 4 and part[2:4] == ("site-packages", "pidgate")}
    assert {"pipeline", "quota", "events", "units.py"} <= ours
    assert any(name.startswith("mmh3.") and name.endswith(".so") for name in names)
    gateways = {"aiokafka", "kafka", "uvloop", "aiohttp", "structlog", "prometheus_client"}
    assert not names & (gateways | {"pyspark", "pip", "setuptools", "pytest"})
    assert not [name for name in names if "__editable__" in name]


def test_jobs_run_on_a_cluster_from_the_archive_alone(cluster: StandaloneCluster) -> None:
    """Executors hash with mmh3 and run quota's code as shipped; the failover job reads and writes there, too."""
    import mmh3

    probe = cluster.directory / "probe.py"
    probe.write_text(PROBE)
    tables = str(cluster.directory / "tables")
    told = json.loads(cluster.submit(probe, tables).splitlines()[-1])

    assert told["master"] == cluster.master
    assert told["time_zone"] == "UTC"
    assert told["driver"] == str(cluster.directory / "driver/bin/python")
    assert all(f"{cluster.directory}/work/" in place and "/environment/" in place for place in told["places"])
    assert told["hashes"] == {str(n): mmh3.hash64(n.to_bytes(8, "big"), 1)[0] for n in range(100)}

    said = cluster.submit(ROOT / "deploy/spark/job.py", "failover", "--tables", tables, "--json")
    summary = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {one["quota"] for one in summary} == {"none"}
    assert all(one["holds"] for one in summary)
    assert list(Path(tables, "results/failover_kafka").glob("*.parquet"))
