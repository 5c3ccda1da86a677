"""All users' trials on the cluster: one sorted stream per partition, of which only the user at hand is in memory.

A rogue user may be most of the data. Its rates are dealt out to several parts, each of which reads its arrivals once
more; the parts of heavy users are given places of their own, so that two of them do not meet in one task.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import ne

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from pidgate.pipeline.recommend.trial import UserTrial
from pidgate.quota.settings import ProducerIdSettings

PLAN, NEW, BACK, USED = 0, 1, 2, 3
"""Kinds of rows: the user's rates; an id never seen before; one that was forgotten; one that is remembered."""

WITH_FILTER = 0
"""The part of a user that has the filter: no other needs to know when ids are used that are remembered."""

HEAVY_SHARE = 0.1
"""Of all arrivals: a user with more is dealt out."""

PERIODS = ("train", "test")
_COUNTS = (
    "healthy_admitted", "healthy_refused", "rogue_admitted", "rogue_refused", "longest_wait_ms", "filter_ids",
    "false_positives",
)  # fmt: skip
_ARROW = pa.schema(
    [("user", pa.string()), ("rate_milli", pa.int64()), ("period", pa.string())]
    + [(name, pa.int64()) for name in _COUNTS]
)
RESULT = from_arrow_schema(_ARROW)


@dataclass(frozen=True, slots=True)
class Course:
    """Settings of all trials. Times are wall clock ms; `begin_ms` is not after any arrival; from `split_ms` on
    is judged.
    """

    settings: ProducerIdSettings
    begin_ms: int
    split_ms: int
    end_ms: int


def trials(
    judged: DataFrame, refreshed: DataFrame, plan: DataFrame, course: Course, parts: int = 2
) -> DataFrame:
    """RESULT: what each rate of `plan` (user, rates in ids per window, ids) would have done to its user's arrivals.

    Rows with a null rate hold the filter's counts. `parts`: into how many a heavy user is dealt out.
    """
    spark = judged.sparkSession
    planned = _dealt(plan, parts)
    kind = f.when(f.col("is_first"), NEW).otherwise(BACK)
    came = judged.select("user", "at_ms", kind.cast("byte").alias("kind"), "producer_id", "healthy")
    used = refreshed.select(
        "user", "at_ms", f.lit(USED).cast("byte").alias("kind"), "producer_id", f.lit(True).alias("healthy")
    )
    # A broadcast: there is a row a user, and the arrivals are not to be moved for it.
    who = f.broadcast(planned.select("user", "part"))
    read = came.join(who, "user").unionByName(used.join(who.where(f.col("part") == WITH_FILTER), "user"))
    rows = read.withColumn("rates", f.lit(None).cast("array<bigint>"))
    plans = planned.select(
        "user",
        f.lit(course.begin_ms).alias("at_ms"),
        f.lit(PLAN).cast("byte").alias("kind"),
        f.lit(0).cast("bigint").alias("producer_id"),
        f.lit(True).alias("healthy"),
        "part",
        "rates",
    )
    number = int(spark.conf.get("spark.sql.shuffle.partitions") or 8)
    return (
        rows.unionByName(plans)
        .repartition(number, _place(spark, number))
        .sortWithinPartitions("user", "part", f.col("kind") != PLAN, "at_ms", "producer_id")
        .select("user", "part", "at_ms", "kind", "producer_id", "healthy", "rates")
        .mapInArrow(_streamed(course), RESULT)
    )


def _dealt(plan: DataFrame, parts: int) -> DataFrame:
    """user, part, rates (thousandths) of that part, the cheap and the dear ones mixed."""
    all_ids = plan.agg(f.sum("ids").alias("all_ids"))
    milli = f.transform("rates", lambda rate: f.round(rate * 1000).cast("bigint"))
    dealt = f.when(f.col("ids") > HEAVY_SHARE * f.col("all_ids"), parts).otherwise(1)
    return (
        plan.crossJoin(f.broadcast(all_ids))
        .select("user", milli.alias("all_rates"), dealt.alias("dealt"))
        .withColumn("part", f.explode(f.sequence(f.lit(0), f.col("dealt") - 1)))
        .withColumn("rates", f.filter("all_rates", lambda _, place: place % f.col("dealt") == f.col("part")))
        .select("user", "part", "rates")
    )


def _place(spark: SparkSession, number: int) -> Column:
    """Return a key that Spark's hash puts into the partition that is meant: parts of one user lie side by side."""
    meant = f.pmod(f.hash("user").cast("bigint") + f.col("part"), f.lit(number))
    tried = spark.range(40 * number).select("id", f.pmod(f.hash("id"), f.lit(number)).alias("place"))
    found = {row["place"]: row["id"] for row in tried.collect()}
    keys = f.array(*(f.lit(found.get(place, place)).cast("bigint") for place in range(number)))
    return f.element_at(keys, (meant + 1).cast("int"))


def _streamed(course: Course) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def stream(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        user, trial = "", None
        for rows in (run for batch in batches for run in _by_user(batch)):
            columns = [rows.column(place).to_pylist() for place in (2, 3, 4, 5)]
            if columns[1][0] == PLAN:
                yield from _results(user, trial)
                user, trial = rows.column(0)[0].as_py(), _planned(rows, course)
                columns = [column[1:] for column in columns]
            assert trial is not None, "a user's plan is sorted before its arrivals"
            times, kinds, ids, healthy = columns
            if trial.filter is not None:
                for at_ms, kind, producer_id in zip(times, kinds, ids, strict=True):
                    trial.filter.add_use(producer_id, at_ms, is_new=kind == NEW)
            came = [place for place, kind in enumerate(kinds) if kind != USED]
            trial.add_arrivals([times[place] for place in came], [healthy[place] for place in came])
        yield from _results(user, trial)

    return stream


def _by_user(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch where another user or another part begins; rows are sorted by both."""
    names = list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    begin = 0
    while begin < len(names):
        # By bisection: most runs are long.
        end = bisect_left(names, True, begin, key=partial(ne, names[begin]))
        yield batch.slice(begin, end - begin)
        begin = end


def _planned(rows: pa.RecordBatch, course: Course) -> UserTrial:
    """The trial of the plan in the first row."""
    return UserTrial(
        rows.column(6)[0].as_py(),
        course.settings,
        at_ms=course.begin_ms,
        split_ms=course.split_ms,
        with_filter=rows.column(1)[0].as_py() == WITH_FILTER,
    )


def _results(user: str, trial: UserTrial | None) -> Iterator[pa.RecordBatch]:
    """The results of a user and part that are over."""
    if trial is None:
        return
    nothing = {"user": user, **dict.fromkeys(_COUNTS, 0)}
    rows = [
        {
            **nothing,
            "rate_milli": rate_milli,
            "period": PERIODS[period],
            "healthy_admitted": healthy.admitted,
            "healthy_refused": healthy.refused,
            "rogue_admitted": rogue.admitted,
            "rogue_refused": rogue.refused,
            "longest_wait_ms": healthy.longest_wait_ms,
        }
        for rate_milli, period, healthy, rogue in trial.finish()
    ]
    if trial.filter is not None:
        counts = {"filter_ids": trial.filter.ids, "false_positives": trial.filter.false_positives}
        rows.append({**nothing, **counts})
    yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
