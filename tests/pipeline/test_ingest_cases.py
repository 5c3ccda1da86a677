"""Odd clocks, and two ingests at once: through the command, from landed files, so without a broker."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pidgate.events.definitions import Event
from pidgate.events.writing import to_json
from pidgate.pipeline.cli import app
from pidgate.pipeline.errors import OtherWriter
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest.batches import How
from pidgate.pipeline.ingest.landed import Landed
from pidgate.pipeline.ingest.loop import Ingest
from tests.pipeline.jobs import commanded, running_job
from tests.unit.events.made_up import a_decision

if TYPE_CHECKING:
    from pidgate.pipeline.tables import Tables

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NOW_MS = time.time_ns() // 1_000_000
USE = {
    "schema_version": 2, "type": "id_usage", "cluster": "own", "gateway_id": "gw-a", "worker": 0, "connection_id": 2,
    "listener": "plain", "user": "txapp", "client_id": "etl", "software_name": "apache-kafka-java",
    "software_version": "4.0.0", "address": "10.5.0.0", "producer_id": 1000, "epoch": 0, "requests": 60, "batches": 60,
    "records": 600, "bytes": 60000, "partitions": 2, "connections": 1, "incarnation": "gw-a-0", "seq": 1,
    "decision_time_ms": 1584770,
}  # fmt: skip


def decision(seq: int, wall_time_ms: int = NOW_MS, gateway_id: str = "gw-a", **more: Any) -> Event:
    return a_decision(seq=seq, gateway_id=gateway_id, wall_time_ms=wall_time_ms, producer_id=seq, **more)


def land(folder: Path, name: str, values: Sequence[bytes], append_ms: Sequence[int]) -> None:
    """As a sink writes records with their places."""
    folder.mkdir(exist_ok=True)
    count = len(values)
    columns = {
        "value": pa.array(values, pa.binary()),
        "partition": pa.repeat(0, count),
        "offset": pa.array(range(count)),
        "timestamp": pa.array(append_ms),
        "timestamp_type": pa.repeat("LogAppendTime", count),
    }
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def ingest(tables: Tables, folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The sums, and what the command said."""
    done = commanded("ingest", tables.root, "--landed", str(folder), "--json", *options)
    return json.loads(done.stdout), done.stderr


def test_one_append_time_in_the_future_forgets_nobody(tables: Tables, tmp_path: Path) -> None:
    values = [to_json(decision(seq)) for seq in range(1, 1001)]
    files = {
        "1": (values, [NOW_MS] * 1000),
        "2": ([b"hello"], [NOW_MS + 8 * DAY_MS]),
        "3": (values[899:], [NOW_MS + MINUTE_MS] * 101),
    }
    sums = []
    for name, (told, append_ms) in files.items():
        land(tmp_path / "landed", name, told, append_ms)
        found, _ = ingest(tables, tmp_path / "landed")
        sums.append((found["events"], found["dead"], found["duplicates"], found["account"]["missing"]))
    assert sums == [(1000, 0, 0, 0), (0, 1, 0, 0), (0, 0, 101, 0)]


def test_a_clock_that_was_not_set_yet_makes_two_hours_of_use_at_most(tables: Tables, tmp_path: Path) -> None:
    folder = tmp_path / "landed"
    folder.mkdir()
    told = USE | {"first_ms": 5_000, "last_ms": NOW_MS - 5, "wall_time_ms": NOW_MS}
    brought = json.loads(to_json(decision(2, NOW_MS - 5))) | {"user": told["user"]}
    (folder / "usage.jsonl").write_text(f"{json.dumps(told)}\n{json.dumps(brought)}\n")
    sums, said = ingest(tables, folder)
    assert (sums["events"], sums["cut"], sums["account"]["clocks"]["unknown"]) == (2, 1, ["gw-a"])
    assert "1 intervals of id_usage" in said
    assert "The clock of 1 gateway is not known. Events of gw-a have no append time" in said
    (row,) = tables.query_events("id_usage", "from found")
    assert (row["first_ms"], row["last_ms"]) == (NOW_MS - 5 - HOUR_MS, NOW_MS - 5)


def test_a_clock_that_is_behind_is_told_and_its_events_get_their_hours(
    tables: Tables, tmp_path: Path
) -> None:
    behind_ms = 40 * MINUTE_MS
    values, append_ms, right = [], [], {}
    for seq in range(1, 301):
        for gateway, late_ms in (("gw-a", 0), ("gw-b", behind_ms), ("gw-c", 0)):
            made_ms = NOW_MS - 3 * HOUR_MS + seq * 30_000
            values.append(to_json(decision(seq, made_ms - late_ms, gateway)))
            append_ms.append(made_ms + 20)
            right[gateway, seq] = made_ms
    # A second time: duplicates in a file that is corrected.
    land(tmp_path / "landed", "1", values + values[:9], append_ms + append_ms[:9])
    sums, said = ingest(tables, tmp_path / "landed")
    assert (sums["events"], sums["duplicates"]) == (900, 9)
    (wrong,) = sums["account"]["clocks"]["wrong"]
    assert (wrong["gateway_id"], wrong["offset_ms"]) == ("gw-b", behind_ms + 20)
    assert "1 gateway had a wrong clock. Against the brokers' clocks: gw-b up to 2,400 s behind in" in said
    rows = tables.query_events("decision", "from found")
    assert len(rows) == 900
    for row in rows:
        wall_ms = right[row["gateway_id"], row["seq"]]
        assert row["wall_time_ms"] - wall_ms == (20 if row["gateway_id"] == "gw-b" else 0)
        assert row["day"] == time.strftime("%Y-%m-%d", time.gmtime(wall_ms / 1000))


def test_landed_files_of_all_kinds_are_read_once(tables: Tables, tmp_path: Path) -> None:
    import gzip

    folder = tmp_path / "landed"
    (folder / "of" / "_temporary").mkdir(parents=True)
    lines = [to_json(decision(seq)) + b"\n" for seq in range(1, 7)]
    (folder / "of" / "a.json").write_bytes(b"".join(lines[:2]) + b"\n")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[2:4])))
    pq.write_table(pa.Table.from_pylist([json.loads(line) for line in lines[4:]]), folder / "c.parquet")
    (folder / "of" / "_temporary" / "d.json").write_bytes(b"not yet complete")
    assert ingest(tables, folder)[0]["events"] == 6
    assert ingest(tables, folder)[0]["batches"] == 0
    (folder / "e.jsonl").write_bytes(lines[0] + to_json(decision(7)))
    sums = ingest(tables, folder)[0]
    assert (sums["events"], sums["duplicates"]) == (1, 1)
    (folder / "f.avro").write_bytes(b"Obj")
    done = CliRunner().invoke(app, ["ingest", "--tables", tables.root, "--landed", str(folder)])
    assert "f.avro, which is in neither" in str(done.exception)


def landed_decisions(folder: Path, files: int, each: int, *, first: int = 0) -> list[int]:
    """Land files from number `first` on. Return the events of all files up to the last one."""
    for number in range(first, first + files):
        values = [to_json(decision(number * each + at)) for at in range(1, each + 1)]
        land(folder, f"{number:03d}", values, [NOW_MS] * each)
    return list(range(1, (first + files) * each + 1))


def seqs_in(root: str) -> list[int]:
    """Whatever lies in the files, read without Spark."""
    files, found = Files(root), []
    for path in files.data_files("events"):
        with files.input(path) as stream:
            found += pq.ParquetFile(stream).read(["seq"])["seq"].to_pylist()
    return sorted(found)


def test_two_at_once_take_each_event_once(tables: Tables, tmp_path: Path) -> None:
    made = landed_decisions(tmp_path / "landed", 4, 50)
    ended: list[str] = []

    def run() -> None:
        how = How(max_events_per_batch=1)
        try:
            Ingest(tables, Landed(str(tmp_path / "landed")), how, lambda _: None).run()
            ended.append("done")
        except OtherWriter:
            ended.append("overtaken")

    both = [threading.Thread(target=run) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert "done" in ended
    assert len(ended) == 2
    assert seqs_in(tables.root) == made


ROUNDS, FILES, LONGEST_S = 20, 6, 900


@pytest.mark.timeout(4 * 3_600)
def test_two_real_ingests_at_once_twenty_times_with_kills(tmp_path: Path) -> None:
    """Both work on the same batches; in every other round one of them is killed at a chance moment."""
    chance, root, log = random.Random(7), tmp_path / "tables", tmp_path / "log"
    options = ("--landed", str(tmp_path / "landed"), "--max-events-per-batch", "1", "--master", "local[1]")
    codes: Counter[int] = Counter()
    for number in range(ROUNDS):
        made = landed_decisions(tmp_path / "landed", FILES, 40, first=FILES * number)
        # What a killed one has staged stays until a later commit.
        left = set((root / "ingest").glob("staging/*"))
        with (
            running_job("ingest", root, log, *options) as one,
            running_job("ingest", root, log, *options) as two,
        ):
            while None in (one.poll(), two.poll()) and left >= set((root / "ingest").glob("staging/*")):
                time.sleep(0.01)
            time.sleep(3 * chance.random())
            if number % 2:
                chance.choice((one, two)).kill()
            codes.update((one.wait(LONGEST_S), two.wait(LONGEST_S)))
        assert set(codes) <= {0, 2, -signal.SIGKILL}, log.read_text()
        found = seqs_in(str(root))
        assert len(found) == len(set(found))
    with running_job("ingest", root, log, *options) as last:
        assert last.wait(LONGEST_S) == 0, log.read_text()
    assert seqs_in(str(root)) == made
    assert codes.total() == 2 * ROUNDS
    # Most kills met a process at work, and both of a pair at work met each other.
    assert codes[-signal.SIGKILL] >= ROUNDS // 4
    assert codes[2] >= ROUNDS // 4
    assert "another ingest committed" in log.read_text()
