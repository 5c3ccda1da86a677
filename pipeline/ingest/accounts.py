"""gaps/ and losses/: events that never came, written as a whole each time, so that a late arrival closes its gap.

Also forgets incarnations that have long been silent: their gaps stay in the table as they are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from pidgate.pipeline.files import Files
from pidgate.pipeline.ingest import seqs
from pidgate.pipeline.ingest.columns import GAPS, INTERVALS, LOSSES, Cause
from pidgate.pipeline.ingest.commits import CommitLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Time that numbers may take to come, and for which an incarnation is known after its last event."""

    gap_after_ms: int = 15 * 60_000
    forget_after_ms: int = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sums of the tables gaps/ and losses/."""

    gaps: int
    missing: int
    missing_by_retention: int
    lost_offsets: int


def settle(spark: SparkSession, files: Files, log: CommitLog, patience: Patience, now_ms: int) -> Account:
    """Replace both tables. The records' own time says who is silent, the clock which gaps are old enough."""
    position = log.position
    empty = spark.createDataFrame([], INTERVALS)
    seen = spark.read.schema(INTERVALS).parquet(files.full(position.state)) if position.state else empty
    losses = [asdict(loss) | {"missing": loss.missing} for loss in position.losses]
    staging, state = log.staging(), log.new_state()

    def stage(frame: DataFrame, path: str) -> None:
        frame.coalesce(1).write.parquet(files.full(path))

    current = seqs.gaps(seen, now_ms - patience.gap_after_ms, position.losses)
    stage(seqs.with_final(current, _table(spark, files, "gaps"), seen), f"{staging}/gaps")
    stage(spark.createDataFrame(losses, LOSSES), f"{staging}/losses")
    stage(seqs.remembered(seen, position.topic_ms - patience.forget_after_ms), state)
    log.commit(
        replace(position, state=state),
        swaps=tuple((f"{staging}/{name}", name) for name in ("gaps", "losses")),
    )
    return _account(_table(spark, files, "gaps"), position.losses)


def _table(spark: SparkSession, files: Files, name: str) -> DataFrame:
    if not files.exists(name):
        return spark.createDataFrame([], GAPS)
    return spark.read.schema(GAPS).parquet(files.full(name))


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
