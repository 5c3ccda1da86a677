"""The tables under one root folder: paths, reading, writing.

    events/<type>/day=2026-11-21/hour=07/    what ingest took from the topic (or history made up)
    dead_letters/  gaps/                     what ingest could not take, and what never came
    labels/                                  what history knows of its users
    results/<name>/                          what the jobs found; a run replaces all of its own at once (runs.py)
    report.html  recommended/                for people, and for the gateway
    scratch/                                 of runs that are not over (swaps.py)

The root may be any folder that Spark can write: local, or on HDFS or an object store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.errors import HistoryEmpty
from pidgate.pipeline.files import Files
from pidgate.pipeline.schemas import PARTITIONS, table_schema
from pidgate.pipeline.swaps import Swaps


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables of one root."""

    spark: SparkSession
    root: str
    files: Files = field(init=False)
    """The root's files, for what is no table."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", Files(self.root))

    def path(self, *parts: str) -> str:
        """Return a path as people write it."""
        return "/".join([self.root.rstrip("/"), *parts])

    def exists(self, *parts: str) -> bool:
        """Return whether there is such a folder or file."""
        return self.files.exists(self._where(*parts))

    def text(self, *parts: str) -> str | None:
        """Return what a file says; None when there is none."""
        return self.files.read(self._where(*parts)) if self.exists(*parts) else None

    def _where(self, *parts: str) -> str:
        return Swaps(self.files).where("/".join(parts))

    def _found(self, *parts: str) -> str:
        """Return a path for Spark to read from."""
        return self.files.full(self._where(*parts))

    # Events

    def events(self, event_type: str) -> DataFrame:
        """Return all events of a type, each once; an empty table when none were ever seen."""
        schema = type(PARTITIONS)([*table_schema(event_type).fields, *PARTITIONS.fields])
        if not self.exists("events", event_type):
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(self._found("events", event_type))

    def needed_events(self, event_type: str, days: Days = EVER) -> DataFrame:
        """Return the events of these days for a job that needs some. Raises HistoryEmpty."""
        found = self.events(event_type)
        of_days = days.of(found)
        if not of_days.isEmpty():
            return of_days
        if not found.isEmpty():
            raise HistoryEmpty(
                f"no {event_type} events{days} under {self.path('events')}: choose other days with --since and --until."
            )
        raise HistoryEmpty(
            f"no {event_type} events under {self.path('events')}. Run `pidgate pipeline ingest` "
            "with this --tables first; gateways write them while `events.enabled` is true."
        )

    # Results

    def result(self, name: str) -> DataFrame | None:
        """Return a job's result; None when the job was not run."""
        if not self.exists("results", name):
            return None
        return self.spark.read.parquet(self._found("results", name))

    def written(self, name: str) -> DataFrame:
        """Return a result that the job itself has written."""
        found = self.result(name)
        assert found is not None, name
        return found

    def read(self, *parts: str, schema: StructType | str) -> DataFrame:
        """Return a table of another kind; empty when it is not there."""
        if not self.exists(*parts):
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(self._found(*parts))


def in_order(*more: str) -> Sequence[str]:
    """Return the order of events: clocks of several gateways do not agree, their numbers do."""
    return (*more, "gateway_id", "incarnation", "seq")
