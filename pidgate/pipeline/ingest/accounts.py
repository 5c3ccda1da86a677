"""gaps/ and losses/: missing events, rewritten completely each time so that a late arrival closes its gap.

Also drops incarnations silent for long; their gaps stay in the table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pidgate.pipeline import arrow_tables
from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest import seqs
from pidgate.pipeline.ingest.batches import Rules, numbers_seen
from pidgate.pipeline.ingest.columns import LOSSES, Cause
from pidgate.pipeline.ingest.commits import CommitLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sums of the tables gaps/ and losses/."""

    gaps: int
    missing: int
    missing_by_retention: int
    lost_offsets: int


def settle(files: Files, log: CommitLog, rules: Rules, now_ms: int) -> Account:
    """Replace both tables. Record times decide on silence, the clock on the age of gaps."""
    position = log.position
    seen = numbers_seen(files, position)
    staging, state = log.staging(), log.new_state()
    before = arrow_tables.read(files, files.data_files("gaps"), seqs.OF_GAPS)
    gaps = seqs.with_final(seqs.gaps(seen, now_ms - rules.gap_after_ms, position.losses), before, seen)
    losses = [asdict(loss) | {"missing": loss.missing} for loss in position.losses]
    tables = {"gaps": gaps, "losses": pa.Table.from_pylist(losses, to_arrow_schema(LOSSES))}
    staged = {f"{staging}/{name}/settled.parquet": table for name, table in tables.items()}
    kept = seqs.remembered(seen, position.topic_ms - rules.forget_after_ms)
    for path, table in {**staged, f"{state}/intervals.parquet": kept}.items():
        arrow_tables.write(files, path, table)
    log.commit(
        replace(position, state=state),
        moves=log.moves(staged, staging, "settled"),
        removes=[path for name in tables for path in files.data_files(name)],
    )
    missing = [(row["missing"], row["cause"]) for row in gaps.to_pylist()]
    return Account(
        gaps=len(missing),
        missing=sum(count for count, _ in missing),
        missing_by_retention=sum(count for count, cause in missing if cause == Cause.RETENTION),
        lost_offsets=sum(loss.missing for loss in position.losses),
    )
