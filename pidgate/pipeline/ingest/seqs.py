"""Observed event numbers of each incarnation: duplicates and gaps.

Gateways number their events consecutively, so the state of an incarnation is its runs of observed numbers
(columns.INTERVALS): a single run if nothing was lost. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pidgate.pipeline.ingest.columns import GAPS, INTERVALS, LOSSES
from pidgate.pipeline.kernels import Kernel

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
MOST_INTERVALS: Final = 500_000
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


def seen(known: pa.Table, arrived: pa.Table, batch: int = 0) -> tuple[pa.Table, Flags]:
    """Return the intervals with the numbers of a batch, and for each record whether it is a duplicate.

    A record (columns.ARRIVALS, and `seen_ms`) is a duplicate if its number was in an earlier batch, or is repeated in
    this one. Unreadable records count if their number is readable.
    """
    with Kernel({"known": known, "arrived": with_places(arrived)}, {"batch": batch}) as kernel:
        kernel.run("ingest/seqs")
        twice = np.zeros(arrived.num_rows, bool)
        twice[kernel.table("repeated")["place"].to_numpy()] = True
        return kernel.table("intervals").cast(INTERVALS), twice


def with_places(arrived: pa.Table) -> pa.Table:
    """Add the number of each row, for kernels."""
    return arrived.append_column("place", pa.array(np.arange(arrived.num_rows)))


def settled(
    intervals: pa.Table, before: pa.Table, losses: Sequence[Loss], noticed_before_ms: int
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the tables gaps/ and losses/, and the intervals to remember. `before`: the previous gaps."""
    lost = pa.Table.from_pylist([asdict(loss) | {"missing": loss.missing} for loss in losses], LOSSES)
    tables = {"intervals": intervals, "gaps_before": before, "losses": lost}
    limits = {"noticed_before_ms": noticed_before_ms, "most_intervals": MOST_INTERVALS}
    with Kernel(tables, limits) as kernel:
        kernel.run("ingest/gaps")
        return kernel.table("gaps").cast(GAPS), lost, kernel.table("remembered")
