"""Tables in an object store: a local S3, where a rename is a copy and nothing but one file is there at once."""

from __future__ import annotations

import logging
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

from pidgate.events.writing import to_json
from pidgate.pipeline import files as files_module
from pidgate.pipeline.errors import BadOption, OtherWriter
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.batches import How
from pidgate.pipeline.ingest.columns import Place
from pidgate.pipeline.ingest.commits import CommitLog, Position
from pidgate.pipeline.ingest.landed import Landed
from pidgate.pipeline.ingest.loop import Ingest
from pidgate.pipeline.ingest.staged import Staging
from pidgate.pipeline.swaps import Swaps
from tests.pipeline.jobs import running_job
from tests.unit.events.made_up import a_decision

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pidgate.pipeline.tables import Tables

BUCKET = "tables"
ROOT = f"s3a://{BUCKET}/of/one"
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.4.2"
"""Of the Hadoop that Spark 4.1 is built with."""
HOUR = "events/decision/day=2026-11-21/bucket=7"
BEGIN_MS = 1_795_244_400_000
"""Of this hour."""
SIZE = ("--users", "6", "--days", "2", "--events", "4000", "--seed", "5")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address. The environment is what pyarrow, and Spark's workers, find it by."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a-key",
        "AWS_SECRET_ACCESS_KEY": "a-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    # What moto holds outlives its server.
    urllib.request.urlopen(urllib.request.Request(f"{address}/moto-api/reset", method="POST")).close()
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    yield address
    server.stop()


def keys() -> list[str]:
    """What lies in the store, without the empty marks of folders."""
    found = boto3.client("s3").list_objects_v2(Bucket=BUCKET).get("Contents", ())
    return sorted(one["Key"].removeprefix("of/one/") for one in found if not one["Key"].endswith("/"))


def test_files(store: str) -> None:
    files = Files(ROOT)
    assert files.is_store
    assert not files.is_local
    assert files.full("a") == f"{ROOT}/a"
    assert files.names("nowhere") == []
    files.write("a/b/c.json", "some words")
    with pytest.raises(FileExistsError):
        files.write("a/b/c.json", "others")
    assert (files.read("a/b/c.json"), files.names("a"), files.exists("a/b")) == ("some words", ["b"], True)
    files.rename("a/b/c.json", "d/c.json")
    files.replace("e/_SUCCESS", "")
    files.replace("e/old.parquet", "old")
    files.swap("d", "e", "aside")
    assert keys() == ["d/c.json", "e/c.json"], "the source stays until its commit is gone"
    files.remove("d")
    files.remove("d")
    assert (keys(), list(files.data_files("e"))) == (["e/c.json"], ["e/c.json"])


def test_the_results_of_a_run_replace_the_last_ones_as_a_whole(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    swaps = Swaps(Files(ROOT))
    for parts in (("1", "2"), ("3",)):
        folder = swaps.begin()
        for part in parts:
            Files(ROOT).replace(f"{folder}/written/results/x/part-{part}", part)
        swaps.commit(folder, ["results/x"])
    assert keys() == ["results/x/part-3"]

    def killed(*_: str) -> None:
        raise InterruptedError

    # After its commit, before its first copy: readers find it where it was written.
    folder = swaps.begin()
    Files(ROOT).replace(f"{folder}/written/results/x/part-4", "4")
    monkeypatch.setattr(Files, "swap", killed)
    with pytest.raises(InterruptedError):
        swaps.commit(folder, ["results/x"])
    assert Swaps(Files(ROOT)).where("results/x") == f"{folder}/written/results/x"


def test_a_commit_of_ingest(store: str) -> None:
    files = Files(ROOT)
    for name, before in (("batch", ()), ("compacted", (f"{HOUR}/batch-0000000001-0.parquet",))):
        log = CommitLog(files)
        folder = log.staging()
        # As tasks do, wherever they run.
        staging = Staging(files.full(folder), late_after_ms=2**62, ahead_ms=2**62, now_ms=BEGIN_MS)
        event = a_decision(wall_time_ms=BEGIN_MS)
        list(staging.of([(to_json(event), Place(0, 0, BEGIN_MS))]))
        staged = dict.fromkeys(files.data_files(folder), before)
        log.commit(Position(batch=log.position.batch + 1), folder, log.moves(staged, folder, name))
        found = files.read_table(files.data_files("events"), pa.schema([("seq", pa.int64())]))
        assert found.to_pylist() == [{"seq": event.seq}]
    assert keys() == [
        f"{HOUR}/compacted-0000000002-0.parquet",
        "ingest/commits/0000000001.json",
        "ingest/commits/0000000002.json",
    ]


def test_of_two_ingests_one_commits_here_too(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(ROOT)
    first, second = CommitLog(files), CommitLog(Files(ROOT))
    staged = []
    for log in (first, second):
        folder = log.staging()
        files.replace(f"{folder}/{HOUR}/a.parquet", "rows")
        staged.append((folder, log.moves({f"{folder}/{HOUR}/a.parquet": ()}, folder, "batch")))
    second.finish()
    first.commit(Position(batch=0, next_offsets={"0": 2}), *staged[0])
    with pytest.raises(OtherWriter):
        second.commit(Position(batch=0, next_offsets={"0": 1}), *staged[1])
    assert CommitLog(files).position.next_offsets == {"0": 2}
    assert keys() == [f"{HOUR}/batch-0000000001-0.parquet", "ingest/commits/0000000001.json"]
    # An answer that was lost: the same text is written again.
    made = files.read("ingest/commits/0000000001.json")
    files.create("ingest/commits/0000000001.json", made)
    with pytest.raises(FileExistsError):
        files.create("ingest/commits/0000000001.json", "another")


def test_where_no_file_can_be_created_ingest_starts_only_as_the_single_writer(
    store: str, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    from pidgate.pipeline.tables import Tables

    monkeypatch.setattr(files_module, "_conditional", lambda _: None)
    with pytest.raises(BadOption, match="--single-writer"):
        Ingest(Tables(spark, ROOT), Landed("/nowhere"), How(), print)
    Ingest(Tables(spark, ROOT), Landed("/nowhere"), How(single_writer=True), print)
    assert Files("s3a://b/x").can_create is False


@pytest.mark.nightly
@pytest.mark.timeout(1_200)
def test_jobs_write_and_read_there(
    store: str, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History by Spark's workers, then a job twice: the second replaces what the first wrote."""
    import jgo

    settings = {
        "spark.jars": ",".join(str(jar) for jar in jgo.build(HADOOP_AWS).all_jars),
        "spark.hadoop.fs.s3a.endpoint": store,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    submitted = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", " ".join([*submitted, "pyspark-shell"]))
    log = tmp_path / "log"
    for job, options in (("history", SIZE), ("ids", ()), ("ids", ()), ("report", ())):
        with running_job(job, ROOT, log, *options) as process:
            assert process.wait(300) == 0, log.read_text()
    assert "report.html" in keys()
    assert not [key for key in keys() if key.startswith("scratch/")]
    # The same on the disk: what is made up hangs on the seed alone.
    with running_job("history", Path(tables.root), log, *SIZE) as process:
        assert process.wait(300) == 0, log.read_text()
    on_disk = {str(path.relative_to(tables.root)) for path in Path(tables.root).rglob("events/**/*.parquet")}
    assert on_disk == {key for key in keys() if key.startswith("events/")}
    assert os.environ["AWS_ENDPOINT_URL"] == store
