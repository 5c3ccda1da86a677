"""Effect of the rates of `recommend` on the judged days, for each input that says which ids are healthy.

Counted by the labels, whoever was asked: a detector that calls a rogue healthy must not look as if it held all of them.
Of a new rate the one counts that had not seen the judged days.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import functions as f

from pidgate.pipeline.commands.recommend import course_of
from pidgate.pipeline.newest import newest_event
from pidgate.pipeline.recommend.in_force import settings
from pidgate.pipeline.recommend.judged import LABELS_OF_IDS, arrived, judged_by_labels, refreshed
from pidgate.pipeline.recommend.trials import trials
from pidgate.pipeline.session import spark_session
from pidgate.pipeline.tables import Tables

Run = Callable[..., None]
"""Runs a job over tables: its name, the tables, options."""

NOBODY, FINDINGS, LABELS = "nobody", "findings", "labels"
INPUTS: Final = (NOBODY, FINDINGS, LABELS)
HEALTHY_BY: Final = {
    NOBODY: "nobody: all are taken for healthy",
    FINDINGS: "the findings of `offenders` (what users get)",
    LABELS: "the labels of the made-up history",
}


def held_by(tables: Path, run: Run) -> dict[str, Counter[str]]:
    """Run `recommend` with each of INPUTS, and `offenders` between; return what their rates do to the judged days."""
    labels, aside = tables / "labels_ids", tables / "labels_ids_aside"
    labels.rename(aside)
    advised = {}
    for name in INPUTS:
        if name == FINDINGS:
            run("offenders", tables)
        if name == LABELS:
            aside.rename(labels)
        run("recommend", tables)
        advised[name] = pq.read_table(tables / "results" / "recommendations").to_pylist()
    return _counted(Tables(spark_session("recommend inputs"), str(tables)), advised)


def rate_to_judge(row: dict[str, Any]) -> float | None:
    """Return the rate that is in force in the judged days when a recommendation is followed; None: no limit."""
    rate: float | None = row["judged_rate"] if row["action"] == "set" else row["current_rate"]
    return rate


def _counted(tables: Tables, advised: dict[str, list[dict[str, Any]]]) -> dict[str, Counter[str]]:
    decisions = tables.needed_events("decision")
    shape = settings(newest_event(tables.events("config")))
    course = course_of(decisions, shape)
    truth = judged_by_labels(
        arrived(decisions, shape.remember_ms), tables.read("labels_ids", schema=LABELS_OF_IDS)
    ).cache()
    judged = truth.where(f.col("at_ms") >= course.split_ms).groupBy("user")
    came = {
        row["user"]: (row["rogue"], row["healthy"])
        for row in judged.agg(
            f.count_if(~f.col("healthy")).alias("rogue"), f.count_if("healthy").alias("healthy")
        ).toLocalIterator()
    }
    rates = {(row["user"], rate_to_judge(row)) for rows in advised.values() for row in rows} - {("", None)}
    plan = [(user, sorted({rate for one, rate in rates if one == user and rate}), 1) for user, _ in rates]
    planned = tables.spark.createDataFrame(plan, "user string, rates array<double>, ids bigint").distinct()
    outcomes = trials(truth, refreshed(decisions).where("false"), planned, course)
    by_rate = {
        (row["user"], row["rate_milli"]): row
        for row in outcomes.where("period = 'test' and rate_milli is not null").toLocalIterator()
    }
    found = {}
    for name, rows in advised.items():
        counts = found[name] = Counter[str]()
        for row in rows:
            rogue, healthy = came.get(row["user"], (0, 0))
            rate = rate_to_judge(row)
            tried = by_rate.get((row["user"], round(1000 * rate))) if rate else None
            counts.update(
                rogue_ids=rogue,
                healthy_ids=healthy,
                new_rates=row["action"] == "set",
                rogue_refused=tried["rogue_refused"] if tried else 0,
                healthy_refused=tried["healthy_refused"] if tried else 0,
            )
    return found
