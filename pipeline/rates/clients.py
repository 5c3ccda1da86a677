"""The same by client id, for finding the one that does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pidgate.pipeline.rates.times import HOUR_MS, floored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rates_clients(hours: DataFrame, arriving: DataFrame) -> DataFrame:
    """user, client_id, ids, new_ids, peak_new_ids_per_hour, requests, refusals. From id_hours and arriving.

    An id that several client ids used counts with each of them; a new id with the one that brought it.
    """
    used = (
        hours.groupBy("user", "client_id", "producer_id")
        .agg(f.sum("requests").alias("requests"))
        .groupBy("user", "client_id")
        .agg(f.count("*").alias("ids"), f.sum("requests").alias("requests"))
    )
    came = (
        arriving.groupBy("user", "client_id", floored("minute_ms", HOUR_MS))
        .agg(f.sum("new_ids").alias("new_ids"), f.sum("refusals").alias("refusals"))
        .groupBy("user", "client_id")
        .agg(
            f.sum("new_ids").alias("new_ids"),
            f.max("new_ids").alias("peak_new_ids_per_hour"),
            f.sum("refusals").alias("refusals"),
        )
    )
    counts = ("ids", "new_ids", "peak_new_ids_per_hour", "requests", "refusals")
    rows = used.unionByName(came, allowMissingColumns=True)
    # Each of the two has at most one row per client: max takes the one that knows.
    return rows.groupBy("user", "client_id").agg(
        *(f.coalesce(f.max(name), f.lit(0).cast("bigint")).alias(name) for name in counts)
    )
