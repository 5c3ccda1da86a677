"""The history as a Spark job: one task per day and shard of users, which writes its own files.

Only counts are returned. A task's output depends on the world and its own numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import ceil

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tools.history.makers import MAKERS
from tools.history.shard import day_of
from tools.history.world import DAY_MS, USAGE_MS, World

LABELS = "user string, pattern string"
WRITTEN = "type string, rows bigint"
EVENTS_A_TASK = 1_000_000
_GUESSES = 3
_EVENTS_A_LIFE = 7
"""Four of connections, one response, one decision, one id_usage."""


def expected_events(world: World) -> int:
    """Return the approximate number of events, estimated from the lives of two days."""
    days = [world.days // 3, world.days * 3 // 4]
    return round(sum(_events_of_day(world, day) for day in days) / len(days) * world.days)


def _events_of_day(world: World, number: int) -> int:
    day = day_of(replace(world, shards=1), 0, number)
    begin_ms = world.midnight_ms(number)
    lasting = np.minimum(day.lives.end_ms, begin_ms + DAY_MS) - np.maximum(day.lives.start_ms, begin_ms)
    slices = np.where(day.lives.is_lasting, lasting / USAGE_MS, 0)
    sent = 1 - np.exp(-day.of_deployment("requests_per_hour") / 4)
    return int(_EVENTS_A_LIFE * len(day.lives) + (slices * sent).sum())


def sized(world: World, events: int) -> World:
    """Scale the world to about this many events by changing the number of processes.

    There is a minimum, as each deployment keeps a process.
    """
    # Events are not quite proportional to processes, so each guess starts from the previous one.
    for _ in range(_GUESSES):
        scale = world.scale * events / expected_events(world)
        world = replace(world, scale=min(max(scale, 0.02), 1_000.0))
    return world


def in_shards(world: World, events: int) -> World:
    """Return the world with enough tasks per day to keep each small."""
    return replace(world, shards=max(1, ceil(events / world.days / EVENTS_A_TASK)))


def write_events(spark: SparkSession, world: World, root: str, partitions: int | None = None) -> DataFrame:
    """Write everything under `root` and return the rows of each type; lazy, as a DataFrame.

    `partitions`: number of Spark tasks if not one per day and shard; the files are the same.
    """
    tasks = world.shards * world.days

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Imported in the task only; the driver does not need the simulation.
        from tools.history.events_of_day import tables_of, write

        for batch in batches:
            for task in batch["id"].to_pylist():
                shard, day = divmod(task, world.days)
                rows = write(tables_of(world, shard, day), root, shard, day)
                yield pa.record_batch({"type": list(rows), "rows": list(rows.values())})

    # Tasks of one shard are adjacent, so that a process computes its plan mostly once.
    written = spark.range(0, tasks, 1, partitions or tasks).mapInArrow(run, WRITTEN)
    return written.groupBy("type").sum("rows").withColumnRenamed("sum(rows)", "rows")


def labels(spark: SparkSession, world: World) -> DataFrame:
    """Return the ground truth: the patterns of each user's processes in these days."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        maker = MAKERS[world.fleet]
        for batch in batches:
            users = [maker.user(world, number) for number in batch["id"].to_pylist()]
            pairs = [
                (user.name, pattern.value)
                for user in users
                for pattern in sorted(maker.patterns(world, user))
            ]
            yield pa.record_batch(
                {"user": [name for name, _ in pairs], "pattern": [word for _, word in pairs]}
            )

    return spark.range(world.users).mapInArrow(run, LABELS)
