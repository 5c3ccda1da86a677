"""The replay as a Spark transform: one cluster a group, and what came out beside what was recorded.

A group is held whole by one Python worker: for recordings and incidents, not for a month of everything. recommend
replays months, user by user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from tests.support.replay.engine import Recomputed, replayed
from tests.support.replay.recorded import DECISION_COLUMNS, REPLAYED_TYPES

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

PROCESS = ("gateway_id", "incarnation")
NAME = (*PROCESS, "seq")
COMPARED = (
    "decision",
    "reason",
    "would_refuse",
    "tokens_before",
    "tokens_after",
    "throttle_time_ms",
    "queue_position",
)
"""What is the same where a replay is exact. waited_ms is not in it: see docs/pipeline/recommend.md."""

RECOMPUTED = (
    "cluster string, gateway_id string, incarnation string, seq bigint, decision string, reason string, "
    "would_refuse boolean, tokens_before bigint, tokens_after bigint, throttle_time_ms bigint, "
    "queue_position bigint, waited_ms bigint, waiting bigint"
)


def recomputed(tables: Mapping[str, DataFrame]) -> DataFrame:
    """Every arrival in these tables of events (by type), decided once more. Columns: RECOMPUTED."""
    packed = reduce(
        lambda one, other: one.unionByName(other),
        map(_packed, REPLAYED_TYPES, map(tables.get, REPLAYED_TYPES)),
    )
    # Until the brokers have told the cluster's id, events carry the name from the file, or none.
    clusters = packed.groupBy(*PROCESS).agg(f.max_by("cluster", "seq").alias("cluster"))
    whole = packed.drop("cluster").join(clusters, list(PROCESS))
    return whole.select("cluster", "event").groupBy("cluster").applyInPandas(_replayed, RECOMPUTED)


def differences(decisions: DataFrame, replayed_decisions: DataFrame) -> DataFrame:
    """NAME and `differs`: the columns in which an arrival was decided otherwise than recorded. Empty when none was."""
    recorded = decisions.select(*NAME, *(f.col(name).alias(f"was_{name}") for name in COMPARED))
    both = recorded.join(replayed_decisions, list(NAME), "full")
    differs = f.filter(
        f.array(*(f.when(~f.col(f"was_{name}").eqNullSafe(f.col(name)), f.lit(name)) for name in COMPARED)),
        lambda name: name.isNotNull(),
    )
    return both.withColumn("differs", differs).where(f.size("differs") > 0).select(*NAME, "differs")


def _packed(event_type: str, events: DataFrame | None) -> DataFrame:
    """One line of JSON for each event, without what was decided."""
    if events is None:
        raise KeyError(f"a replay needs the table of {event_type} events")
    kept = [f.col(name) for name in events.columns if name not in (*DECISION_COLUMNS, "day", "hour")]
    event = f.to_json(f.struct(f.lit(event_type).alias("type"), *kept), {"ignoreNullFields": "false"})
    return events.select("cluster", *NAME, event.alias("event"))


def _replayed(group: pd.DataFrame) -> pd.DataFrame:
    import pandas

    events: list[dict[str, Any]] = [json.loads(event) for event in group["event"]]
    found = [asdict(one) for one in replayed(events)]
    frame = pandas.DataFrame(found, columns=[field.name for field in fields(Recomputed)], dtype=object)
    frame.insert(0, "cluster", group["cluster"].iloc[0])
    return frame
