"""From what each rate would have done to the rate that is recommended, and why.

The rule: of the rates that refused no healthy id in the days learnt from, the least one that leaves headroom and lets
all producers that live restart at once; only headroom, when a rogue would slip through otherwise. The judged days play
no part in it. What is in force stays when it does all that. Where a rogue runs all the time, no rate both holds it and
refuses nobody: then the rate that refuses nobody is recommended, and the one that holds is named; or, if healthy ids
may wait for a while (`longest_wait_ms`), the one that holds.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.recommend.candidates import LONGEST_WAIT_MS
from pidgate.pipeline.recommend.reasons import reasons

HEADROOM = 1.5
HELD_SHARE = 0.5
"""A rogue is held when no more of its ids get in."""


def recommend_candidates(outcomes: DataFrame) -> DataFrame:
    """The result table of that name, from trials()."""
    return outcomes.where("rate_milli is not null").select(
        "user",
        (f.col("rate_milli") / 1000).alias("candidate_rate"),
        "period",
        (f.col("healthy_admitted") + f.col("rogue_admitted")).alias("admitted"),
        (f.col("healthy_refused") + f.col("rogue_refused")).alias("refused"),
        "healthy_refused",
        "rogue_admitted",
        "rogue_refused",
        "longest_wait_ms",
    )


def filter_accuracy(outcomes: DataFrame, expected_rate: float) -> DataFrame:
    """The result table of that name: `expected_rate` is the configured p, which the filters have to keep below."""
    return outcomes.where("rate_milli is null").select(
        "user",
        f.col("filter_ids").alias("ids"),
        "false_positives",
        f.coalesce(f.try_divide("false_positives", "filter_ids"), f.lit(0.0)).alias("false_positive_rate"),
        f.lit(expected_rate).alias("expected_rate"),
    )


def recommendations(
    candidates: DataFrame, need: DataFrame, headroom: float, longest_wait_ms: int
) -> DataFrame:
    """The result table of that name. `need`: candidates() of candidates.py, with what is in force, `patterns` and
    `history_refusals`. `longest_wait_ms`: 0 refuses no healthy id in the days learnt from.
    """
    rated = _both_periods(candidates).groupBy("user").agg(f.collect_list("tried").alias("tried"))
    users = need.join(rated, "user", "left").withColumns(_picked(headroom, longest_wait_ms))
    slips = ~f.coalesce(_holds("strict"), f.lit(True)) & f.col("patient").isNotNull()
    users = users.withColumn("pick", f.when(slips, f.col("patient")).otherwise(f.col("strict")))
    users = users.withColumn("action", _action()).withColumns(
        {
            "headroom": f.try_divide(f.col("pick.rate"), f.col("least.rate")),
            "censored": f.col("history_refusals") > 0,
            "recommended_rate": f.when(f.col("action") == "set", f.col("pick.rate")).when(
                f.col("action") == "keep", f.col("current_rate")
            ),
            "judged": f.when(f.col("action") == "keep", f.coalesce("now", "pick")).otherwise(f.col("pick")),
        }
    )
    return users.withColumn("reasons", reasons()).select(
        "user",
        "owner",
        "current_rate",
        "recommended_rate",
        "action",
        "headroom",
        "patterns",
        "reasons",
        f.col("judged.train.healthy_refused").alias("healthy_refused_train"),
        f.col("judged.test.healthy_refused").alias("healthy_refused_test"),
        f.col("judged.test.rogue_admitted").alias("rogue_ids_admitted_test"),
        (f.col("judged.test.rogue_admitted") + f.col("judged.test.rogue_refused")).alias("rogue_ids_test"),
        f.col("naive").cast("double").alias("naive_rate"),
        f.col("plain.test.rogue_admitted").alias("naive_rogue_ids_admitted_test"),
        f.col("plain.test.healthy_refused").alias("naive_healthy_refused_test"),
        "censored",
        "mode",
        f.col("healthy_peak").alias("healthy_peak_train"),
        _holds("judged").alias("holds_rogue"),
        f.col("holding.rate").alias("holding_rate"),
        f.col("holding.train.longest_wait_ms").alias("holding_longest_wait_ms"),
        "source",
    )


def _both_periods(candidates: DataFrame) -> DataFrame:
    """user, tried: a struct of rate, train and test, which sorts by its rate."""
    measured = f.struct("healthy_refused", "rogue_admitted", "rogue_refused", "longest_wait_ms")
    return (
        candidates.groupBy("user", "candidate_rate")
        .agg(
            f.first(f.when(f.col("period") == "train", measured), ignorenulls=True).alias("train"),
            f.first(f.when(f.col("period") == "test", measured), ignorenulls=True).alias("test"),
        )
        .select("user", f.struct(f.col("candidate_rate").alias("rate"), "train", "test").alias("tried"))
    )


def _picked(headroom: float, longest_wait_ms: int) -> dict[str, Column]:
    """least: refuses no healthy id; strict: the same with headroom; plain: the maximum of history; now: what is in
    force; holding: the least under which the healthy only wait, while the rogue is held; patient: that, if allowed.
    """
    safe = f.filter("tried", lambda one: one["train"]["healthy_refused"] == 0)
    least = f.array_min(safe)
    # Who has no healthy producer needs no room for more of them.
    times = f.when(f.col("healthy_peak") > 0, headroom).otherwise(1.0)
    ample = f.filter(safe, lambda one: one["rate"] >= times * least["rate"])
    restarts = f.filter(ample, lambda one: one["rate"] >= f.col("alive"))
    holds_too = f.filter(restarts, lambda one: (f.col("rogue_ids") == 0) | _is_held(one))
    waits_ms = longest_wait_ms or LONGEST_WAIT_MS
    waiting = f.filter("tried", lambda one: (one["train"]["longest_wait_ms"] <= waits_ms) & _is_held(one))
    holding = f.array_min(waiting)
    return {
        "least": least,
        "strict": f.coalesce(f.array_min(holds_too), f.array_min(ample), f.array_max(safe)),
        "holding": f.when(f.col("rogue_ids") > 0, holding),
        "patient": f.when(f.lit(longest_wait_ms > 0), holding),
        "plain": _of_rate("naive"),
        "now": _of_rate("current_rate"),
    }


def _of_rate(column: str) -> Column:
    same = f.filter("tried", lambda one: one["rate"] == f.greatest(f.col(column), f.lit(0.001)))
    return f.get(same, f.lit(0))


def _is_held(one: Column) -> Column:
    came = one["train"]["rogue_admitted"] + one["train"]["rogue_refused"]
    return one["train"]["rogue_admitted"] <= HELD_SHARE * came


def _holds(name: str) -> Column:
    return f.when(f.col("rogue_ids") > 0, _is_held(f.col(name)))


def _action() -> Column:
    """Nothing is touched without a reason."""
    is_ample = (f.col("current_rate") >= f.col("alive")) | (f.col("current_rate") >= f.col("pick.rate"))
    is_fine = (f.col("now.train.healthy_refused") == 0) & f.coalesce(_holds("now"), f.lit(True)) & is_ample
    better = ~f.coalesce(_holds("pick"), f.lit(True)) & (f.col("now.train.healthy_refused") == 0)
    return (
        f.when(f.col("exempt") | (f.col("train_ids") == 0), "none")
        .when(f.col("current_rate") == 0, "keep")
        .when(f.coalesce(is_fine, f.lit(False)), "keep")
        # A rogue that no safe rate holds is no reason to change a rate that is safe.
        .when(f.coalesce(better, f.lit(False)) & (f.col("current_rate") <= f.col("pick.rate")), "keep")
        .when(f.col("current_rate") == f.col("pick.rate"), "keep")
        .otherwise("set")
    )
