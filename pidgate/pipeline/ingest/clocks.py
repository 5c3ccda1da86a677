"""Clocks of gateways against the broker's.

A gateway's clock is behind by the tenth percentile of (append - wall) of an incarnation in an hour. Delay only
adds to the difference, and a backlog after an outage looks like a slow clock. So the least one of the last hours
counts. Only append times by the broker's clock are used (LogAppendTime): without them the clock is not known, and
there is no row. Pure.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pidgate.pipeline.ingest.columns import CLOCKS
from pidgate.pipeline.ingest.seqs import Numbers

HOUR_MS = 3_600_000
APPLIED_FROM_MS = 60_000
_HOURS = 6
_MOST = 100_000
"""Rows; the last ones are kept."""
_KEY = ["gateway_id", "incarnation", "hour_ms"]
OF_CLOCKS = to_arrow_schema(CLOCKS)


def measured(known: pa.Table, arrived: pa.Table) -> pa.Table:
    """Return columns.CLOCKS with the events of a batch (columns.ARRIVALS).

    applied_ms: the offset added to times of the hour's events; 0 within a minute. Rows without one are
    dropped after some hours.
    """
    events = _events(arrived)
    events["offset_ms"] = events["append_time_ms"] - events["wall_time_ms"]
    new = events.groupby(_KEY, observed=True)["offset_ms"].quantile(0.1, interpolation="lower").to_frame()
    new["events"] = events.groupby(_KEY, observed=True).size()
    before = known.select([*_KEY, "offset_ms", "events"]).to_pandas()
    both = pd.concat([before, new.reset_index().astype({name: "str" for name in _KEY[:2]})])
    clocks = both.groupby(_KEY, as_index=False).agg({"offset_ms": "min", "events": "sum"})
    least, offsets = clocks["offset_ms"], clocks.set_index(_KEY)["offset_ms"]
    for hours in range(1, _HOURS):
        earlier = clocks[_KEY].assign(hour_ms=clocks["hour_ms"] - hours * HOUR_MS)
        least = np.fmin(least, offsets.reindex(pd.MultiIndex.from_frame(earlier)).to_numpy())
    clocks["applied_ms"] = least.where(least.abs() > APPLIED_FROM_MS, 0).astype("int64")
    newest = clocks.groupby(_KEY[:2])["hour_ms"].transform("max")
    kept = clocks[(clocks["applied_ms"] != 0) | (clocks["hour_ms"] > newest - _HOURS * HOUR_MS)]
    kept = kept.sort_values(["hour_ms", *_KEY[:2]]).tail(_MOST)
    return pa.Table.from_pandas(kept[OF_CLOCKS.names], OF_CLOCKS, preserve_index=False)


def shifts(clocks: pa.Table, arrived: pa.Table) -> Numbers:
    """Return the offset to add to the times of each arrival; 0 for most."""
    found = np.zeros(arrived.num_rows, np.int64)
    applied = clocks.filter(pc.not_equal(clocks["applied_ms"], 0)).to_pandas()
    if len(applied):
        events = _events(arrived).astype({name: "str" for name in _KEY[:2]})
        joined = events.reset_index().merge(applied, on=_KEY)
        found[joined["index"]] = joined["applied_ms"]
    return found


def _events(arrived: pa.Table) -> pd.DataFrame:
    """Return the events with a known append time, indexed by row, with their hour."""
    names = ["gateway_id", "incarnation", "append_time_ms", "wall_time_ms"]
    usable = pc.and_(arrived["reason"].is_null(), arrived["append_time_ms"].is_valid())
    events: pd.DataFrame = arrived.select(names).filter(usable).to_pandas()
    events.index = pd.Index(np.flatnonzero(np.asarray(usable)))
    events["hour_ms"] = events["append_time_ms"] // HOUR_MS * HOUR_MS
    return events
