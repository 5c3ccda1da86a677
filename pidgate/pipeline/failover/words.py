"""Two tables and a few sentences for the operator. Prints nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
from pyarrow import csv
from rich.table import Table

from pidgate.pipeline.failover.cascade import MEBIBYTE, Heap, Verdict
from pidgate.pipeline.failover.study import NO_QUOTA, Answer, solved
from pidgate.units import moment


def kip_rows() -> pa.Table:
    """Return KIP-936's example (Rejected Alternatives 4) under each rule by which a dead broker's ids spread.

    Step 0 is the first death, each later one the effect of the death before. `load`: ids, of a dead broker those at
    its death.
    """
    return csv.read_csv(Path(__file__).with_name("kip.csv"))


def kip_table() -> Table:
    """Return KIP-936's example: deaths under each rule, and the final load of the living."""
    table = Table(title="KIP-936's example: six brokers, each dead above 200 ids; broker 1 dies")
    for column in ("spread", "died holding", "the others hold"):
        table.add_column(column)
    for rule, rows in groupby(kip_rows().to_pylist(), itemgetter("rule")):
        steps = list(rows)
        deaths: dict[int, float] = {}
        for row in steps:
            if row["dead"]:
                deaths.setdefault(row["broker"], row["load"])
        living = {
            row["broker"]: row["load"]
            for row in steps
            if row["step"] == steps[-1]["step"] and not row["dead"]
        }
        died, hold = (
            ", ".join(f"{broker}: {load:g}" for broker, load in some.items()) for some in (deaths, living)
        )
        table.add_row(rule, died, hold or "no broker is left")
    table.caption = "Under any rule: 660 ids fit 4 brokers (800), not 3 (600); death 3 is collapse."
    return table


def kafka_table(answer: Answer, heap: Heap) -> Table:
    """Return one row per quota and scenario."""
    table = Table(title=f"Real brokers, {heap.limit_bytes / MEBIBYTE:.0f} MiB of heap usable on each")
    for column in ("quota", "scenario", "fullest heap MiB", "when (UTC)", "dead brokers, first death"):
        table.add_column(column)
    for found in answer.verdicts:
        table.add_row(
            found.quota,
            found.scenario,
            f"{found.peak_heap_bytes / MEBIBYTE:.0f} (broker {found.peak_broker})",
            moment(found.peak_hour_ms, UTC),
            _deaths(found),
        )
    return table


def sentences(answer: Answer, heap: Heap) -> Iterator[str]:
    """Yield the outcome and the advice as sentences."""
    for found in answer.of(NO_QUOTA):
        yield f"Without quotas, {_fate(found)}."
    limit = f"{heap.limit_bytes / MEBIBYTE:.0f} MiB"
    if not answer.is_needed:
        yield f"This past fits into {limit} without quotas; a broker's loss does not change that."
    elif answer.rate is None:
        yield (
            f"No quota keeps {limit}: even with 1 new id per window for each user a broker dies, of ids that are used "
            "for more than an hour, or of too many users. It takes a larger heap, fewer partitions per id, or a "
            "shorter producer.id.expiration.ms."
        )
    else:
        peak = max(one.peak_heap_bytes for one in answer.of(solved(answer.rate)))
        yield (
            f"A quota of {answer.rate} new ids per window for every user keeps {limit}: no broker dies, with a broker "
            f"lost or not; the fullest heap is at most {peak / MEBIBYTE:.0f} MiB. One rate for all is the coarsest "
            "answer; `recommend` has one for each user."
        )


def _fate(found: Verdict) -> str:
    scenario = "as it was" if found.scenario == "as it was" else f"with {found.scenario}"
    if found.holds:
        return f"{scenario}, no broker dies; the fullest heap is {found.peak_heap_bytes / MEBIBYTE:.0f} MiB"
    hour_ms, broker = found.deaths[0]
    others = len({b for _, b in found.deaths} - {broker})
    rest = f" and {others} more after it" if others else ""
    return f"{scenario}, broker {broker} dies in the hour of {moment(hour_ms, UTC)}{rest}"


def _deaths(found: Verdict) -> str:
    if found.holds:
        return "none"
    brokers = dict.fromkeys(broker for _, broker in found.deaths)
    return f"{', '.join(map(str, brokers))}; {moment(found.deaths[0][0], UTC)}"
