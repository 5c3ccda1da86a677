"""AppFeatures over tables.

Starts and ends are first gathered by minute.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pidgate.findings.features import FEWEST_INSTANCES, REPLACED, Span

DAY_MS = 86_400_000

APP = ["user", "app"]


def app_features(calm: DataFrame, span: Span) -> DataFrame:
    """One row per user and app of `calm` (producers with `app`, `client_id`, `address`)."""
    calm = calm.withColumns(_times(span))
    return _lives(calm, span).join(_crowds(calm), APP, "left").join(_sessions(calm, span), APP, "left")


def _times(span: Span) -> dict[str, Column]:
    """late: came after the head; over: ended before the end."""
    return {
        "late": f.coalesce(f.col("started_ms") > span.head_until_ms, f.lit(False)),
        "over": f.col("last_ms") < span.open_from_ms,
        "life_ms": f.col("last_ms") - f.col("seen_ms"),
    }


def _lives(calm: DataFrame, span: Span) -> DataFrame:
    is_long = f.col("life_ms") >= span.long_ms
    return calm.groupBy(*APP).agg(
        f.count("*").alias("ids"),
        f.count_if(f.col("started_ms").isNotNull() & f.col("admitted")).alias("new_ids"),
        f.count_if("late").alias("late_ids"),
        f.avg(f.when(f.col("late"), is_long.cast("int"))).alias("late_long"),
        f.exp(f.avg(f.when(f.col("over"), f.ln(f.greatest("life_ms", f.lit(1))))))
        .cast("bigint")
        .alias("over_life_ms"),
        f.count_if(is_long).alias("long_ids"),
        (f.sum(f.when(is_long, f.col("life_ms"))) / f.greatest(f.sum("life_ms"), f.lit(1))).alias(
            "long_time"
        ),
        (f.sum("life_ms") / span.length_ms).alias("alive"),
        _rhythm("late", "started_ms").alias("starts_rhythm"),
        _rhythm("over", "last_ms").alias("ends_rhythm"),
        _only("client_id").alias("only_client_id"),
        _only("address").alias("address"),
    )


def _only(name: str) -> Column:
    """The one that all have; null: there are several."""
    return f.when(f.min(name) == f.max(name), f.min(name))


def _rhythm(which: str, at_ms: str) -> Column:
    """Concentration on an hour of the day: 0 none, 1 always the same moment."""
    turn = f.pmod(f.col(at_ms), f.lit(DAY_MS)) * (2 * 3.141592653589793 / DAY_MS)
    across, up = (f.avg(f.when(f.col(which), of(turn))) for of in (f.cos, f.sin))
    return f.hypot(across, up)


def _crowds(calm: DataFrame) -> DataFrame:
    """The address with most client ids (met_at_address, alive_at_address: producers in use there at once), and the
    client id with most addresses (likewise).
    """
    at = f.expr(
        "explode(array(struct('address' as kind, address as key), struct('client_id' as kind, client_id as key)))"
    )
    places = calm.groupBy(*APP, "client_id", "address").agg(
        f.sum("life_ms").alias("lives_ms"),
        f.min("seen_ms").alias("first_ms"),
        f.max("last_ms").alias("end_ms"),
    )
    crowds = (
        places.select(*APP, "lives_ms", "first_ms", "end_ms", at.alias("at"))
        .groupBy(*APP, "at")
        .agg(
            f.count("*").alias("met"),
            f.expr("sum(lives_ms) / greatest(max(end_ms) - min(first_ms), 1)").alias("alive"),
        )
    )
    found, names = [], []
    for kind in ("address", "client_id"):
        top = f"max_by(struct(at.key, met, alive), struct(met, alive, at.key)) filter (where at.kind = '{kind}')"
        found.append(f.expr(top).alias(kind))
        names += [
            f"{kind}.key as crowd_{kind}",
            f"{kind}.met as met_at_{kind}",
            f"{kind}.alive as alive_at_{kind}",
        ]
    return crowds.groupBy(*APP).agg(*found).selectExpr(*APP, *names)


def _sessions(calm: DataFrame, span: Span) -> DataFrame:
    """Group starts into sessions: count those that replaced instances, and those that added some.

    replaced_ids: starts in the former; alive_most, alive_least: instances at once, after the head.
    """
    gap_ms = span.session_gap_ms
    minute_ms = max(1, min(60_000, gap_ms // 10))
    minutes = _minutes(calm, minute_ms)
    sessions = (
        _in_sessions(minutes, gap_ms)
        .groupBy(*APP, "session")
        .agg(
            f.min("session_ms").alias("session_ms"),
            f.sum("starts").alias("starts"),
            f.sum(f.when(f.col("ms") - f.col("start_ms") <= gap_ms / 2, f.col("ends")).otherwise(0)).alias(
                "ends"
            ),
            f.min_by("alive_before", "ms").alias("before"),
            f.max("alive").alias("most"),
            f.min("alive").alias("least"),
        )
    )
    sessions = sessions.where(f.col("session_ms") > span.head_until_ms)
    # What was not there before cannot have been replaced.
    gone = f.least("ends", "before")
    replaced = (
        (f.col("starts") >= FEWEST_INSTANCES)
        & (gone >= REPLACED * f.col("starts"))
        & (f.col("starts") >= REPLACED * f.col("before"))
    )
    return sessions.groupBy(*APP).agg(
        f.count("*").alias("sessions"),
        f.count_if(replaced).alias("replacements"),
        f.sum(f.when(replaced, f.col("starts")).otherwise(0)).alias("replaced_ids"),
        f.max(f.when(replaced, f.col("starts"))).alias("instances"),
        f.count_if(f.col("ends") < REPLACED * f.col("starts")).alias("growths"),
        f.max("most").alias("alive_most"),
        f.min("least").alias("alive_least"),
    )


def _minutes(calm: DataFrame, minute_ms: int) -> DataFrame:
    """One row per app and minute in which something starts or ends."""
    start = f.struct(f.col("seen_ms").alias("ms"), f.lit(1).alias("starts"), f.lit(0).alias("ends"))
    end = f.struct(f.col("last_ms").alias("ms"), f.lit(0).alias("starts"), f.lit(1).alias("ends"))
    moments = f.when(f.col("over"), f.array(start, end)).otherwise(f.array(start))
    return (
        calm.select(*APP, f.explode(moments).alias("moment"))
        .select(*APP, "moment.*")
        .groupBy(*APP, (f.floor(f.col("ms") / minute_ms) * minute_ms).alias("ms"))
        .agg(f.sum("starts").alias("starts"), f.sum("ends").alias("ends"))
    )


def _in_sessions(minutes: DataFrame, gap_ms: int) -> DataFrame:
    in_time = Window.partitionBy(*APP).orderBy("ms")
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    start_ms = f.when(f.col("starts") > 0, f.col("ms"))
    quiet_ms = f.col("ms") - f.last(start_ms, ignorenulls=True).over(before)
    alive = f.sum(f.col("starts") - f.col("ends"))
    return minutes.withColumns(
        {
            "begins": (f.col("starts") > 0) & f.coalesce(quiet_ms > gap_ms, f.lit(True)),
            "start_ms": f.last(start_ms, ignorenulls=True).over(in_time),
            "alive": alive.over(in_time),
            "alive_before": f.coalesce(alive.over(before), f.lit(0)),
        }
    ).withColumns(
        {
            "session": f.count_if("begins").over(in_time),
            "session_ms": f.last(f.when(f.col("begins"), f.col("ms")), ignorenulls=True).over(in_time),
        }
    )
