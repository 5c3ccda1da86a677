"""How long refused ids waited, and how many gave up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ACCURACY = 10_000
"""Of percentiles over many values: the rank is right to one in so many."""


def waiting(outcomes: DataFrame) -> DataFrame:
    """user, waited_ms_p50, waited_ms_p95 (of the ids admitted after all), gave_up. From refusal_outcome events."""
    waited = f.when(f.col("outcome") == "admitted", f.col("waited_ms"))
    quantiles = f.percentile_approx(waited, [0.5, 0.95], ACCURACY)
    summed = outcomes.groupBy("user").agg(
        quantiles.alias("quantiles"), f.count_if(f.col("outcome") == "gave_up").alias("gave_up")
    )
    return summed.select(
        "user",
        f.get("quantiles", f.lit(0)).alias("waited_ms_p50"),
        f.get("quantiles", f.lit(1)).alias("waited_ms_p95"),
        "gave_up",
    )
