"""gaps/ and losses/: missing events, rewritten completely each time so that a late arrival closes its gap.

Also drops the numbers of incarnations that wrote nothing for long; their gaps stay in the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from pidgate.pipeline import arrow_tables
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest import clocks, seqs
from pidgate.pipeline.ingest.batches import NUMBERS, Rules, numbers_seen
from pidgate.pipeline.ingest.clocks import Doubts
from pidgate.pipeline.ingest.columns import CLOCKS, GAPS, Cause
from pidgate.pipeline.ingest.commits import CommitLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sums of the tables gaps/ and losses/, and the doubts in clocks/."""

    gaps: int
    missing: int
    missing_by_retention: int
    lost_offsets: int
    clocks: Doubts


def settle(files: Files, log: CommitLog, rules: Rules, now_ms: int) -> Account:
    """Replace both tables."""
    position = log.position
    before = arrow_tables.read(files, files.data_files("gaps"), GAPS)
    gaps, losses, intervals = seqs.settled(
        numbers_seen(files), before, position.losses, now_ms - rules.gap_after_ms
    )
    staging = log.staging()
    tables = {"gaps": gaps, "losses": losses, NUMBERS: intervals}
    log.commit(position, staging, log.replacing(staging, tables))
    missing = [(row["missing"], row["cause"]) for row in gaps.to_pylist()]
    return Account(
        gaps=len(missing),
        missing=sum(count for count, _ in missing),
        missing_by_retention=sum(count for count, cause in missing if cause == Cause.RETENTION),
        lost_offsets=sum(loss.missing for loss in position.losses),
        clocks=clocks.doubts(arrow_tables.read(files, files.data_files("clocks"), CLOCKS)),
    )
