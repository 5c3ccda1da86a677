"""Recommendations on a history whose truth is known: no healthy id refused, the rogue held, better than the maximum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f
from pyspark.sql import types as types
from rich.console import Console

from pidgate.gateway.config.loading import parse
from pidgate.pipeline.commands.common import pass_over
from pidgate.pipeline.commands.recommend import rates_of, write_files, write_recommendations
from pidgate.pipeline.days import Days
from pidgate.pipeline.errors import BadOption, HistoryEmpty
from pidgate.pipeline.passes import OFFENDERS
from pidgate.pipeline.recommend.evidence import Asked
from pidgate.pipeline.recommend.judged import LABELS_OF_IDS, arrived, judged_by_findings
from pidgate.pipeline.recommend.trials import Course, trials
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.schemas import table_schema
from pidgate.quota.settings import ProducerIdSettings
from tests.support.recommend_events import BEGIN_MS, DAY_MS, History, config, topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from pidgate.pipeline.tables import Tables


ASKED = Asked(least_history_ms=5 * DAY_MS)
"""The history has six days."""


def _events(spark: SparkSession, event_type: str, told: list[dict[str, Any]]) -> DataFrame:
    schema = table_schema(event_type)
    return spark.createDataFrame([{name: one.get(name) for name in schema.names} for one in told], schema)


def _write(tables: Tables, event_type: str, told: list[dict[str, Any]]) -> None:
    day = {"day": f.lit("2026-09-21"), "hour": f.lit("00")}
    frame = _events(tables.spark, event_type, told).withColumns(day)
    frame.write.partitionBy("day", "hour").parquet(tables.path("events", event_type))


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, Course]:
    from pidgate.pipeline.tables import Tables

    history = History()
    tables = Tables(spark, str(tmp_path_factory.mktemp("recommend")))
    _write(tables, "decision", history.decisions)
    _write(tables, "config", [config()])
    _write(tables, "topology", [topology()])
    spark.createDataFrame(history.labels, LABELS_OF_IDS).write.parquet(tables.path("labels_ids"))
    with replacing(tables) as run:
        advised = write_recommendations(run, Console(quiet=True).print, asked=ASKED)
        write_files(run, Console(quiet=True).print, advised)
    return tables, advised.course


def _of(tables: Tables, name: str = "recommendations") -> dict[str, Row]:
    frame = tables.result(name)
    assert frame is not None
    return {row["user"]: row for row in frame.collect()}


def test_no_healthy_id_is_refused_and_the_rogue_is_held(done: tuple[Tables, Course]) -> None:
    found = _of(done[0])
    assert {row["healthy_refused_train"] for row in found.values()} == {0}
    assert {row["healthy_refused_test"] for row in found.values()} == {0}
    for user in ("batches", "mixed"):
        row = found[user]
        assert row["action"] == "set"
        assert row["holds_rogue"]
        assert row["rogue_ids_test"] > 100
        assert row["rogue_ids_admitted_test"] < 0.5 * row["rogue_ids_test"]


def test_the_maximum_of_history_loses(done: tuple[Tables, Course]) -> None:
    for user in ("batches", "mixed"):
        row = _of(done[0])[user]
        assert row["naive_rogue_ids_admitted_test"] > 0.95 * row["rogue_ids_test"]
        assert row["rogue_ids_admitted_test"] < 0.5 * row["naive_rogue_ids_admitted_test"]


def test_who_gives_no_reason_is_not_touched(done: tuple[Tables, Course]) -> None:
    found = _of(done[0])
    assert {found[user]["action"] for user in ("deployed", "café: #1")} == {"keep"}
    assert found["deployed"]["recommended_rate"] == found["deployed"]["current_rate"] == 500


def test_the_file_is_loaded_by_the_gateway(done: tuple[Tables, Course]) -> None:
    from pathlib import Path

    folder = Path(done[0].path("recommended"))
    settings = parse((folder / "quotas.yaml").read_text())
    users = settings.to_quotas().users
    wanted = {user: row["recommended_rate"] for user, row in _of(done[0]).items() if row["action"] == "set"}
    assert set(users) == {"gone", *wanted}
    assert {user: users[user].producer_ids_rate_milli for user in wanted} == {
        user: rate * 1000 for user, rate in wanted.items()
    }
    assert str(settings.cluster.bootstrap_servers[0]) == "127.0.0.1:19092"
    assert users["mixed"].mode == "observe", "nobody asked for enforcing"
    assert "+      producer_ids_rate" in (folder / "changes.diff").read_text()


def test_the_file_says_what_was_judged_and_that_all_days_were_fitted(done: tuple[Tables, Course]) -> None:
    text = done[0].text("recommended", "quotas.yaml")
    assert text is not None
    assert "Each rate is fitted to all days from 2026-09-21 to 2026-09-2" in text
    assert "Judged with ids healthy by the history's own labels." in text
    rows = _of(done[0]).values()
    came = sum(row["rogue_ids_test"] for row in rows)
    held = came - sum(row["rogue_ids_admitted_test"] for row in rows)
    assert f"In the judged days it holds {held:,} of {came:,} ids of rogues" in text
    assert "(learnt from the days before)" in text


def test_a_short_history_recommends_nothing(tables: Tables) -> None:
    """An hour of it made a rate that refused 1,186 healthy ids."""
    history = History(days=1)
    _write(tables, "decision", history.decisions)
    _write(tables, "config", [config()])
    with replacing(tables) as run:
        advised = write_recommendations(run, Console(quiet=True).print)
        write_files(run, Console(quiet=True).print, advised)
    assert {row["action"] for row in _of(tables).values()} == {"none"}
    assert "are too little to recommend a rate: take 7 d or more" in _of(tables)["mixed"]["reasons"][0]
    assert tables.text("recommended", "changes.diff") == ""


def test_only_the_days_that_are_asked_for_count(done: tuple[Tables, Course]) -> None:
    with pytest.raises(HistoryEmpty, match=r"from 2026-09-22 under .*--since"), replacing(done[0]) as run:
        write_recommendations(run, Console(quiet=True).print, days=Days(since="2026-09-22"))
    with pytest.raises(HistoryEmpty, match="to 2026-09-20"):
        pass_over(done[0], Days(until="2026-09-20"), OFFENDERS)


def test_filters_keep_their_promise(done: tuple[Tables, Course]) -> None:
    found = _of(done[0], "filter_accuracy")
    assert found["batches"]["ids"] > 1_000
    assert all(row["false_positive_rate"] <= 3 * row["expected_rate"] for row in found.values())


def test_a_heavy_user_in_parts_comes_to_the_same(spark: SparkSession) -> None:
    """Also that rows are streamed: batches far smaller than a user."""
    history = History(days=3)
    decisions = _events(spark, "decision", history.decisions)
    judged = arrived(decisions, DAY_MS).withColumn("healthy", f.col("client_id") != "rogue").persist()
    plan = (
        judged.groupBy("user")
        .agg(f.count("*").alias("ids"))
        .withColumn("rates", f.array(*map(f.lit, (2.0, 10.0, 40.0, 200.0))))
    )
    used = judged.limit(0).select("user", "producer_id", "at_ms")
    course = Course(ProducerIdSettings(), BEGIN_MS, BEGIN_MS + 2 * DAY_MS, BEGIN_MS + 3 * DAY_MS)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "300")
    try:
        whole, dealt = (
            sorted(map(tuple, trials(judged, used, plan, course, parts).collect()), key=str)
            for parts in (1, 3)
        )
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20000")
        judged.unpersist()
    assert whole == dealt
    assert len(whole) == 4 * (4 * 2 + 1)


def test_findings_say_who_is_a_rogue(spark: SparkSession) -> None:
    arriving = [
        ("mixed", "rogue-7", "a"),
        ("mixed", "rogue-7", "b"),
        ("mixed", "orders", "a"),
        ("calm", "rogue-7", "a"),
    ]
    harmful = [("mixed", "rogue-7", "a", "restart_loop"), ("other", "orders", "a", "restart_loop")]
    columns = "user string, client_id string, address string"
    judged = judged_by_findings(
        spark.createDataFrame(arriving, columns), spark.createDataFrame(harmful, f"{columns}, pattern string")
    )
    found = {(row["user"], row["client_id"], row["address"]): row["healthy"] for row in judged.collect()}
    assert found == {one: one != ("mixed", "rogue-7", "a") for one in arriving}


@pytest.mark.parametrize("text", ["10;20", "0", "-3", "nan"])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(BadOption):
        rates_of(text)
