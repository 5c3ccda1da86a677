"""Observed event numbers of each incarnation: duplicates and gaps.

Gateways number their events consecutively, so the state of an incarnation is its runs of observed numbers
(columns.INTERVALS): a single run if nothing was lost. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidgate.pipeline.ingest.columns import GAPS, INTERVALS, Cause

_OF = ["gateway_id", "incarnation"]
_SETTLED_MS = 60_000
"""Gateways write `alive` every 30 s, so within a minute of the topic's start all have written."""
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
MOST_INTERVALS = 500_000
"""Some 30 MB. Without losses an incarnation has one row, so these are years of restarts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Offsets deleted from a partition before they were read; a row of losses/."""

    kafka_partition: int
    first_offset: int
    last_offset: int
    resumed_ms: int
    topic_id: str

    @property
    def missing(self) -> int:
        return self.last_offset - self.first_offset + 1


class Seen(NamedTuple):
    """Result of a batch: the intervals, and for each record whether it is a duplicate."""

    intervals: pa.Table
    twice: Flags


def seen(known: pa.Table, arrived: pa.Table, batch: int = 0) -> Seen:
    """Add record numbers (columns.ARRIVALS, and `seen_ms`) to the intervals; unreadable records with a number
    count.

    A record is a duplicate if its number was in an earlier batch, or repeats in this one: the first in the
    topic is kept, readable ones preferred.
    """
    numbered = np.logical_and.reduce([np.asarray(arrived[name].is_valid()) for name in (*_OF, "seq")])
    rows = np.flatnonzero(numbered)
    new = arrived.take(pa.array(rows))
    names = pa.concat_tables([known.select(_OF), new.select(_OF).cast(known.select(_OF).schema)])
    zeros = np.zeros(known.num_rows, np.int64)

    def both(of_known: str, of_new: str) -> Numbers:
        return np.concatenate([np.asarray(known[of_known]), np.asarray(new[of_new])])

    def of_new(name: str) -> Numbers:
        return np.concatenate([zeros, np.asarray(new[name])])

    first, last = both("first_seq", "seq"), both("last_seq", "seq")
    first_ms, last_ms = both("first_ms", "seen_ms"), both("last_ms", "seen_ms")
    heard = np.concatenate([np.asarray(known["heard"]), np.full(new.num_rows, batch)])
    is_new = np.arange(len(first)) >= known.num_rows
    dead = np.concatenate([zeros, np.asarray(new["reason"].is_valid())])
    incarnation = _codes(names)
    order = np.lexsort((of_new("kafka_offset"), of_new("kafka_partition"), dead, is_new, first, incarnation))
    incarnation, first, last, first_ms, last_ms, is_new, heard = (
        column[order] for column in (incarnation, first, last, first_ms, last_ms, is_new, heard)
    )
    reached = _highest_above(incarnation, last)
    begins = np.diff(incarnation, prepend=-1) > 0
    # Guards against the lowest 64 bit number.
    previous = np.where(first == _LOWEST, first, first - 1)
    at = np.flatnonzero(begins | (previous > reached))
    twice = np.zeros(arrived.num_rows, bool)
    twice[rows[order[is_new & ~begins & (reached >= first)] - known.num_rows]] = True
    merged = [
        first[at],
        _over(np.maximum, last, at),
        _over(np.minimum, first_ms, at),
        _over(np.maximum, last_ms, at),
        _over(np.maximum, heard, at),
    ]
    of = names.take(pa.array(order[at])).combine_chunks()
    return Seen(pa.table([*of.columns, *merged], schema=INTERVALS), twice)


def _codes(names: pa.Table) -> Numbers:
    """Return a number for each incarnation of each gateway."""
    gateway, incarnation = (column.combine_chunks().dictionary_encode() for column in names.columns)
    code = np.asarray(gateway.indices, np.int64) * len(incarnation.dictionary) + np.asarray(
        incarnation.indices
    )
    return np.unique(code, return_inverse=True)[1]


def _highest_above(group: Numbers, values: Numbers) -> Numbers:
    """Return the highest value in the previous rows of the same group; undefined in a group's first row."""
    held, rank = np.unique(values, return_inverse=True)
    # Ranks of a group are above those of earlier groups, so one running maximum is enough.
    base = group * len(held)
    reached = held[np.maximum.accumulate(base + rank) - base]
    return np.roll(reached, 1)


def _over(function: np.ufunc, values: Numbers, begins: Numbers) -> Numbers:
    """Return the function over each stretch of values; empty without stretches."""
    return function.reduceat(values, begins) if len(begins) else values[:0]


def remembered(intervals: pa.Table, most: int) -> pa.Table:
    """Drop incarnations that wrote nothing in the latest batches, if there are more than `most` rows.

    No time decides that: a single wrong clock would forget every gateway.
    """
    if intervals.num_rows <= most:
        return intervals
    order = [("heard_max", "descending"), *((name, "ascending") for name in _OF)]
    each = intervals.group_by(_OF).aggregate([("heard", "max"), ("heard", "count")]).sort_by(order)
    kept = each.filter(pc.less_equal(pc.cumulative_sum(each["heard_count"]), most))
    return intervals.join(kept.select(_OF), _OF, join_type="left semi").select(INTERVALS.names)


def gaps(intervals: pa.Table, noticed_before_ms: int, losses: Sequence[Loss] = ()) -> pa.Table:
    """Return the missing numbers before and between observed ones (columns.GAPS), if noticed early enough.

    The first number of an incarnation is 1. Numbers after the last one are unknown here. `cause` is
    `retention` if the topic deleted records (`losses`) at that time, otherwise `lost`.
    """
    found: list[dict[str, Any]] = []
    above: dict[str, Any] = {}
    for row in intervals.sort_by([(name, "ascending") for name in (*_OF, "first_seq")]).to_pylist():
        if above and _of(above) != _of(row):
            above = {}
        before_seq, before_ms = above.get("last_seq", 0), above.get("last_ms")
        missing = row["first_seq"] - before_seq - 1
        if 0 < missing <= _HIGHEST and row["first_ms"] <= noticed_before_ms:
            cause = Cause.RETENTION if _explained(before_ms, row["first_ms"], losses) else Cause.LOST
            found.append(
                {
                    **{name: row[name] for name in _OF},
                    "first_seq": before_seq + 1,
                    "last_seq": row["first_seq"] - 1,
                    "missing": missing,
                    "noticed_ms": row["first_ms"],
                    "cause": cause.value,
                }
            )
        above = row
    return pa.Table.from_pylist(found, GAPS)


def _of(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["gateway_id"], row["incarnation"]


def _explained(before_ms: int | None, first_ms: int, losses: Sequence[Loss]) -> bool:
    """Return whether offsets were lost between the two sides of the gap."""
    return any(
        (before_ms is None or before_ms <= loss.resumed_ms) and first_ms <= loss.resumed_ms + _SETTLED_MS
        for loss in losses
    )


def with_final(current: pa.Table, before: pa.Table, intervals: pa.Table) -> pa.Table:
    """Return the gaps table: current gaps, plus final gaps of dropped incarnations."""
    known = {_of(row) for row in intervals.select(_OF).to_pylist()}
    rows = before.select(_OF).to_pylist()
    return pa.concat_tables(
        [current, before.filter(pa.array([_of(row) not in known for row in rows], pa.bool_()))]
    )
