"""The Spark session of a job: embedded on all cores in UTC, or that of spark-submit or Spark Connect."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from pidgate.pipeline.errors import JavaUnfit, SparkUnfit

SPARK = "4.1."
Setting = bool | float | int | str | None
_SETTINGS: dict[str, Setting] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # Kernels get a fixed number of buckets and parts; there is nothing to adapt.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Twice Spark's default: fewer calls into Python, still a few MB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Events are in many small files: with Spark's 4 MB for each, a task would read only thirty of them.
    "spark.sql.files.openCostInBytes": "131072",
}
"""Session settings for every environment."""
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def spark_session(job: str, *, master: str | None = None, memory: str = "2g") -> SparkSession:
    """Return a session for one job. spark-submit and Spark Connect set their own memory and cores.

    `master` None: from spark-submit or SPARK_REMOTE, otherwise all local cores; sc://host is Spark Connect.
    `memory`: the JVM's heap, when embedded. Raises SparkUnfit, JavaUnfit.
    """
    check_spark(pyspark.__version__)
    builder = SparkSession.builder.appName(f"pidgate {job}").config(map=_SETTINGS)
    remote = master if master is not None and master.startswith("sc://") else os.environ.get("SPARK_REMOTE")
    if remote is not None:
        spark = builder.remote(remote).getOrCreate()
        # The server's version, which may differ from the client's.
        check_spark(spark.version)
        return spark
    builder = builder.config(map=_processes())
    if "SPARK_ENV_LOADED" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = str(java_home())
        builder = builder.master(master or "local[*]").config(map=_embedded(memory))
    elif master is not None:
        builder = builder.master(master)
    on_interrupt = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    # pyspark's handler raises in the middle of a call to the JVM, which prints a stack trace.
    if signal.getsignal(signal.SIGINT) is not on_interrupt:
        signal.signal(signal.SIGINT, on_interrupt)
    return spark


def check_spark(version: str) -> None:
    """Raise SparkUnfit for an unsupported version; under spark-submit it is the cluster's."""
    if not version.startswith(SPARK):
        raise SparkUnfit(
            f"this is Spark {version}, and the jobs need {SPARK}x. Submit to a cluster with that version, or start "
            "them without spark-submit: they bring their own (pip install '.[pipeline]')."
        )


def _processes() -> dict[str, Setting]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {
        "spark.log.level": "ERROR",
        # Envelopes are compressed already. A task that moves them writes one file, not one for each partition.
        "spark.shuffle.compress": "false",
        "spark.shuffle.sort.bypassMergeThreshold": "0",
        # Spark starts workers with `python -m`: the working directory must not shadow their imports.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
    }


def _embedded(memory: str) -> dict[str, Setting]:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = os.cpu_count() or 2
    return {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        # The default of 200 is for a cluster; tiny tasks take longer to start than to run.
        "spark.sql.shuffle.partitions": str(4 * cores),
        # The JVM only reads, moves and writes; its second compiler costs more than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "pidgate-warehouse"),
    }


FIT = (17, 21)
NEEDED_MODULE = "jdk.incubator.vector"
_REMEDY = (
    "Install a full Java 17 or 21 (Debian: openjdk-17-jre-headless) and put it on the PATH or set JAVA_HOME."
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java_home() -> Path:
    """Return the home of the first suitable Java. Raises JavaUnfit, which lists the unsuitable ones."""
    on_path, home = shutil.which("java"), os.environ.get("JAVA_HOME")
    candidates = {"JAVA_HOME": home and Path(home) / "bin" / "java", "PATH": on_path and Path(on_path)}
    seen = []
    for source, java in candidates.items():
        if not java:
            continue
        problem = _problem(java)
        if problem is None:
            return java.resolve().parent.parent
        seen.append(f"{source}: {java} {problem}")
    raise JavaUnfit(f"Spark needs Java 17 or 21 ({'; '.join(seen) or 'no Java was found'}). {_REMEDY}")


def _problem(java: Path) -> str | None:
    """Return the reason Spark does not start on this Java, or None."""
    output = _output_of(java, "-version")
    version = _VERSION.search(output or "")
    if version is None:
        return "is not a working Java"
    if int(version[1]) not in FIT:
        return f"is Java {version[1]}"
    if NEEDED_MODULE not in (_output_of(java, "--list-modules") or ""):
        return f"is a Java {version[1]} without the module {NEEDED_MODULE}"
    return None


def _output_of(java: Path, option: str) -> str | None:
    try:
        answer = subprocess.run([java, option], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout + answer.stderr
