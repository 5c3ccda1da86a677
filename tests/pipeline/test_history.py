"""A made-up history: the same for the same seed, well-formed as real ones are, with the truth beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pidgate.findings.patterns import HARMFUL, Pattern
from pidgate.findings.rules import PATTERNS
from pidgate.pipeline.schemas import BUCKETS, table_schema
from tools.history import events_of_day, job
from tools.history.cast import cast
from tools.history.events_of_day import DayTables, tables_of
from tools.history.world import DAY_MS, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pidgate.pipeline.tables import Tables


END_MS = 1_795_219_200_000  # 2026-11-21
WORLD = World(seed=5, users=30, days=2, begin_ms=END_MS - 2 * DAY_MS, scale=0.4)


class Story:
    """Two days of one world, in memory."""

    def __init__(self, world: World) -> None:
        self.world = world
        parts = [tables_of(world, shard, day) for day in range(world.days) for shard in range(world.shards)]
        self._tables = {
            kind: pa.concat_tables([_plain(part, kind) for part in parts]) for kind in events_of_day.TYPES
        }
        self.ids = pa.concat_tables([part.ids for part in parts]).to_pandas()

    def of(self, kind: str) -> pd.DataFrame:
        found: pd.DataFrame = self._tables[kind].to_pandas()
        return found


def _plain(part: DayTables, kind: str) -> pa.Table:
    table = part.tables[kind]
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


@pytest.fixture(scope="module")
def story() -> Story:
    return Story(WORLD)


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.parquet"))}


def test_a_seed_makes_one_history_however_it_is_divided(spark: SparkSession, tmp_path: Path) -> None:
    small = replace(WORLD, users=8, days=1, shards=4)
    for name, partitions in (("one", 1), ("four", 4)):
        written = job.write_events(spark, small, str(tmp_path / name), partitions).collect()
        assert {row["type"] for row in written} == set(events_of_day.TYPES)
        rows = sum(
            pq.read_metadata(path).num_rows for path in (tmp_path / name / "events").rglob("*.parquet")
        )
        assert sum(row["rows"] for row in written) == rows > 5_000
    one, four = _files(tmp_path / "one"), _files(tmp_path / "four")
    assert one == four
    other = tables_of(replace(small, seed=6), 0, 0)
    assert other.tables["decision"].num_rows != tables_of(small, 0, 0).tables["decision"].num_rows


def test_tables_are_as_ingest_would_have_written_them(spark: SparkSession, tables: Tables) -> None:
    small = replace(WORLD, users=8, days=1)
    job.write_events(spark, small, tables.root).collect()
    # Among so few users nobody was refused; the other types are all there.
    for kind in set(events_of_day.TYPES) - {"refusal_outcome"}:
        written = next(Path(tables.path("events", kind)).rglob("*.parquet"))
        assert pq.read_schema(written) == table_schema(kind)
    day = "strftime(epoch_ms(wall_time_ms), '%Y-%m-%d')"
    misplaced = f"from found where {day} <> day or producer_id & {BUCKETS - 1} <> bucket::bigint"
    assert tables.query_events("decision", misplaced) == []
    assert len(tables.query_events("decision", "select distinct bucket from found")) == BUCKETS


def test_numbers_have_no_gap_and_follow_the_time(story: Story) -> None:
    rows = pd.concat(
        [
            story.of(kind)[["gateway_id", "incarnation", "seq", "wall_time_ms"]].assign(kind=kind)
            for kind in events_of_day.TYPES
        ]
    )
    assert rows.gateway_id.nunique() == 3
    for _, mine in rows.groupby(["gateway_id", "incarnation"]):
        ordered = mine.sort_values("seq")
        assert (ordered.seq.to_numpy() == np.arange(1, len(ordered) + 1)).all()
        assert (np.diff(ordered.wall_time_ms) >= 0).all()
        assert ordered.kind.iloc[-1] == "lifecycle", "a process that has stopped tells nothing"
    starts = story.of("lifecycle").query("phase == 'start'")
    assert len(starts) == rows.incarnation.nunique() >= 6
    assert set(story.of("config").incarnation) == set(rows.incarnation)


def test_ids_come_in_blocks_of_a_broker(story: Story) -> None:
    """KIP-730: a block belongs to one broker, and its ids are handed out one after the other."""
    given = story.of("init_producer_id").query("error == 0").drop_duplicates("answered_producer_id")
    block = given.answered_producer_id // 1_000
    assert (given.groupby(block).node_id.nunique() == 1).all()
    for _, mine in given.sort_values("decision_time_ms", kind="stable").groupby(block):
        ids = np.sort(mine.answered_producer_id)
        # Who was there before the history has ids of the same blocks that nobody saw.
        assert (np.diff(ids) <= 3).all()
        assert len(ids) > 0.7 * (ids[-1] - ids[0] + 1)
    assert (story.of("init_producer_id").query("error != 0").answered_producer_id == -1).all()
    assert story.of("decision").groupby("producer_id").user.nunique().max() == 1


def test_what_is_used_was_admitted_before(story: Story) -> None:
    usage, decided = story.of("id_usage"), story.of("decision")
    admitted = decided[decided.decision == "admit"].groupby("producer_id").wall_time_ms.min()
    used = usage.groupby("producer_id").first_ms.min()
    assert set(used.index) <= set(admitted.index)
    skew = 2 * int(np.abs(story.world.skews_ms).max()) + 1
    assert (used + skew >= admitted.reindex(used.index)).all()
    assert (usage.first_ms <= usage.last_ms).all()
    assert (usage.last_ms <= usage.wall_time_ms).all()
    assert (usage.requests >= usage.partitions).all()
    assert (usage.records >= usage.requests).all()


def test_every_pattern_is_there_and_each_id_has_its_truth(spark: SparkSession, story: Story) -> None:
    labels = job.labels(spark, story.world).toPandas()
    assert set(labels.pattern) == {pattern.value for pattern in PATTERNS - {Pattern.PRODUCER_PER_TASK}}
    assert labels.groupby("user").ngroups == story.world.users
    assert not labels.duplicated().any()
    ids = story.ids
    assert not ids.duplicated("producer_id").any()
    new = story.of("decision").query("reason != 'refresh'")
    assert set(ids.producer_id) == set(new.producer_id)
    harmful = {pattern.value for pattern in HARMFUL}
    assert set(ids[~ids.healthy].pattern) == harmful
    assert (ids[~ids.pattern.isin(harmful)].healthy).all()
    rogue = ids[~ids.healthy].groupby(["user", "pattern"]).size()
    assert set(rogue.index) <= set(labels.itertuples(index=False, name=None))
    mixed = (
        labels.groupby("user")
        .pattern.agg(set)
        .map(lambda found: bool(found & harmful) and bool(found - harmful))
    )
    assert mixed.sum() >= 4


def test_the_quota_refuses_whom_it_is_enforced_for(story: Story) -> None:
    enforced = {user.name for user in map(lambda n: cast(story.world, n), range(30)) if user.rate_per_hour}
    assert len(enforced) >= 2
    decided, ended = story.of("decision"), story.of("refusal_outcome")
    refused = decided[decided.decision == "refuse"]
    assert refused.user.nunique() > 0
    assert set(refused.user) <= enforced
    assert (refused.throttle_time_ms >= 100).all()
    assert (refused.tokens_before < refused.token_units).all()
    assert set(ended.producer_id) <= set(refused.producer_id)
    came_through = ended[ended.outcome == "admitted"]
    last = decided[decided.decision == "admit"].drop_duplicates("producer_id").set_index("producer_id")
    assert (last.waited_ms.reindex(came_through.producer_id).to_numpy() == came_through.waited_ms).all()
    never = set(refused.producer_id) - set(last.index)
    assert not never & set(story.of("id_usage").producer_id)
