"""The result tables of `recommend`, from each user's measures, story and quota in force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.expiry import CHECK_INTERVAL_MS
from pidgate.pipeline.failover.cascade import Heap
from pidgate.pipeline.failover.placement import Bucket
from pidgate.pipeline.recommend import measured
from pidgate.pipeline.recommend.chosen import Asked, choose
from pidgate.pipeline.recommend.sentences import reasons, remedies
from pidgate.pipeline.recommend.trial import rounded_up

Row = dict[str, Any]

DEFAULT_COVERS: Final = 0.95
"""Share of today's healthy users for which the default is enough."""
_TEXTS: Final = pa.list_(pa.string())
TOTALS: Final = (
    "begin_ms bigint, split_ms bigint, end_ms bigint, history_ms bigint, history_days bigint, healthy_by string, "
    "headroom double, least_history_ms bigint, least_days bigint, least_ids bigint, heap_bytes bigint, "
    "states_that_fit double, broker_share double, default_rate double, default_users bigint, default_covers bigint, "
    "default_states bigint, recommended_states bigint, unlimited bigint, judged_healthy_ids bigint, "
    "judged_cap_refused_healthy bigint"
)
RESULT: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("user", "owner", "mode", "source", "set_by", "action", "lacks")),
        *((name, pa.float64()) for name in ("current_rate", "recommended_rate", "headroom")),
        ("lower_bound", pa.bool_()),
        *(one for one in measured.RESULT if one.name not in ("user", "tried")),
        *((name, pa.int64()) for name in ("cap_states", "mended_states", "recommended_states")),
        *((name, pa.int64()) for name in ("first_ms", "last_ms", "days", "history_ms")),
        *((name, _TEXTS) for name in ("patterns", "rogues")),
        *((name, pa.string()) for name in ("client", "top_topic")),
        ("top_broker", pa.int64()),
        ("reasons", _TEXTS),
        ("remedies", _TEXTS),
    ]
)


def candidates(measures: DataFrame) -> DataFrame:
    """Return recommend_candidates: what each rate tried would have refused."""
    tried = measures.select("user", "ids", "requests", "records", f.explode("tried").alias("tried"))
    return tried.select("user", "ids", "requests", "records", "tried.*")


def states_of(rate: float, partitions_per_id: float, bucket: Bucket, expiry_ms: int, share: float) -> int:
    """Return the most producer states that a rate allows on the fullest broker, at once."""
    ids = bucket.most_admitted(rate, expiry_ms + CHECK_INTERVAL_MS)
    return round(ids * partitions_per_id * share)


def recommended(
    asked: Asked,
    quota_of: Callable[[str], Mapping[str, Any]],
    bucket: Bucket,
    expiry_ms: int,
    totals: Mapping[str, Any],
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return the function from rows with a user's measures and story to rows of RESULT."""

    def row(user: Row) -> Row:
        user = user | {
            **quota_of(user["user"]),
            "history_ms": totals["history_ms"],
            "healthy_refusals": user["healthy_refusals"] + user["unnamed_refusals"],
            "headroom": asked.headroom,
        }
        action, rate, lack = choose(user, asked)
        follows = rate if rate is not None else user["current_rate"]

        def states(of: float | None) -> int | None:
            share = totals["broker_share"]
            return None if of is None else states_of(of, user["partitions_per_id"], bucket, expiry_ms, share)

        made = user | {
            "action": action.value,
            "recommended_rate": rate,
            "lacks": lack.value if lack else "",
            "lower_bound": user["healthy_refusals"] > 0,
            "cap_states": states(user["cap_rate"]),
            "mended_states": states(user["mended_rate"]),
            "recommended_states": states(follows),
        }
        return made | {"reasons": reasons(made, totals), "remedies": remedies(made)}

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist([row(user) for user in batch.to_pylist()], schema=RESULT)

    return run


def totals_of(advised: DataFrame, begun: Mapping[str, Any], bucket: Bucket, expiry_ms: int) -> Row:
    """Return the row of recommend_totals: `begun`, and the sums over all users."""
    healthy = advised.where("action != 'none' and rogue_ids = 0")
    users, rate, partitions = healthy.agg(
        f.count("*"),
        f.expr(f"percentile_disc({DEFAULT_COVERS}) within group (order by mended_rate)"),
        f.avg("partitions_per_id"),
    ).collect()[0]
    default = None if rate is None else rounded_up(rate)
    covered = 0 if default is None else healthy.where(f.col("mended_rate") <= default).count()
    allowed = f.coalesce(f.sum("recommended_states"), f.lit(0)).alias("recommended_states")
    unlimited = f.count_if(f.col("recommended_states").isNull()).alias("unlimited")
    sums = advised.agg(allowed, unlimited).collect()[0].asDict()
    names = ("judged_healthy_ids", "judged_cap_refused_healthy")
    of_rated = advised.where("action != 'none'").agg(
        *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in names)
    )
    sums |= of_rated.collect()[0].asDict()
    states = (
        0 if default is None else states_of(default, partitions, bucket, expiry_ms, begun["broker_share"])
    )
    told = {
        "default_rate": default,
        "default_users": users,
        "default_covers": covered,
        "default_states": states,
    }
    return {**begun, **sums, **told}


def fit(heap_bytes: int | None, usable: float) -> float | None:
    """Return the producer states that fit a broker's heap; None if the heap is not known."""
    return None if heap_bytes is None else Heap(heap_bytes, usable_share=usable).states_that_fit
