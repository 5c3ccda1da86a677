"""Distinct ids by HyperLogLog: sketches of a day each, which can be united over any days without the events.

Apache DataSketches, as Spark has it. With 2^12 registers the standard error of a united sketch is 1.04 / sqrt(4096)
= 1.6 %; the estimate lies within three of them (4.9 %) in 99.7 of 100 cases, and is exact or nearly so for a few
hundred ids.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.rates.times import DAY_MS, floored

LG_REGISTERS = 12


def daily_sketches(hours: DataFrame) -> DataFrame:
    """user, day_ms, ids_sketch (binary): from id_hours."""
    return hours.groupBy("user", floored("hour_ms", DAY_MS).alias("day_ms")).agg(
        f.hll_sketch_agg("producer_id", LG_REGISTERS).alias("ids_sketch")
    )


def estimated_ids(sketches: DataFrame) -> DataFrame:
    """user, ids_hll: the distinct ids of all these days together."""
    united = f.hll_sketch_estimate(f.hll_union_agg("ids_sketch"))
    return sketches.groupBy("user").agg(united.alias("ids_hll"))
