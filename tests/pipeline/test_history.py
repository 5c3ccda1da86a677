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
from pyspark.sql.pandas.types import from_arrow_schema

from pidgate.events.definitions import EVENT_TYPES
from pidgate.findings.patterns import HARMFUL, Pattern
from pidgate.findings.rules import PATTERNS
from pidgate.pipeline.schemas import table_schema
from tools.history import events_of_day, job, loops
from tools.history.cast import STORIES, cast
from tools.history.events_of_day import DayTables, tables_of
from tools.history.world import DAY_MS, REMEMBER_MS, World, dice

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
        found = from_arrow_schema(pq.read_schema(written))
        wanted = table_schema(kind)
        assert [(one.name, one.dataType) for one in found] == [(one.name, one.dataType) for one in wanted], (
            kind
        )
    lifecycle = tables.events("lifecycle")
    wrong = lifecycle.where(
        "date_format(timestamp_millis(wall_time_ms), 'yyyy-MM-dd HH') != concat(day, ' ', hour)"
    )
    assert wrong.isEmpty()
    assert lifecycle.select("hour").distinct().count() == 24


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


def test_clocks_of_gateways_differ(story: Story) -> None:
    starts = story.of("lifecycle").query("phase == 'start'")
    assert len(set(starts.wall_time_ms % 60_000)) > 1
    assert np.abs(story.world.skews_ms).max() > 150


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


def test_refreshes_come_slice_by_slice(story: Story) -> None:
    again = story.of("decision").query("reason == 'refresh'").sort_values("decision_time_ms")
    assert len(again) > 50
    # Two gateways may each tell of an id, so within one process only.
    gaps = again.groupby(["incarnation", "producer_id"]).wall_time_ms.diff().dropna()
    assert (gaps > 0).all()
    assert gaps.median() > REMEMBER_MS / 8


def test_each_connection_opens_and_closes_once(story: Story) -> None:
    told_of = story.of("connection").sort_values("seq").groupby(["incarnation", "connection_id"])
    assert (told_of.phase.agg(list).map(tuple) == ("open", "close")).all()
    closed = story.of("connection").query("phase == 'close'")
    assert {"client", "reset", "drain", "idle"} <= set(closed.close_reason)
    assert (closed.seconds >= 0).all()


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


def test_a_crash_loop_backs_off_as_kubernetes_does() -> None:
    lasted = np.array([1_000] * 8 + [700_000, 1_000, 1_000])
    waits = loops._backoff(lasted, dice(1, "test")) / 1_000
    expected = np.array([300] * 8 + [10, 20, 40])
    # Jitter only adds: a little, and the time a container takes to start.
    assert ((waits > 0.94 * expected) & (waits < 1.1 * expected + 15)).all()


def test_patterns_overlap_in_how_many_ids_they_bring() -> None:
    """Or one could tell them apart by counting alone."""
    many = replace(WORLD, users=400)
    per_day = {
        pattern: [
            one.habit.get(habit, 0)
            for user in range(400)
            for one in cast(many, user).deployments
            if one.pattern is pattern
        ]
        for pattern, habit in (
            (Pattern.PRODUCER_PER_BATCH, "per_hour"),
            (Pattern.RANDOM_TRANSACTIONAL_IDS, "starts_per_day"),
            (Pattern.CRON_JOB, "every_minutes"),
        )
    }
    slow_batches = min(per_day[Pattern.PRODUCER_PER_BATCH]) * 24
    busy_crons = 1_440 / min(per_day[Pattern.CRON_JOB])
    assert slow_batches < busy_crons
    assert len(STORIES) <= 30


@pytest.mark.parametrize("wanted", [120_000, 300_000])
def test_it_has_about_as_many_events_as_were_asked_for(wanted: int) -> None:
    sized = job.sized(replace(WORLD, scale=1.0, users=45), wanted)
    found = sum(
        sum(table.num_rows for table in tables_of(replace(sized, shards=1), 0, day).tables.values())
        for day in (0, 1)
    )
    assert 1 / 2.5 < found / wanted < 2.5
    assert set(EVENT_TYPES) - set(events_of_day.TYPES) == {"transactional_id"}
