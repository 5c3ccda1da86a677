"""gaps/ and losses/: events that never came, written as a whole each time, so that a late arrival closes its gap.

Also forgets incarnations that have long been silent: their gaps stay in the table as they are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame

from pidgate.pipeline.ingest import seqs
from pidgate.pipeline.ingest.batches import Rules, numbers_seen
from pidgate.pipeline.ingest.columns import GAPS, LOSSES, Cause
from pidgate.pipeline.ingest.commits import CommitLog
from pidgate.pipeline.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sums of the tables gaps/ and losses/."""

    gaps: int
    missing: int
    missing_by_retention: int
    lost_offsets: int


def settle(tables: Tables, log: CommitLog, rules: Rules, now_ms: int) -> Account:
    """Replace both tables. The records' own time says who is silent, the clock which gaps are old enough."""
    position = log.position
    seen = numbers_seen(tables, position)
    losses = [asdict(loss) | {"missing": loss.missing} for loss in position.losses]
    staging, state = log.staging(), log.new_state()

    def stage(frame: DataFrame, folder: str) -> None:
        frame.coalesce(1).write.parquet(tables.files.full(folder))

    current = seqs.gaps(seen, now_ms - rules.gap_after_ms, position.losses)
    stage(seqs.with_final(current, tables.read("gaps", schema=GAPS), seen), f"{staging}/gaps")
    stage(tables.spark.createDataFrame(losses, LOSSES), f"{staging}/losses")
    stage(seqs.remembered(seen, position.topic_ms - rules.forget_after_ms), state)
    log.commit(
        replace(position, state=state),
        moves=log.moves(staging, "settled"),
        removes=[path for name in ("gaps", "losses") for path in tables.files.data_files(name)],
    )
    return _account(tables.read("gaps", schema=GAPS), position.losses)


def _account(gaps: DataFrame, losses: tuple[seqs.Loss, ...]) -> Account:
    row = gaps.selectExpr(
        "count(*)",
        "coalesce(sum(missing), 0)",
        f"coalesce(sum(missing) filter (where cause = '{Cause.RETENTION}'), 0)",
    ).collect()[0]
    return Account(
        gaps=row[0],
        missing=row[1],
        missing_by_retention=row[2],
        lost_offsets=sum(loss.missing for loss in losses),
    )
