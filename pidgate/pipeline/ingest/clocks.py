"""Clocks of gateways against the broker's.

A gateway's clock is behind by the tenth percentile of (append - wall) of an incarnation in an hour. Delay only
adds to the difference, and a backlog after an outage looks like a slow clock. So the least one of the last hours
counts. Only append times by the broker's clock are used (LogAppendTime). Without them the clock is not known: a row
per incarnation without hour and offset says so. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from pidgate.pipeline.ingest.columns import CLOCKS
from pidgate.pipeline.ingest.reading import LAST_MS
from pidgate.pipeline.ingest.seqs import Numbers, with_places
from pidgate.pipeline.kernels import Kernel
from pidgate.pipeline.tables import rows_of
from pidgate.units import counted, listed, moment

HOUR_MS: Final = 3_600_000
MOST: Final = 100_000
"""Rows with an offset, and rows without one; the last ones are kept."""


def measured(known: pa.Table, arrived: pa.Table) -> tuple[pa.Table, Numbers]:
    """Return columns.CLOCKS with a batch (columns.ARRIVALS), and the offset to add to each arrival's times.

    applied_ms: this offset for the events of an hour; 0 for clocks that are right to the minute. Rows with 0 are
    dropped after some hours.
    """
    with Kernel({"known": known, "arrived": with_places(arrived)}, {"most_clocks": MOST}) as kernel:
        kernel.run("ingest/clocks")
        shifts = kernel.table("shifts")
        shift_ms = np.zeros(arrived.num_rows, np.int64)
        shift_ms[shifts["place"].to_numpy()] = shifts["applied_ms"].to_numpy()
        return kernel.table("clocks").cast(CLOCKS), shift_ms


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
            gateways = {one.gateway_id for one in self.wrong}
            yield (
                f"{counted(len(gateways), 'gateway')} had a wrong clock",
                f"Against the brokers' clocks: {told}. The times of these events were corrected (clocks/).",
            )
        if self.unknown:
            yield (
                f"The clock of {counted(len(self.unknown), 'gateway')} is not known",
                f"Events of {listed(self.unknown)} have no append time by a broker's clock "
                "(message.timestamp.type=LogAppendTime). Their times are the gateway's own.",
            )


def doubts(found: pa.Table | ds.Dataset) -> Doubts:
    """Return the doubts about these rows of clocks/."""
    wrong = rows_of(
        found,
        """
        with sides as (
            select
                gateway_id, arg_max(applied_ms, abs(applied_ms)) as offset_ms, count(distinct hour_ms) as hours,
                min(hour_ms) as first_hour_ms, max(hour_ms) as last_hour_ms
            from found where applied_ms <> 0 group by gateway_id, applied_ms > 0
        )
        from sides order by abs(offset_ms) desc, gateway_id, offset_ms
        """,
    )
    unknown = rows_of(found, "select distinct gateway_id from found where offset_ms is null order by all")
    return Doubts(tuple(WrongClock(**row) for row in wrong), tuple(row["gateway_id"] for row in unknown))
