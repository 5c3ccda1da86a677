"""Clocks of gateways against the broker's.

A gateway's clock is behind by the tenth percentile of (append - wall) of an incarnation in an hour. Delay only
adds to the difference, and a backlog after an outage looks like a slow clock. So the least one of the last hours
counts. Only append times by the broker's clock are used (LogAppendTime). Without them the clock is not known: a row
per incarnation without hour and offset says so. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pidgate.pipeline.ingest.columns import CLOCKS
from pidgate.pipeline.ingest.reading import LAST_MS
from pidgate.pipeline.ingest.seqs import Numbers
from pidgate.units import counted, listed, moment

HOUR_MS = 3_600_000
APPLIED_FROM_MS = 60_000
_HOURS = 6
_MOST = 100_000
"""Rows; the last ones are kept."""
_KEY = ["gateway_id", "incarnation", "hour_ms"]


def measured(known: pa.Table, arrived: pa.Table) -> pa.Table:
    """Return columns.CLOCKS with the events of a batch (columns.ARRIVALS).

    applied_ms: the offset added to times of the hour's events; 0 within a minute. Rows without one are
    dropped after some hours.
    """
    events = _events(arrived)
    events["offset_ms"] = events["append_time_ms"] - events["wall_time_ms"]
    new = events.groupby(_KEY, observed=True)["offset_ms"].quantile(0.1, interpolation="lower").to_frame()
    new["events"] = events.groupby(_KEY, observed=True).size()
    has_offset = known["offset_ms"].is_valid()
    before = known.filter(has_offset).select([*_KEY, "offset_ms", "events"]).to_pandas()
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
    with_offset = pa.Table.from_pandas(kept[CLOCKS.names], CLOCKS, preserve_index=False)
    return pa.concat_tables([with_offset, _unknown(known.filter(pc.invert(has_offset)), arrived)])


def _unknown(known: pa.Table, arrived: pa.Table) -> pa.Table:
    """Return the rows of incarnations with events that have no append time by a broker."""
    undated = pc.and_(arrived["reason"].is_null(), arrived["append_time_ms"].is_null())
    names = (
        arrived.select(_KEY[:2]).filter(undated).cast(pa.schema([CLOCKS.field(name) for name in _KEY[:2]]))
    )
    new = names.append_column("events", pa.repeat(pa.scalar(1, pa.int64()), names.num_rows))
    both = pa.concat_tables([known.select(new.column_names), new])
    rows = both.group_by(_KEY[:2], use_threads=False).aggregate([("events", "sum")]).to_pylist()[-_MOST:]
    told = [{**row, "events": row["events_sum"], "applied_ms": 0} for row in rows]
    return pa.Table.from_pylist(told, CLOCKS)


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


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WrongClock:
    """A gateway's clock in the hours whose times were corrected."""

    gateway_id: str
    offset_ms: int
    """The largest one; above 0: behind."""
    hours: int
    first_hour_ms: int
    last_hour_ms: int

    def __str__(self) -> str:
        which = "behind" if self.offset_ms > 0 else "ahead"
        # A broker's clock may be anything.
        ends = (self.first_hour_ms, self.last_hour_ms + HOUR_MS)
        begin, end = (moment(min(max(ms, 0), LAST_MS), UTC) for ms in ends)
        return (
            f"{self.gateway_id} up to {abs(self.offset_ms) / 1000:,.0f} s {which} in {counted(self.hours, 'hour')} "
            f"between {begin} and {end} UTC"
        )


@dataclass(frozen=True, slots=True)
class Doubts:
    """What the rows of clocks/ say against the gateways' clocks."""

    wrong: tuple[WrongClock, ...] = ()
    """The largest offset first."""
    unknown: tuple[str, ...] = ()
    """Gateways with events that no broker's clock dated."""

    def sentences(self) -> Iterator[tuple[str, str]]:
        """Yield each doubt as a claim and its reason, for the console and the report."""
        if self.wrong:
            told = listed(list(map(str, self.wrong)))
            yield (
                f"{counted(len(self._wrong_gateways), 'gateway')} had a wrong clock",
                f"Against the brokers' clocks: {told}. The times of these events were corrected (clocks/).",
            )
        if self.unknown:
            yield (
                f"The clock of {counted(len(self.unknown), 'gateway')} is not known",
                f"Events of {listed(self.unknown)} have no append time by a broker's clock "
                "(message.timestamp.type=LogAppendTime). Their times are the gateway's own.",
            )

    @property
    def _wrong_gateways(self) -> set[str]:
        return {one.gateway_id for one in self.wrong}


def doubts(rows: Iterable[Row]) -> Doubts:
    """Return the doubts about these rows of clocks/."""
    told = list(rows)
    corrected = sorted((row for row in told if row["applied_ms"]), key=_gateway_and_side)
    wrong = [_wrong(list(alike)) for _, alike in groupby(corrected, key=_gateway_and_side)]
    unknown = {row["gateway_id"] for row in told if row["offset_ms"] is None}
    return Doubts(tuple(sorted(wrong, key=lambda one: -abs(one.offset_ms))), tuple(sorted(unknown)))


def _gateway_and_side(row: Row) -> tuple[str, bool]:
    return row["gateway_id"], row["applied_ms"] > 0


def _wrong(rows: Sequence[Row]) -> WrongClock:
    hours = {row["hour_ms"] for row in rows}
    offset_ms = max((row["applied_ms"] for row in rows), key=abs)
    return WrongClock(rows[0]["gateway_id"], offset_ms, len(hours), min(hours), max(hours))
