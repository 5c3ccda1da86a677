"""Arrivals: when each user brought a producer id that was new, whatever became of it.

The one definition of "new id" for every job. It reads decisions and knows nothing of quotas: whether an id should
have been let in is the replay's business.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

REMEMBER_MS = 24 * 3_600_000
"""The gateway's default for `remember`, and the brokers' default for producer.id.expiration.ms."""

KNOWN = ("refresh", "inherited")
"""Reasons that say: the user had this id before, or it came out of one that he had."""

CHARGING = ("first_seen", "queue", "observe")
"""Reasons of an admission that took a token, where there is a bucket."""

COLUMNS = (
    "user",
    "client_id",
    "address",
    "producer_id",
    "at_ms",
    "first_admitted_ms",
    "refusals",
    "transactional",
    "transactional_id_hash",
    "gateway_id",
    "incarnation",
    "seq",
    "connection_id",
    "topic",
    "software_name",
    "charged",
)


def arrivals(decisions: DataFrame, remember_ms: int = REMEMBER_MS) -> DataFrame:
    """Return one row per (user, producer id) and stay: decisions that lie no further apart than `remember_ms`.

    at_ms, and all that describes the client, is of the stay's first decision. first_admitted_ms: null when the id
    was never let in ("refused id"); else it is a "new id" of that moment. `refusals` counts those that were written.
    charged: whether a gateway took a token for it. Several gateways that each met the id, before or after they
    followed each other, are one stay. A stay that begins as known (KNOWN) is no arrival: the id is older than the
    history. Ids below 0 (InitProducerId that was judged before there was an id) are none either.

    Ordered by wall clocks, since several gateways have no other order; a clock would have to be wrong by hours to
    make a difference.
    """
    # By id and not by user: one user may hold nearly all rows, no id does. Numbers before text: they are sorted faster.
    by_id = Window.partitionBy("producer_id", "user")
    in_time = by_id.orderBy("wall_time_ms", "gateway_id", "incarnation", "seq")
    pause_ms = f.col("wall_time_ms") - f.lag("wall_time_ms").over(in_time)
    up_to_here = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stays = (
        decisions.where("producer_id >= 0")
        .withColumn("begins", f.coalesce(pause_ms > remember_ms, f.lit(True)))
        .withColumn("stay", f.count_if("begins").over(up_to_here))
    )
    stay = Window.partitionBy("producer_id", "user", "stay")
    admitted = f.col("decision") == "admit"
    charged = admitted & f.col("reason").isin(*CHARGING) & f.col("tokens_after").isNotNull()
    of_stay = {
        "first_admitted_ms": f.min(f.when(admitted, f.col("wall_time_ms"))).over(stay),
        "refusals": f.count_if(~admitted).over(stay),
        "charged": f.bool_or(charged).over(stay),
    }
    first = stays.withColumns(of_stay).where(f.col("begins") & ~f.col("reason").isin(*KNOWN))
    return first.withColumnRenamed("wall_time_ms", "at_ms").select(*COLUMNS)
