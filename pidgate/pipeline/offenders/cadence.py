"""The beat of each source's starts, over tables: the features that findings/cadence.py defines.

Starts are first gathered by second, so that a source of millions of ids has as many rows as seconds at most.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.findings.cadence import (
    BURST_GAPS_MS,
    CLOCK,
    EVEN,
    EXECUTORS_GAP_MS,
    FEWEST_BURSTS,
    FEWEST_PERIODS,
    GROWN,
    KNOWN_PAUSES,
    OVERLAP_MS,
    PERIODS_MS,
    RESTART_PAUSE_MS,
)


def cadence(known: DataFrame) -> DataFrame:
    """One row per `source`, with the features of findings.cadence.

    `known`: producers with their `source`; those older than the history are left out.
    """
    ticks = (
        known.where("started_ms is not null")
        .groupBy("source", f.expr("started_ms div 1000").alias("second"))
        .agg(f.min("started_ms").alias("at_ms"), f.max("last_ms").alias("end_ms"), f.count("*").alias("ids"))
    )
    found = _measured(_bursts(ticks)).groupBy("source", "gap_ms").agg(*_sums())
    judged = found.select("source", "gap_ms", *_features())
    best = f.max_by(
        f.struct(*[name for name in judged.columns if name not in ("source", "sure_beat")]),
        f.struct(f.coalesce("sure_beat", f.lit(0.0)), -f.col("gap_ms")),
    )
    return judged.groupBy("source").agg(best.alias("best")).select("source", "best.*")


def _bursts(ticks: DataFrame) -> DataFrame:
    """One row per source, each of BURST_GAPS_MS, and burst. Ticks are sorted once for all gaps."""
    in_time = Window.partitionBy("source").orderBy("at_ms")
    quiet_ms = f.col("at_ms") - f.lag("at_ms").over(in_time)

    def numbered(gap_ms: int) -> Column:
        begins = f.coalesce(f.col("quiet_ms") > gap_ms, f.lit(True))
        return f.struct(f.lit(gap_ms).alias("gap_ms"), f.count_if(begins).over(in_time).alias("burst"))

    return (
        ticks.withColumn("quiet_ms", quiet_ms)
        .withColumn("of", f.array(*map(numbered, BURST_GAPS_MS)))
        .select("source", "at_ms", "end_ms", "ids", f.inline("of"))
        .groupBy("source", "gap_ms", "burst")
        .agg(f.min("at_ms").alias("at_ms"), f.max("end_ms").alias("end_ms"), f.sum("ids").alias("ids"))
    )


def _measured(bursts: DataFrame) -> DataFrame:
    in_time = Window.partitionBy("source", "gap_ms").orderBy("burst")

    def before(name: str) -> Column:
        return f.lag(name).over(in_time)

    pauses = (f.col("pause_ms") > 0) & (before("pause_ms") > 0)
    return (
        bursts.withColumn("interval_ms", f.col("at_ms") - before("at_ms"))
        .withColumn("pause_ms", f.col("at_ms") - before("end_ms"))
        .withColumn("step", f.col("interval_ms") / before("interval_ms"))
        .withColumn("pause_step", f.when(pauses, f.col("pause_ms") / before("pause_ms")))
        .withColumns({f"met_{period}": _new_period(period, before("at_ms")) for period in PERIODS_MS})
    )


def _new_period(period_ms: int, before_ms: Column) -> Column:
    """Return whether this is the first start in its period of the clock."""
    return f.coalesce(f.floor(f.col("at_ms") / period_ms) != f.floor(before_ms / period_ms), f.lit(True))


def _sums() -> list[Column]:
    sums = [
        f.count("*").alias("bursts"),
        f.sum("ids").alias("burst_ids"),
        f.count("interval_ms").alias("intervals"),
        f.exp(f.avg(f.ln("interval_ms"))).alias("interval_ms"),
        f.exp(f.avg(f.when(f.col("pause_ms").isNotNull(), f.ln(f.greatest("pause_ms", f.lit(1)))))).alias(
            "pause_ms"
        ),
        f.count_if(f.col("pause_ms") < -OVERLAP_MS).alias("overlaps"),
        f.count("step").alias("steps"),
        f.count_if(f.col("step").between(*EVEN)).alias("even"),
        f.count_if(f.col("step").between(*GROWN)).alias("grown"),
        f.count_if(f.col("pause_ms").between(*RESTART_PAUSE_MS)).alias("restarts"),
        f.count("pause_step").alias("pause_steps"),
        f.count_if(f.col("pause_step").between(*EVEN)).alias("pause_even"),
        f.count_if(f.col("pause_step").between(*GROWN)).alias("pause_grown"),
    ]
    for period in PERIODS_MS:
        turn = f.pmod(f.col("at_ms"), f.lit(period)) * (2 * 3.141592653589793 / period)
        sums += [
            f.hypot(f.avg(f.cos(turn)), f.avg(f.sin(turn))).alias(f"clock_{period}"),
            f.count_if(f"met_{period}").alias(f"periods_{period}"),
        ]
    return sums


def _features() -> list[Column]:
    on_beat = _share(f.col("even") + f.col("grown"), "steps")
    pauses_on_beat = f.when(
        f.col("pause_steps") >= KNOWN_PAUSES * f.col("steps"),
        _share(f.col("pause_even") + f.col("pause_grown"), "pause_steps"),
    )
    clocks = [
        f.struct(
            f.when(f.col(f"periods_{period}") >= FEWEST_PERIODS, f.col(f"clock_{period}")).alias("clock"),
            f.lit(period).cast("bigint").alias("clock_ms"),
            f.col(f"periods_{period}").alias("clock_periods"),
        )
        for period in PERIODS_MS
    ]
    best = f.greatest(*clocks)
    beat = f.greatest(on_beat, pauses_on_beat)
    is_by_clock = best["clock"] >= CLOCK
    is_sure = (f.col("bursts") >= FEWEST_BURSTS) & ((f.col("gap_ms") < EXECUTORS_GAP_MS) | is_by_clock)
    return [
        f.col("bursts"),
        f.col("interval_ms").cast("bigint").alias("interval_ms"),
        f.col("pause_ms").cast("bigint").alias("pause_ms"),
        beat.alias("beat_share"),
        f.when(is_sure, beat).alias("sure_beat"),
        f.greatest("grown", "pause_grown").alias("grown"),
        _share(f.col("restarts"), "intervals").alias("restart_share"),
        _share(f.col("overlaps"), "intervals").alias("overlap_share"),
        (f.col("burst_ids") / f.col("bursts")).alias("ids_per_burst"),
        best["clock"].alias("clock"),
        best["clock_ms"].alias("clock_ms"),
        best["clock_periods"].alias("clock_periods"),
    ]


def _share(part: Column, whole: str) -> Column:
    return f.when(f.col(whole) > 0, part / f.col(whole))
