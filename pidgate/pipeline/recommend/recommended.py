"""The result tables of `recommend`. Each user's rate is chosen in plain Python (chosen.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from pidgate.pipeline.recommend.chosen import choose
from pidgate.pipeline.recommend.evidence import Asked, Evidence
from pidgate.pipeline.recommend.reasons import reasons, remedies

Row = dict[str, Any]


def recommend_candidates(outcomes: DataFrame) -> DataFrame:
    """Return the result table of that name, from trials()."""
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
    """Return the result table of that name. `expected_rate` is the configured p, the limit of the filters."""
    return outcomes.where("rate_milli is null").select(
        "user",
        f.col("filter_ids").alias("ids"),
        "false_positives",
        f.coalesce(f.try_divide("false_positives", "filter_ids"), f.lit(0.0)).alias("false_positive_rate"),
        f.lit(expected_rate).alias("expected_rate"),
    )


def recommendations(candidates: DataFrame, need: DataFrame, asked: Asked) -> DataFrame:
    """Return the result table of that name, from recommend_candidates() and candidates().

    `need` also has the quotas in force and the user's history (evidence.Evidence).
    """
    measured = f.struct(*(name for name in candidates.columns if name != "user"))
    of_user = candidates.groupBy("user").agg(f.collect_list(measured).alias("outcomes"))
    return need.join(of_user, "user", "left").mapInArrow(_rows(asked), RESULT)


def _rows(asked: Asked) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = map(partial(recommended, asked=asked), map(Evidence.of, batch.to_pylist()))
            yield pa.RecordBatch.from_pylist(list(rows), schema=_ARROW)

    return run


def recommended(user: Evidence, asked: Asked) -> Row:
    """Return the row of a user."""
    choice = choose(user, asked)
    fit, test = choice.fit, choice.test(user)
    whole = choice.followed(user).whole
    # For the same days as `test`, so that both are comparable.
    plain = user.at(max(user.train.naive, 1)) if test else None
    holding = fit.holding if fit and user.whole.rogue_ids else None
    return {
        "user": user.user,
        "owner": user.owner,
        "current_rate": user.current_rate,
        "recommended_rate": choice.rate,
        "action": choice.action.value,
        "headroom": fit.pick.rate / fit.least.rate if fit else None,
        "patterns": list(user.patterns),
        "reasons": reasons(user, choice, asked),
        "remedies": remedies(user, choice, asked),
        "judged_rate": choice.judged.pick.rate if choice.judged else None,
        "healthy_refused_train": choice.judged.pick.train.healthy_refused if choice.judged else None,
        "healthy_refused_test": test.healthy_refused if test else None,
        "rogue_ids_admitted_test": test.rogue_admitted if test else None,
        "rogue_ids_test": test.rogue_ids if test else None,
        "healthy_refused": whole.healthy_refused,
        "rogue_ids_admitted": whole.rogue_admitted,
        "rogue_ids": user.whole.rogue_ids,
        "naive_rate": float(user.train.naive),
        "naive_rogue_ids_admitted_test": plain.test.rogue_admitted if plain else None,
        "naive_healthy_refused_test": plain.test.healthy_refused if plain else None,
        "censored": user.healthy_refusals > 0,
        "mode": user.mode,
        "healthy_peak": user.whole.healthy_peak,
        "holds_rogue": whole.holds,
        "holding_rate": holding.rate if holding else None,
        "holding_longest_wait_ms": holding.whole.longest_wait_ms if holding else None,
        "source": user.source,
    }


LATE_ROGUE: Final = "rogue_ids > 0 and rogue_ids_test is null"
"""Condition on a recommendation: the rogue arrived only in the judged days, so no days judge its rate."""

_TEXTS = pa.list_(pa.string())
_ARROW = pa.schema(
    [
        ("user", pa.string()),
        ("owner", pa.string()),
        ("current_rate", pa.float64()),
        ("recommended_rate", pa.float64()),
        ("action", pa.string()),
        ("headroom", pa.float64()),
        ("patterns", _TEXTS),
        ("reasons", _TEXTS),
        ("remedies", _TEXTS),
        ("judged_rate", pa.float64()),
        ("healthy_refused_train", pa.int64()),
        ("healthy_refused_test", pa.int64()),
        ("rogue_ids_admitted_test", pa.int64()),
        ("rogue_ids_test", pa.int64()),
        ("healthy_refused", pa.int64()),
        ("rogue_ids_admitted", pa.int64()),
        ("rogue_ids", pa.int64()),
        ("naive_rate", pa.float64()),
        ("naive_rogue_ids_admitted_test", pa.int64()),
        ("naive_healthy_refused_test", pa.int64()),
        ("censored", pa.bool_()),
        ("mode", pa.string()),
        ("healthy_peak", pa.int64()),
        ("holds_rogue", pa.bool_()),
        ("holding_rate", pa.float64()),
        ("holding_longest_wait_ms", pa.int64()),
        ("source", pa.string()),
    ]
)
RESULT = from_arrow_schema(_ARROW)
