"""Arrivals: the times at which users brought new producer ids, admitted or not.

The single definition of "new id" for all jobs. It reads decisions and knows no quotas; the replay decides
admission.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

REMEMBER_MS = 24 * 3_600_000
"""The gateway's default for `remember`, and the brokers' default for producer.id.expiration.ms."""

KNOWN = ("refresh", "inherited")
"""Reasons for a known id: the user had it before, or it continues one of the user's ids."""

CHARGING = ("first_seen", "queue", "observe")
"""Admission reasons that consume a token if there is a bucket."""

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
    """Return one row per (user, producer id) and stay: decisions at most `remember_ms` apart.

    at_ms and the client columns are those of the stay's first decision. first_admitted_ms: null if the id was
    never admitted ("refused id"), otherwise it is a "new id" of that time. `refusals` counts the recorded
    ones. charged: whether a gateway consumed a token for it.

    Decisions of several gateways about one id form one stay. A stay that begins as known (KNOWN) is not an
    arrival, because the id is older than the history. Ids below 0 (InitProducerId judged before an id
    existed) are excluded.

    Ordered by wall clocks, the only common order of several gateways; only errors of hours matter.
    """
    # Partitioned by id rather than user, since one user may have nearly all rows. Numbers first: they sort
    # faster than text.
    by_id = Window.partitionBy("producer_id", "user")
    in_time = by_id.orderBy("wall_time_ms", "gateway_id", "incarnation", "seq")
    pause_ms = f.col("wall_time_ms") - f.lag("wall_time_ms").over(in_time)
    up_to_here = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stays = (
        decisions.where("producer_id >= 0 and decision != 'hold'")
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
